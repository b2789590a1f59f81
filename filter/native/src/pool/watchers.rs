//! Clusters that watch pools: they are woken when a pool begins, ends, or has other endpoints.

use core::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};

use crate::process::subscribers::{Subscribers, Subscription};

/// Has Envoy's main thread update the watcher soon. It is called from any thread.
pub(crate) type Wake = Arc<dyn Fn() + Send + Sync>;

static WATCHERS: LazyLock<Arc<Subscribers<Watcher>>> = LazyLock::new(Arc::default);

/// The number of changes of all pools so far.
static LAST_CHANGE: AtomicU64 = AtomicU64::new(0);

/// The owner of a cluster.
pub(crate) struct Watcher {
    pool: Arc<str>,
    wake: Wake,
    /// The last change that the watcher knows.
    followed: u64,
}

impl Watcher {
    /// Subscribes to every change of the pools that filter configurations have under this name.
    pub(crate) fn subscribe(pool: &Arc<str>, wake: Wake) -> Subscription<Self> {
        WATCHERS.add(Self { pool: Arc::clone(pool), wake, followed: 0 })
    }

    /// Notes that the watcher has followed all changes up to this number.
    pub(crate) fn follow(&mut self, change: u64) {
        self.followed = change;
    }
}

/// The number of the last change of any pool.
pub(crate) fn last_change() -> u64 {
    LAST_CHANGE.load(Ordering::SeqCst)
}

/// Wakes the watchers of this name. Returns the number of the change.
pub(crate) fn notify(pool: &str) -> u64 {
    let change = LAST_CHANGE.fetch_add(1, Ordering::SeqCst) + 1;
    WATCHERS.for_each(|watcher| {
        if *watcher.pool == *pool {
            (watcher.wake)();
        }
    });
    change
}

/// Whether all watchers of this name have followed a change.
pub(crate) fn have_followed(pool: &str, change: u64) -> bool {
    WATCHERS.all(|watcher| *watcher.pool != *pool || watcher.followed >= change)
}
