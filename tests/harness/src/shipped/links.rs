//! Tests that the links between documents have targets.

use super::snippets::shipped;
use crate::tools;
use std::fs;
use std::path::{Component, Path, PathBuf};

#[test]
fn every_relative_link_in_a_document_has_its_target() {
    let mut broken = Vec::new();
    let mut links = 0;
    for document in shipped("md").unwrap() {
        let text = fs::read_to_string(tools::root().join(&document)).unwrap();
        for target in targets(&text) {
            links += 1;
            if !exists(&document, target) {
                broken.push(format!("{document}: {target}"));
            }
        }
    }
    assert!(links > 100, "{links} links");
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn the_index_has_every_decision() {
    let folder = tools::root().join("docs/design/decisions");
    let index = fs::read_to_string(folder.join("README.md")).unwrap();
    for decision in fs::read_dir(folder).unwrap() {
        let name = decision.unwrap().file_name().into_string().unwrap();
        assert!(name == "README.md" || index.contains(&format!("]({name})")), "README.md lacks {name}");
    }
}

/// The relative links and images of a document.
fn targets(text: &str) -> impl Iterator<Item = &str> {
    let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    let images = text.split("src=\"").skip(1).filter_map(|rest| rest.split_once('"'));
    let targets = links.chain(images).map(|(target, _)| target);
    targets.filter(|target| !target.contains("://") && !target.contains(' '))
}

/// Whether the file of a link exists and, if it is a document, has a heading for the link's anchor.
fn exists(document: &str, target: &str) -> bool {
    let (file, anchor) = target.split_once('#').map_or((target, None), |(file, anchor)| (file, Some(anchor)));
    let folder = Path::new(document).parent().unwrap();
    let path = if file.is_empty() { PathBuf::from(document) } else { normalized(&folder.join(file)) };
    let path = tools::root().join(path);
    match anchor {
        Some(anchor) if path.extension().is_some_and(|end| end == "md") => fs::read_to_string(path)
            .is_ok_and(|text| text.lines().filter_map(heading).any(|heading| anchor_of(heading) == anchor)),
        _ => path.exists(),
    }
}

/// Resolves `..`, so that a path through a folder that does not exist is not found.
fn normalized(path: &Path) -> PathBuf {
    let mut normalized = PathBuf::new();
    for component in path.components() {
        match component {
            Component::ParentDir => {
                normalized.pop();
            }
            component => normalized.push(component),
        }
    }
    normalized
}

fn heading(line: &str) -> Option<&str> {
    let text = line.trim_start_matches('#');
    (text.len() < line.len()).then(|| text.strip_prefix(' '))?
}

/// The anchor that GitHub gives to a heading.
fn anchor_of(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.map(|c| if c == ' ' { '-' } else { c.to_ascii_lowercase() }).collect()
}
