//! The parts of documents that benchmarks write.

use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

/// Replaces a part of this file: the text between two comments with the part's name.
pub(crate) fn write(path: &Path, part: &str, text: &str) -> Result<()> {
    let before = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let after = replace(&before, part, text).with_context(|| {
        format!("{} has no line {:?} with {:?} after it", path.display(), begin(part).trim(), end(part))
    })?;
    fs::write(path, after).with_context(|| format!("write {}", path.display()))
}

fn begin(part: &str) -> String {
    format!("<!-- begin of {part} -->\n")
}

fn end(part: &str) -> String {
    format!("<!-- end of {part} -->")
}

fn replace(document: &str, part: &str, text: &str) -> Option<String> {
    let (begin, end) = (begin(part), end(part));
    let (before, rest) = document.split_once(&begin)?;
    let (_, after) = rest.split_once(&end)?;
    Some(format!("{before}{begin}\n{}\n\n{end}{after}", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_text_of_the_part_changes() {
        let document = format!("# A\n{}\nold\n\n{}\n## B\n", begin("cost"), end("cost"));
        let expected = format!("# A\n{}\nnew\n\n{}\n## B\n", begin("cost"), end("cost"));
        assert_eq!(replace(&document, "cost", "new\n"), Some(expected.clone()));
        assert_eq!(replace(&expected, "cost", "new"), Some(expected));
    }

    #[test]
    fn a_document_without_the_part_is_an_error() {
        let document = format!("{}{}{}", end("cost"), begin("cost"), end("scale"));
        assert_eq!(replace(&document, "cost", "new"), None);
        assert_eq!(replace("# A\n", "cost", "new"), None);
    }
}
