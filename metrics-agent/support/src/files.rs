//! Small files: the limit on their size, and polling for changes.

use core::fmt;
use core::time::Duration;
use std::io::{self, Read};
use std::path::Path;

/// Maximum number of bytes of a file that the agent reads, and of all manifests together: 10 000 endpoints
/// with four labels each take half of it. The EPP reads endpoints files of up to 1 MiB.
pub const MAX_BYTES: usize = 4 * 1024 * 1024;

/// Reads a file, but at most one byte more than [`MAX_BYTES`]: enough to detect that it is too large.
pub fn read(path: &Path) -> Result<Vec<u8>, ReadError> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)
        .and_then(|file| file.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes))
        .map_err(ReadError::Io)?;
    if bytes.len() > MAX_BYTES { Err(ReadError::TooLarge) } else { Ok(bytes) }
}

/// A message for an error of YAML, whose library bounds a text: 250 000 maps, lists and values.
pub fn yaml_problem(error: &serde_saphyr::Error) -> String {
    format!("neither YAML nor JSON: {error}")
}

/// Why a file was not read.
#[derive(Debug)]
pub enum ReadError {
    /// It cannot be read.
    Io(io::Error),
    /// It has more than [`MAX_BYTES`].
    TooLarge,
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => write!(f, "cannot be read: {error}"),
            Self::TooLarge => write!(f, "is larger than the allowed {MAX_BYTES} bytes"),
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
