//! Owners of clusters, which are woken when a pool begins, ends, or has other endpoints.

use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use parking_lot::{Condvar, Mutex};

/// Has Envoy's main thread update the watcher soon. It is called from any thread.
pub(crate) type Wake = Arc<dyn Fn() + Send + Sync>;

static WATCHERS: Mutex<Watchers> = Mutex::new(Watchers { last_number: 0, last_change: 0, all: Vec::new() });

/// A watcher has followed a change, or has ended.
static FOLLOWED: Condvar = Condvar::new();

struct Watchers {
    last_number: u64,
    /// The number of changes of all pools so far.
    last_change: u64,
    all: Vec<Entry>,
}

struct Entry {
    number: u64,
    pool: Arc<str>,
    wake: Wake,
    /// The last change that the watcher knows.
    followed: u64,
}

/// Is woken at every change of the pools of one name, until it is dropped.
#[derive(Debug)]
pub(crate) struct Watcher(u64);

impl Watcher {
    /// A watcher of the pools that filter configurations have under this name.
    pub(crate) fn new(pool: &Arc<str>, wake: Wake) -> Self {
        let watchers = &mut *WATCHERS.lock();
        watchers.last_number += 1;
        let number = watchers.last_number;
        watchers.all.push(Entry { number, pool: Arc::clone(pool), wake, followed: 0 });
        Self(number)
    }

    /// The watcher has followed all changes up to this one.
    pub(crate) fn follow(&self, change: u64) {
        let mut watchers = WATCHERS.lock();
        if let Some(entry) = watchers.all.iter_mut().find(|entry| entry.number == self.0) {
            entry.followed = change;
        }
        FOLLOWED.notify_all();
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        WATCHERS.lock().all.retain(|entry| entry.number != self.0);
        FOLLOWED.notify_all();
    }
}

/// The number of the last change of any pool.
pub(crate) fn last_change() -> u64 {
    WATCHERS.lock().last_change
}

/// Wakes the watchers of this name. Returns the number of the change.
pub(crate) fn notify(pool: &str) -> u64 {
    let mut watchers = WATCHERS.lock();
    watchers.last_change += 1;
    watchers.all.iter().filter(|entry| *entry.pool == *pool).for_each(|entry| (entry.wake)());
    watchers.last_change
}

/// Waits until all watchers of this name have followed a change, for a time at most.
pub(crate) fn wait(pool: &str, change: u64, at_most: Duration) {
    let deadline = Instant::now() + at_most;
    let mut watchers = WATCHERS.lock();
    while watchers.all.iter().any(|entry| *entry.pool == *pool && entry.followed < change) {
        if FOLLOWED.wait_until(&mut watchers, deadline).timed_out() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{RecvTimeoutError, channel};
    use std::thread;

    use super::*;

    const SOON: Duration = Duration::from_secs(20);

    #[test]
    fn a_change_is_awaited_until_all_watchers_have_followed_it_or_ended() {
        let pool = Arc::<str>::from("watchers-1");
        let wake: Wake = Arc::new(|| {});
        let [first, second] = [(); 2].map(|()| Watcher::new(&pool, Arc::clone(&wake)));
        let change = notify(&pool);
        let (send, receive) = channel();
        let waiting = thread::spawn(move || {
            wait("watchers-1", change, SOON);
            send.send(()).unwrap();
        });
        first.follow(change);
        assert_eq!(receive.recv_timeout(Duration::from_millis(20)), Err(RecvTimeoutError::Timeout));
        drop(second);
        receive.recv_timeout(SOON).unwrap();
        waiting.join().unwrap();
    }

    #[test]
    fn a_wait_ends_in_time_and_concerns_one_pool() {
        let watcher = Watcher::new(&"watchers-2".into(), Arc::new(|| {}));
        let change = notify("watchers-2");
        wait("watchers-2", change, Duration::from_millis(10));
        wait("watchers-3", notify("watchers-3"), SOON * 1000);
        drop(watcher);
    }
}
