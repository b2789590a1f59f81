//! The configurations in documents, and the shipped files.

use crate::tools;
use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};

/// Folders of build products, tools and tests, and of what Kubernetes gets: `make check-deploy` and
/// `make test-kube` check that.
const PASSED_OVER: [&str; 8] =
    ["target", "logs", "corpus", "artifacts", "node_modules", "tests", "bench", "deploy"];

/// A fenced block of a document, or a shipped file.
#[derive(Clone, Debug)]
pub struct Snippet {
    /// The file, from the repository's root, and the line at which a block begins.
    pub at: String,
    /// Its content.
    pub text: String,
}

/// All blocks of YAML and JSON in all documents.
pub fn of_documents() -> Result<Vec<Snippet>> {
    let mut snippets = Vec::new();
    for file in shipped("md")? {
        let text = fs::read_to_string(tools::root().join(&file))?;
        snippets.extend(of_text(&file, &text).with_context(|| file.clone())?);
    }
    Ok(snippets)
}

/// All shipped files in YAML.
pub fn of_files() -> Result<Vec<Snippet>> {
    let read = |file: String| {
        let text = fs::read_to_string(tools::root().join(&file))?;
        Ok(Snippet { at: file, text })
    };
    shipped("yaml")?.into_iter().chain(shipped("yml")?).map(read).collect()
}

fn of_text(file: &str, text: &str) -> Result<Vec<Snippet>> {
    let mut snippets = Vec::new();
    let mut open: Option<(usize, &str, String)> = None;
    for (index, line) in text.lines().enumerate() {
        let fence = line.trim_start().strip_prefix("```");
        match (&mut open, fence) {
            (None, Some(kind)) => open = Some((index + 1, kind.trim(), String::new())),
            (Some((_, _, text)), None) => {
                text.push_str(line);
                text.push('\n');
            }
            (Some(_), Some(_)) => {
                let (line, kind, text) = open.take().context("a block is open")?;
                if ["yaml", "yml", "json"].contains(&kind) {
                    snippets.push(Snippet { at: format!("{file}:{line}"), text });
                }
            }
            (None, None) => {}
        }
    }
    anyhow::ensure!(open.is_none(), "a block has no end");
    Ok(snippets)
}

/// The files of the repository with this extension, from its root, without tests and build products.
pub(super) fn shipped(extension: &str) -> Result<Vec<String>> {
    let mut files = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(tools::root().join(&folder))? {
            let entry = entry?;
            let name = entry.file_name().into_string().ok().context("a file's name is not UTF-8")?;
            let path = folder.join(&name);
            if name.starts_with('.') || PASSED_OVER.contains(&name.as_str()) {
                continue;
            }
            if entry.file_type()?.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == extension) {
                files.push(text(&path)?.to_owned());
            }
        }
    }
    files.sort();
    Ok(files)
}

fn text(path: &Path) -> Result<&str> {
    path.to_str().with_context(|| format!("{} is not UTF-8", path.display()))
}
