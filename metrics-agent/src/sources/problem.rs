//! Problems of manifests, for their author.

use core::fmt;
use std::path::Path;
use std::sync::Arc;

/// Most problems that are printed; the rest are counted.
const MAX_PRINTED: usize = 50;

/// One problem, or one warning.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The path of the file.
    pub file: Arc<Path>,
    /// The document in it, counted from 1.
    pub document: Option<usize>,
    /// The item in it, counted from 1, if the document is a list.
    pub item: Option<usize>,
    /// The path of the value, such as `spec.rules[0].targets[1].weight`; empty for the document itself.
    pub at: String,
    /// The value, and what is allowed.
    pub text: String,
}

impl Problem {
    /// A problem of a file as a whole.
    pub fn of_file(file: &Path, text: impl Into<String>) -> Self {
        Self { file: file.into(), document: None, item: None, at: String::new(), text: text.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.file.display())?;
        if let Some(document) = self.document {
            write!(f, "document {document}: ")?;
        }
        if let Some(item) = self.item {
            write!(f, "item {item}: ")?;
        }
        if !self.at.is_empty() {
            write!(f, "{}: ", self.at)?;
        }
        f.write_str(&self.text)
    }
}

/// All problems of a set of manifests, printed one a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problems(pub Vec<Problem>);

impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, problem) in self.0.iter().take(MAX_PRINTED).enumerate() {
            let separator = if index == 0 { "" } else { "\n" };
            write!(f, "{separator}{problem}")?;
        }
        match self.0.len().saturating_sub(MAX_PRINTED) {
            0 => Ok(()),
            more => write!(f, "\nand {more} more"),
        }
    }
}

impl core::error::Error for Problems {}

impl From<Problem> for Problems {
    fn from(problem: Problem) -> Self {
        Self(vec![problem])
    }
}
