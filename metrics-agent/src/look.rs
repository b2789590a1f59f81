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
