//! Limits on files.

use core::fmt;
use std::io::{self, Read};
use std::path::Path;

use serde_saphyr::Error;
use serde_saphyr::budget::BudgetBreach;

/// Limits on the files that the agent reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLimits {
    /// Most bytes of a file.
    pub bytes: usize,
    /// Most YAML nodes of a file: maps, lists and values.
    pub yaml_nodes: usize,
    /// Most manifest files in a directory.
    pub manifest_files: usize,
    /// Most manifests in all files together.
    pub manifests: usize,
}

impl Default for FileLimits {
    /// The EPP reads endpoints files of up to 1 MiB; 250 000 nodes are the YAML library's default.
    fn default() -> Self {
        Self { bytes: 1024 * 1024, yaml_nodes: 250_000, manifest_files: 256, manifests: 4096 }
    }
}

impl FileLimits {
    /// Reads a file, but at most one byte more than allowed: enough to detect that it is too large.
    pub fn read(self, path: &Path) -> Result<Vec<u8>, ReadError> {
        let mut bytes = Vec::new();
        std::fs::File::open(path)
            .and_then(|file| file.take(self.bytes as u64 + 1).read_to_end(&mut bytes))
            .map_err(ReadError::Io)?;
        if bytes.len() > self.bytes { Err(ReadError::TooLarge(self.bytes)) } else { Ok(bytes) }
    }

    /// The limits for the YAML library. The limit on events follows from the one on nodes.
    pub(crate) fn yaml(self) -> serde_saphyr::Budget {
        let mut budget = serde_saphyr::Budget::default();
        budget.max_nodes = self.yaml_nodes;
        budget.max_events = self.yaml_nodes.saturating_mul(4);
        budget
    }
}

/// A message for a YAML error, with the flag if a limit of the agent was exceeded.
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
pub enum ReadError {
    /// It cannot be read.
    Io(io::Error),
    /// It has more than this number of bytes.
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
