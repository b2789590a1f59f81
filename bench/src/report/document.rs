//! The parts of documents that benchmarks write.

use anyhow::{Context, Result};
use std::fs;
use std::path::Path;

/// Writes a part of this file, between two comments with the part's name. A part that the file has is replaced, a new one follows the others.
pub fn write(path: &Path, part: &str, text: &str) -> Result<()> {
    let before = if path.exists() {
        fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?
    } else {
        String::new()
    };
    fs::write(path, with_part(&before, part, text)).with_context(|| format!("write {}", path.display()))
}

fn begin(part: &str) -> String {
    format!("<!-- begin of {part} -->\n")
}

fn end(part: &str) -> String {
    format!("<!-- end of {part} -->")
}

fn with_part(document: &str, part: &str, text: &str) -> String {
    let (begin, end) = (begin(part), end(part));
    let outside =
        document.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
    let (before, after) = outside.unwrap_or((document, "\n"));
    format!("{before}{begin}\n{}\n\n{end}{after}", text.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_text_of_the_part_changes() {
        let document = format!("# A\n{}\nold\n\n{}\n## B\n", begin("cost"), end("cost"));
        let expected = format!("# A\n{}\nnew\n\n{}\n## B\n", begin("cost"), end("cost"));
        assert_eq!(with_part(&document, "cost", "new\n"), expected);
        assert_eq!(with_part(&expected, "cost", "new"), expected);
    }

    #[test]
    fn a_new_part_follows_the_others() {
        let of_cost = with_part("", "cost", "old");
        assert_eq!(of_cost, format!("{}\nold\n\n{}\n", begin("cost"), end("cost")));
        let both = format!("{of_cost}{}\nnew\n\n{}\n", begin("scale"), end("scale"));
        assert_eq!(with_part(&of_cost, "scale", "new"), both);
    }
}
