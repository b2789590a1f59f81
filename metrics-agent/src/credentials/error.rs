//! Why credentials cannot be used.

use core::fmt;
use std::path::{Path, PathBuf};

/// A file without a usable credential.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialError {
    file: PathBuf,
    problem: String,
}

impl CredentialError {
    pub(crate) fn new(file: &Path, problem: impl Into<String>) -> Self {
        Self { file: file.to_owned(), problem: problem.into() }
    }
}

impl fmt::Display for CredentialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.file.display(), self.problem)
    }
}

impl core::error::Error for CredentialError {}
