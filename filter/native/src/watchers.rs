//! Those that are woken when a pool has other endpoints.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::users::Wake;

static WATCHERS: Mutex<Watchers> = Mutex::new(Watchers { last_number: 0, all: Vec::new() });

struct Watchers {
    last_number: u64,
    /// Number, pool and wake of each.
    all: Vec<(u64, Arc<str>, Wake)>,
}

/// Wakes its owner when a pool has other endpoints, until it is dropped.
#[derive(Debug)]
pub(crate) struct Watcher(u64);

impl Watcher {
    pub(crate) fn new(pool: &Arc<str>, wake: Wake) -> Self {
        let watchers = &mut *WATCHERS.lock();
        watchers.last_number += 1;
        watchers.all.push((watchers.last_number, Arc::clone(pool), wake));
        Self(watchers.last_number)
    }
}

impl Drop for Watcher {
    fn drop(&mut self) {
        WATCHERS.lock().all.retain(|(number, ..)| *number != self.0);
    }
}

/// The pool of this name has other endpoints.
pub(crate) fn notify(pool: &str) {
    for (_, _, wake) in WATCHERS.lock().all.iter().filter(|(_, watched, _)| **watched == *pool) {
        wake();
    }
}
