//! Owners of clusters, which are woken when a pool begins, ends, or has other endpoints.

use std::sync::Arc;

use parking_lot::Mutex;

/// Has Envoy's main thread update the watcher soon. It is called from any thread.
pub(crate) type Wake = Arc<dyn Fn() + Send + Sync>;

static WATCHERS: Mutex<Watchers> = Mutex::new(Watchers { last_number: 0, last_change: 0, all: Vec::new() });

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
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        WATCHERS.lock().all.retain(|entry| entry.number != self.0);
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

/// Whether all watchers of this name have followed a change.
pub(crate) fn have_followed(pool: &str, change: u64) -> bool {
    WATCHERS.lock().all.iter().all(|entry| *entry.pool != *pool || entry.followed >= change)
}
