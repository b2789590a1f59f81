//! Noticing that files changed.
//!
//! They are read again and again and their content compared. They are small, so that costs next to nothing, and it needs no
//! care for renames, symlinks swapped as in a mounted `ConfigMap`, remounts, or file systems without notification.

use core::time::Duration;

/// Time between two looks. A change is used when two looks agree on it, so a file that is being written in place is
/// not used half written.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Takes what `look` sees first, and from then on each change, for ever.
pub(crate) async fn follow<T, Look>(look: impl Fn() -> Look, take: impl Fn(&T))
where
    T: Clone + PartialEq,
    Look: Future<Output = T>,
{
    let first = look().await;
    take(&first);
    follow_from(first, look, take).await;
}

/// Takes each change from what was seen before, for ever.
pub(crate) async fn follow_from<T, Look>(seen: T, look: impl Fn() -> Look, take: impl Fn(&T))
where
    T: Clone + PartialEq,
    Look: Future<Output = T>,
{
    let mut used = seen;
    let mut last = used.clone();
    loop {
        tokio::time::sleep(LOOK_EVERY).await;
        let now = look().await;
        if now == last && now != used {
            take(&now);
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
    async fn a_change_is_taken_within_two_looks_and_one_that_is_half_done_never() {
        const SECOND: Duration = Duration::from_secs(1);
        let (shown, taken) = (Cell::new("old"), RefCell::new(Vec::new()));
        let begin = Instant::now();
        let follows = follow(
            || core::future::ready(shown.get()),
            |seen| taken.borrow_mut().push((*seen, begin.elapsed())),
        );
        let changes = async {
            // Midway between two looks, so that the next look sees each.
            sleep(SECOND + LOOK_EVERY / 2).await;
            shown.set("half");
            sleep(LOOK_EVERY).await;
            shown.set("new");
        };
        let (ended, ()) = tokio::join!(timeout(2 * SECOND, follows), changes);
        assert!(ended.is_err(), "it follows for ever");
        let changed = SECOND + LOOK_EVERY * 3 / 2;
        let [(first, at_once), (next, later)] = taken.borrow()[..] else { panic!("{taken:?}") };
        assert_eq!((first, at_once, next), ("old", Duration::ZERO, "new"));
        assert!((changed + LOOK_EVERY..changed + LOOK_EVERY * 2).contains(&later), "{later:?}");
    }
}
