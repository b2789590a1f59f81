//! How much of files is read.

use core::fmt;
use std::io::{self, Read};
use std::path::Path;

use serde_saphyr::Error;
use serde_saphyr::budget::BudgetBreach;

/// How large files may be that the agent reads, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLimits {
    /// Most bytes.
    pub bytes: usize,
    /// Most nodes of its YAML: maps, lists and values.
    pub yaml_nodes: usize,
    /// Most manifest files in a directory.
    pub manifest_files: usize,
    /// Most manifests in all files together.
    pub manifests: usize,
}

impl Default for FileLimits {
    /// The EPP reads endpoints files of a mebibyte, and the YAML library that many nodes.
    fn default() -> Self {
        Self { bytes: 1024 * 1024, yaml_nodes: 250_000, manifest_files: 256, manifests: 4096 }
    }
}

impl FileLimits {
    /// Reads a file. One byte more than allowed is enough to see that it is too large.
    pub fn read(self, path: &Path) -> Result<Vec<u8>, ReadError> {
        let mut bytes = Vec::new();
        std::fs::File::open(path)
            .and_then(|file| file.take(self.bytes as u64 + 1).read_to_end(&mut bytes))
            .map_err(ReadError::Io)?;
        if bytes.len() > self.bytes { Err(ReadError::TooLarge(self.bytes)) } else { Ok(bytes) }
    }

    /// The same for the YAML library; whatever else it counts follows the nodes.
    pub(crate) fn yaml(self) -> serde_saphyr::Budget {
        let mut budget = serde_saphyr::Budget::default();
        budget.max_nodes = self.yaml_nodes;
        budget.max_events = self.yaml_nodes.saturating_mul(4);
        budget
    }
}

/// What is wrong with a file's text, with the flag if that is a limit of ours.
pub(crate) fn yaml_problem(error: &Error) -> String {
    let flag = match error.without_snippet() {
        Error::Budget { breach: BudgetBreach::Nodes { .. } | BudgetBreach::Events { .. }, .. } => {
            " (--max-yaml-nodes)"
        }
        _ => "",
    };
    format!("neither YAML nor JSON: {error}{flag}")
}

/// Why a file was not read.
#[derive(Debug)]
#[non_exhaustive]
pub enum ReadError {
    /// It cannot be read.
    Io(io::Error),
    /// It has more bytes than this.
    TooLarge(usize),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "cannot be read: {error}"),
            Self::TooLarge(max) => write!(f, "is larger than the allowed {max} bytes (--max-file-bytes)"),
        }
    }
}

impl core::error::Error for ReadError {}
