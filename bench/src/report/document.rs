//! The part of a document that `make bench-epp` writes.

use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

const BEGIN: &str = "<!-- written by make bench-epp WRITE=1 -->\n";
const END: &str = "<!-- end of what make bench-epp writes -->";

/// Replaces the text between the marks of this file.
pub(crate) fn write(path: &Path, text: &str) -> Result<()> {
    let before = fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let after = replace(&before, text).with_context(|| {
        format!("{} has no line {:?}, or {END:?} does not come after it", path.display(), BEGIN.trim())
    })?;
    fs::write(path, after).with_context(|| format!("write {}", path.display()))
}

fn replace(document: &str, text: &str) -> Option<String> {
    let (before, rest) = document.split_once(BEGIN)?;
    let (_, after) = rest.split_once(END)?;
    Some(format!("{before}{BEGIN}\n{}\n\n{END}{after}", text.trim()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_text_between_the_marks_changes() {
        let document = format!("# A\n{BEGIN}\nold\n\n{END}\n## B\n");
        let expected = format!("# A\n{BEGIN}\nnew\n\n{END}\n## B\n");
        assert_eq!(replace(&document, "new\n"), Some(expected.clone()));
        assert_eq!(replace(&expected, "new"), Some(expected));
    }

    #[test]
    fn a_document_without_the_marks_is_an_error() {
        assert_eq!(replace(&format!("{END}{BEGIN}"), "new"), None);
        assert_eq!(replace("# A\n", "new"), None);
    }
}
