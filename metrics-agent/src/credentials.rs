//! Certificates, keys and tokens, from files that are read again when they change.
//!
//! What they hold reaches no log and no message: an error names the file and what is wrong with it, never its text.

mod files;
pub mod once;
mod pem;
pub mod scraping;
pub mod serving;
mod token;

use core::fmt;
use std::path::{Path, PathBuf};

pub use files::Followed;
pub use token::Tokens;

/// A file that holds no such credential as it should.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialError {
    file: PathBuf,
    problem: String,
}

impl CredentialError {
    fn new(file: &Path, problem: impl Into<String>) -> Self {
        Self { file: file.to_owned(), problem: problem.into() }
    }
}

impl fmt::Display for CredentialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.file.display(), self.problem)
    }
}

impl core::error::Error for CredentialError {}
