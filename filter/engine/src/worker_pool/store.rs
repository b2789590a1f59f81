//! The keeper of a pool's view and ledger, which always have the same endpoints.

use core::ops::Deref;
use core::time::Duration;
use std::sync::Arc;

use endpoint_picker::fallback::Room;

use crate::ledger::{ChangeList, Ledger, LedgerStore};
use crate::pool_view::PoolView;
use crate::prefix_caches::PrefixCaches;
use crate::queue::Queue;

/// Keeps the view and the ledger of a pool.
///
/// A worker has its own copy of both ([`PoolCopy`]), or all workers share them. The ledger is read inside
/// closures, so that a lock can implement this trait too.
pub trait PoolStore {
    /// A view while it is read. Where workers share it, it is not counted among its owners: every worker
    /// would write the count for each request.
    type View: Deref<Target = Arc<PoolView>>;

    /// The newest view.
    fn view(&self) -> Self::View;

    /// Reads the ledger as it is now; it need not be up to date with its copies.
    fn read<T>(&self, read: impl FnOnce(&Ledger) -> T) -> T;

    /// Whether an endpoint has failed since it last served a generation, by its key.
    fn is_failing(&self, endpoint: u64) -> bool {
        self.read(|ledger| ledger.is_failing(endpoint))
    }

    /// Runs `decide` with a view and a ledger that are up to date and have the same endpoints, and applies
    /// the changes that it returns.
    ///
    /// When another worker routed a request at the same time, `decide` may be called a second time, and only
    /// its second result counts.
    fn transact<T>(&mut self, decide: impl FnMut(&Arc<PoolView>, &Ledger) -> (T, ChangeList)) -> T;

    /// Applies changes; with none it costs nothing.
    fn apply(&mut self, changes: ChangeList);

    /// Reads the caches of the pool's servers. `None`: this proxy does not follow them.
    fn with_caches<T>(&self, read: impl FnOnce(&PrefixCaches) -> T) -> Option<T> {
        let _ = read;
        None
    }

    /// Runs with the queue in front of the pool. Inside, view and ledger can be read. `None`: requests do not
    /// wait in this proxy.
    fn with_queue<T>(&self, run: impl FnOnce(&mut Queue) -> T) -> Option<T> {
        let _ = run;
        None
    }

    /// The same with a queue that has taken in the state of the pool.
    fn with_current_queue<T>(&self, now: Duration, run: impl FnOnce(&mut Queue) -> T) -> Option<T> {
        self.with_queue(|queue| {
            queue.follow(&self.view(), now);
            self.read(|ledger| queue.measure(ledger, now));
            run(queue)
        })
    }

    /// The room for a request of this priority; `None`: requests do not wait in this proxy.
    fn room(&self, priority: i32, now: Duration) -> Option<Room> {
        self.with_queue(|queue| {
            queue.follow(&self.view(), now);
            self.read(|ledger| queue.room(ledger, priority, now))
        })
    }
}

/// A keeper whose view its worker replaces. Where workers share a view, the thread that polls the agent
/// replaces it.
pub trait OwnStore: PoolStore {
    /// Replaces the view and has the ledger follow it. Returns the older view.
    fn adopt(&mut self, newer: Arc<PoolView>) -> Arc<PoolView>;
}

/// The view of a worker that has its own copy of it.
#[derive(Clone, Debug)]
pub struct OwnView(Arc<PoolView>);

impl Deref for OwnView {
    type Target = Arc<PoolView>;

    fn deref(&self) -> &Arc<PoolView> {
        &self.0
    }
}

/// A worker's own copy of the view and the ledger.
#[derive(Debug, Default)]
pub struct PoolCopy<L> {
    view: Arc<PoolView>,
    ledger: L,
}

impl<L> PoolCopy<L> {
    /// A copy before the first snapshot.
    pub fn new(ledger: L) -> Self {
        Self { view: Arc::default(), ledger }
    }

    /// The ledger's keeper.
    pub fn ledger(&self) -> &L {
        &self.ledger
    }

    /// The ledger's keeper.
    pub fn ledger_mut(&mut self) -> &mut L {
        &mut self.ledger
    }
}

impl<L: LedgerStore> PoolStore for PoolCopy<L> {
    type View = OwnView;

    fn view(&self) -> OwnView {
        OwnView(Arc::clone(&self.view))
    }

    fn read<T>(&self, read: impl FnOnce(&Ledger) -> T) -> T {
        self.ledger.read(read)
    }

    fn transact<T>(&mut self, mut decide: impl FnMut(&Arc<PoolView>, &Ledger) -> (T, ChangeList)) -> T {
        let Self { view, ledger } = self;
        ledger.transact(|ledger| decide(view, ledger))
    }

    fn apply(&mut self, changes: ChangeList) {
        self.ledger.apply(changes);
    }
}

impl<L: LedgerStore> OwnStore for PoolCopy<L> {
    fn adopt(&mut self, newer: Arc<PoolView>) -> Arc<PoolView> {
        let older = core::mem::replace(&mut self.view, newer);
        let topology = self.view.topology();
        if !Arc::ptr_eq(older.topology(), topology) {
            let pool = Arc::clone(self.view.pool());
            self.ledger.adopt(pool, topology.pipelines(), topology.policy.avoid_failing);
        }
        self.ledger.observe(self.view.readings(), self.view.changed_since(&older));
        older
    }
}
