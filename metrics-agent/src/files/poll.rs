//! Detects changes of files by reading them again and comparing their content.
//!
//! The files are small, so polling costs next to nothing. Unlike notification it works with renames, symlinks that are swapped
//! as in a mounted `ConfigMap`, remounts, and every file system.

use core::time::Duration;

/// Time between two polls. A change is used when two polls agree on it, so a file that is being written in place is never used
/// half written.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Polls forever: calls `update` with the first content, and then with each change.
pub(crate) async fn poll<T, Read>(read: impl Fn() -> Read, update: impl Fn(&T))
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
    use super::*;
    use core::cell::{Cell, RefCell};
    use tokio::time::{Instant, sleep, timeout};

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
