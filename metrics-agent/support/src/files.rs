//! Small files: limits on their size, and polling for changes.

use core::fmt;
use core::time::Duration;
use std::io::{self, Read};
use std::path::Path;

use serde_saphyr::Error;
use serde_saphyr::budget::BudgetBreach;

/// Limits on the files that the agent reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileLimits {
    /// Maximum number of bytes of a file.
    pub bytes: usize,
    /// Maximum number of YAML nodes of a file: maps, lists and values.
    pub yaml_nodes: usize,
    /// Maximum number of manifest files in a directory.
    pub manifest_files: usize,
    /// Maximum number of manifests in all files together.
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

    /// The limits for the YAML library. The limit on events follows from the limit on nodes.
    pub fn yaml(self) -> serde_saphyr::Budget {
        let mut budget = serde_saphyr::Budget::default();
        budget.max_nodes = self.yaml_nodes;
        budget.max_events = self.yaml_nodes.saturating_mul(4);
        budget
    }
}

/// A message for a YAML error, with the flag if a limit of the agent was exceeded.
pub fn yaml_problem(error: &Error) -> String {
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

/// Time between two polls. A change is used when two polls agree on it, so a file that is being written in
/// place is never used half written.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Polls forever: calls `update` with the first content, and then with each change.
pub async fn poll<T, Read>(read: impl Fn() -> Read, update: impl Fn(&T))
where
    T: Clone + PartialEq,
    Read: Future<Output = T>,
{
    let first = read().await;
    update(&first);
    poll_from(first, read, update).await;
}

/// Polls forever: calls `update` with each change from `first`.
pub(crate) async fn poll_from<T, Read>(first: T, read: impl Fn() -> Read, update: impl Fn(&T))
where
    T: Clone + PartialEq,
    Read: Future<Output = T>,
{
    let mut used = first;
    let mut last = used.clone();
    loop {
        tokio::time::sleep(POLL_INTERVAL).await;
        let now = read().await;
        if now == last && now != used {
            update(&now);
            used.clone_from(&now);
        }
        last = now;
    }
}

#[cfg(test)]
mod tests {
    use core::cell::{Cell, RefCell};

    use tokio::time::{Instant, sleep, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_change_is_used_within_two_polls_and_a_half_written_one_never() {
        const SECOND: Duration = Duration::from_secs(1);
        let (content, updates) = (Cell::new("old"), RefCell::new(Vec::new()));
        let begin = Instant::now();
        let polling = poll(
            || core::future::ready(content.get()),
            |content| updates.borrow_mut().push((*content, begin.elapsed())),
        );
        let changes = async {
            // Midway between two polls, so that the next poll reads each.
            sleep(SECOND + POLL_INTERVAL / 2).await;
            content.set("half");
            sleep(POLL_INTERVAL).await;
            content.set("new");
        };
        let (ended, ()) = tokio::join!(timeout(2 * SECOND, polling), changes);
        assert!(ended.is_err(), "it polls forever");
        let changed = SECOND + POLL_INTERVAL * 3 / 2;
        let [(first, at_once), (next, later)] = updates.borrow()[..] else { panic!("{updates:?}") };
        assert_eq!((first, at_once, next), ("old", Duration::ZERO, "new"));
        assert!((changed + POLL_INTERVAL..changed + POLL_INTERVAL * 2).contains(&later), "{later:?}");
    }
}
