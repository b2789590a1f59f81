//! One state of a pool for all threads of the process.
//!
//! A [`SharedPool`] is a [view](endpoint_picker_engine::pool_view) that never changes and is replaced as a
//! whole, and a [ledger](endpoint_picker_engine::ledger) behind a lock. Each worker decides through a
//! [`SharedStore`](store::SharedStore). There are no copies of the ledger, so nothing has to be carried
//! between workers.

#[cfg(test)]
#[cfg(feature = "loom")]
mod interleavings;
pub(crate) mod queue_thread;
pub mod store;
pub(crate) mod watchers;

use core::fmt;
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use core::time::Duration;
use std::sync::{Arc, OnceLock};
use std::thread::Thread;

use endpoint_picker::pool::Endpoints;
use endpoint_picker_engine::agent::PollError;
use endpoint_picker_engine::ledger::{Change, ChangeList, Ledger};
use endpoint_picker_engine::metrics::{SharingCounts, Totals};
use endpoint_picker_engine::pool_view::PoolView;
use endpoint_picker_engine::prefix_caches::{CachesUpdate, PrefixCaches, ServedModels};
use endpoint_picker_engine::queue::Queue;
use endpoint_picker_engine::record::RecordOutbox;
use endpoint_picker_engine::sharing::{Imported, Outbox, OwnChanges};
use parking_lot::RwLock;

use crate::process::sync::{Borrowed, Mutex, MutexGuard, Swap};

/// The sender of changes that are about no request, and so have no load.
const NO_SENDER: u64 = 0;

/// The view and the ledger of one pool, which all workers and listeners share.
///
/// The view is read without waiting. The ledger is behind a lock, and the view is replaced only under that
/// lock, so that view and ledger have the same endpoints there.
pub struct SharedPool {
    view: Swap<PoolView>,
    /// The endpoints of a view that is adopted next.
    announced: Mutex<Option<Arc<Endpoints>>>,
    ledger: Mutex<Ledger>,
    /// Whether an endpoint is failing: nearly every response asks, and nearly always none is. Written with
    /// the ledger.
    has_failing: AtomicBool,
    /// Requests that wait for the pool. Lock order: the queue before the ledger.
    queue: Mutex<Queue>,
    /// The thread that ticks the queue while requests wait in it.
    ticker: OnceLock<Thread>,
    /// The number of senders so far.
    senders: AtomicU64,
    /// Changes for other proxies, and whether there are any to collect for.
    outbox: Mutex<Outbox>,
    collects: AtomicBool,
    polls: PollCounts,
    sharing: Mutex<SharingTotals>,
    totals: Mutex<Totals>,
    /// The caches of the servers. No other lock is taken under it.
    caches: RwLock<PrefixCaches>,
    /// Finished requests that are recorded.
    records: Arc<RecordOutbox>,
}

/// Polls for snapshots: the counts that no metric has yet, and the format that agents had.
#[derive(Debug, Default)]
struct PollCounts {
    published: AtomicU64,
    failed: AtomicU64,
    topologies: AtomicU64,
    /// Whether a poll has failed because of the agent's format.
    has_met_other_format: AtomicBool,
}

/// Exchanges with other proxies that no metric counts yet.
#[derive(Default)]
struct SharingTotals {
    counts: SharingCounts,
    /// The number of proxies whose changes arrive.
    proxies: usize,
}

/// Polls for snapshots, by their outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Polls {
    /// A snapshot arrived that can be used.
    pub published: u64,
    /// The poll failed.
    pub failed: u64,
    /// A snapshot arrived with other endpoints or another policy.
    pub topologies: u64,
}

impl fmt::Debug for SharedPool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedPool").field("polls", &self.polls).finish_non_exhaustive()
    }
}

impl Default for SharedPool {
    /// A pool before its first snapshot.
    fn default() -> Self {
        Self {
            view: Swap::new(Arc::default()),
            announced: Mutex::default(),
            ledger: Mutex::default(),
            has_failing: AtomicBool::new(false),
            queue: Mutex::default(),
            ticker: OnceLock::new(),
            senders: AtomicU64::new(NO_SENDER),
            outbox: Mutex::default(),
            collects: AtomicBool::new(false),
            polls: PollCounts::default(),
            sharing: Mutex::default(),
            totals: Mutex::default(),
            caches: RwLock::default(),
            records: Arc::default(),
        }
    }
}

impl SharedPool {
    /// A new sender's number, from 1.
    fn new_sender(&self) -> u64 {
        self.senders.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// The newest view. It never waits.
    pub fn view(&self) -> Arc<PoolView> {
        self.view.get()
    }

    /// The newest view, for the time of one event.
    fn borrowed_view(&self) -> Borrowed<PoolView> {
        self.view.borrow()
    }

    /// Finished requests that are recorded.
    pub(crate) fn records(&self) -> &Arc<RecordOutbox> {
        &self.records
    }

    /// Announces the endpoints of a view that is adopted next.
    pub(crate) fn announce(&self, next: &Arc<Endpoints>) {
        *self.announced.lock() = Some(Arc::clone(next));
    }

    /// The endpoints of the newest view and of an announced one; nothing before the first snapshot.
    pub(crate) fn described(&self) -> Vec<Arc<Endpoints>> {
        // In this order, because an announced view may be adopted between the two reads.
        let announced = self.announced.lock().clone();
        let view = self.view();
        let adopted = view.versions().map(|_| Arc::clone(view.pool()));
        announced.into_iter().chain(adopted).collect()
    }

    /// Reads the ledger.
    pub fn read<T>(&self, read: impl FnOnce(&Ledger) -> T) -> T {
        read(&self.ledger.lock())
    }

    /// Whether this endpoint is failing.
    fn is_failing(&self, endpoint: u64) -> bool {
        self.has_failing.load(Ordering::Relaxed) && self.read(|ledger| ledger.is_failing(endpoint))
    }

    /// Gives the lock of a ledger free that has changed.
    fn end_change(&self, ledger: MutexGuard<'_, Ledger>) {
        let has_failing = ledger.has_failing();
        if self.has_failing.load(Ordering::Relaxed) != has_failing {
            self.has_failing.store(has_failing, Ordering::Relaxed);
        }
        drop(ledger);
    }

    /// Decides by a newer view from now on, and applies the restarts that its readings show. Returns the
    /// older view.
    pub fn adopt(&self, newer: Arc<PoolView>) -> Arc<PoolView> {
        let known = self.view();
        // Compares all changed readings, so it runs before the lock is taken.
        let has_known_marks = newer.has_marks_of(&known);
        let mut ledger = self.ledger.lock();
        let older = self.view.get();
        let topology = newer.topology();
        if !Arc::ptr_eq(older.topology(), topology) {
            let pool = Arc::clone(newer.pool());
            ledger.adopt(pool, topology.pipelines(), topology.policy.avoid_failing);
        }
        ledger.observe(newer.readings(), newer.changed_since(&older));
        // The search for restarts takes far longer than all other work under the lock, so it is left out
        // unless marks have changed or another thread has replaced the view.
        let restarts = if has_known_marks && Arc::ptr_eq(&known, &older) {
            ChangeList::new()
        } else {
            ledger.restarts_in(newer.readings(), newer.changed_since(&older))
        };
        apply(&mut ledger, NO_SENDER, &restarts);
        self.view.set(newer);
        self.end_change(ledger);
        // Last, so that `described` has these endpoints at any time.
        self.announced.lock().take();
        self.collect(restarts);
        older
    }

    /// Runs with the queue in front of the pool. Wakes the thread that ticks it if a request begins to wait.
    fn with_queue<T>(&self, run: impl FnOnce(&mut Queue) -> T) -> T {
        let mut queue = self.queue.lock();
        let was_idle = queue.wake_at().is_none();
        let result = run(&mut queue);
        let begins = was_idle && queue.wake_at().is_some();
        drop(queue);
        if let Some(ticker) = self.ticker.get().filter(|_| begins) {
            ticker.unpark();
        }
        result
    }

    /// This thread ticks the queue from now on. It is unparked when a request begins to wait.
    pub(crate) fn set_ticker(&self, thread: Option<&Thread>) {
        if let Some(thread) = thread {
            let _ = self.ticker.set(thread.clone());
        }
    }

    /// Counts a snapshot that arrived and can be used.
    pub(crate) fn count_snapshot(&self) {
        self.polls.published.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a change of endpoints or policy.
    pub(crate) fn count_topology(&self) {
        self.polls.topologies.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a poll that failed for this reason.
    pub(crate) fn count_failed_poll(&self, reason: &PollError) {
        self.polls.failed.fetch_add(1, Ordering::Relaxed);
        if reason.is_of_other_format() {
            self.polls.has_met_other_format.store(true, Ordering::Relaxed);
        }
    }

    /// Whether an agent of another format has responded: agents are being upgraded, or rolled back.
    pub(crate) fn has_met_other_format(&self) -> bool {
        self.polls.has_met_other_format.load(Ordering::Relaxed)
    }

    /// The polls since the last call. The caller adds them to the proxy's metrics.
    pub fn take_polls(&self) -> Polls {
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        let PollCounts { published, failed, topologies, .. } = &self.polls;
        Polls { published: take(published), failed: take(failed), topologies: take(topologies) }
    }

    /// Counts messages that were exchanged with other proxies. `proxies` is the number of proxies whose
    /// changes arrive.
    pub(crate) fn count_sharing(&self, counts: SharingCounts, proxies: usize) {
        let mut totals = self.sharing.lock();
        totals.counts += counts;
        totals.proxies = proxies;
    }

    /// The exchanged messages since the last call, and the number of proxies whose changes arrive.
    pub(crate) fn take_sharing(&self) -> (SharingCounts, usize) {
        let mut totals = self.sharing.lock();
        (core::mem::take(&mut totals.counts), totals.proxies)
    }

    /// Reads the caches of the servers.
    fn with_caches<T>(&self, read: impl FnOnce(&PrefixCaches) -> T) -> T {
        read(&self.caches.read())
    }

    /// Applies an update of the caches, step by step, so that a decision waits for a single step. `None`:
    /// they have not changed.
    pub(crate) fn update_caches(
        &self,
        update: Option<&CachesUpdate>,
        models: Option<&Arc<ServedModels>>,
        now: Duration,
    ) {
        for step in update.into_iter().flat_map(|update| update.steps(models)) {
            let forgotten = self.caches.write().apply(&step);
            // The lock is free again.
            drop(forgotten);
        }
        self.caches.write().mark_updated(now);
    }

    /// The counts of all workers for the next report, as [`Self::set_totals`] has set them.
    pub fn totals(&self) -> Totals {
        self.totals.lock().clone()
    }

    /// Replaces the counts for the next report.
    pub fn set_totals(&self, totals: Totals) {
        *self.totals.lock() = totals;
    }

    /// Decides by a view and a ledger of the same endpoints, and applies the changes that follow before
    /// anything else is decided.
    fn transact<T>(
        &self,
        sender: u64,
        mut decide: impl FnMut(&Arc<PoolView>, &Ledger) -> (T, ChangeList),
    ) -> T {
        let mut ledger = self.ledger.lock();
        let (result, changes) = decide(&self.view.borrow(), &ledger);
        apply(&mut ledger, sender, &changes);
        self.end_change(ledger);
        // The changes are freed without the lock.
        self.collect(changes);
        result
    }

    fn apply(&self, sender: u64, changes: ChangeList) {
        if !changes.is_empty() {
            let mut ledger = self.ledger.lock();
            apply(&mut ledger, sender, &changes);
            self.end_change(ledger);
            self.collect(changes);
        }
    }

    /// Keeps changes of this proxy for others.
    fn collect(&self, changes: ChangeList) {
        if self.collects.load(Ordering::Relaxed) && changes.iter().any(Outbox::wants) {
            let mut outbox = self.outbox.lock();
            for change in changes {
                outbox.push(change);
            }
        }
    }

    /// Collects changes for other proxies from now on, or stops doing so.
    fn set_collects(&self, is_on: bool) {
        self.outbox.lock().open(is_on);
        self.collects.store(is_on, Ordering::Relaxed);
    }

    /// Takes the changes of this proxy since the last call.
    fn take_own(&self) -> OwnChanges {
        self.outbox.lock().take()
    }

    /// Applies changes of other proxies.
    fn import(&self, make: impl FnOnce(&Ledger) -> Vec<Imported>) {
        let mut ledger = self.ledger.lock();
        let imported = make(&ledger);
        for imported in &imported {
            imported.apply_to(&mut ledger);
        }
        self.end_change(ledger);
        // The changes are freed here, without the lock.
        drop(imported);
    }

    /// Has the next decisions send every prompt in full.
    fn resend(&self) {
        self.ledger.lock().resend();
    }

    /// Drops all loads of a worker that ended.
    fn forget(&self, sender: u64) {
        self.ledger.lock().forget_sender(sender);
    }
}

fn apply(ledger: &mut Ledger, sender: u64, changes: &[Change]) {
    for change in changes {
        ledger.apply(sender, change);
    }
}

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use endpoint_picker_engine::pool_view::Topology;
    use endpoint_picker_wire::v1;

    use super::*;

    const START: Duration = Duration::from_secs(1_000);

    #[test]
    fn a_restart_is_found_behind_snapshots_without_one() {
        let address = "10.0.0.1:8000".to_owned();
        let endpoint = v1::Endpoint { name: "a".to_owned(), address, labels: vec![] };
        let message = v1::Topology { pool: "p".to_owned(), endpoints: vec![endpoint], policy: None };
        let topology = Arc::new(Topology::compile(message).unwrap());
        let endpoint = topology.pool.as_slice()[0].key();
        let pool = SharedPool::default();
        for (seconds, is_scraped) in [(100, true), (100, false), (100, true), (200, true), (200, true)] {
            let mark = Duration::from_secs(seconds);
            let reading = v1::Reading {
                age_ms: is_scraped.then_some(0),
                cached_since_ms: Some(seconds * 1000),
                ..v1::Reading::default()
            };
            let snapshot = v1::Snapshot { readings: vec![reading], ..v1::Snapshot::default() };
            pool.adopt(Arc::new(PoolView::new(Arc::clone(&topology), snapshot, START)));
            assert_eq!(pool.read(|ledger| ledger.cached_since(endpoint)), Some(mark));
        }
    }
}
