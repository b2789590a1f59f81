//! A store with a queue, for one thread.

use std::cell::RefCell;
use std::sync::Arc;

use endpoint_picker_engine::ledger::{ChangeList, Ledger, LocalLedger};
use endpoint_picker_engine::pool_view::PoolView;
use endpoint_picker_engine::prefix_caches::PrefixCaches;
use endpoint_picker_engine::queue::Queue;
use endpoint_picker_engine::worker_pool::store::{OwnStore, OwnView, PoolCopy, PoolStore};

/// A view and a ledger in one place, with a queue in front of them.
#[derive(Debug, Default)]
pub(crate) struct QueueingStore {
    copy: PoolCopy<LocalLedger>,
    queue: RefCell<Queue>,
    pub(crate) caches: RefCell<PrefixCaches>,
}

impl PoolStore for QueueingStore {
    type View = OwnView;

    fn view(&self) -> Self::View {
        self.copy.view()
    }

    fn read<T>(&self, read: impl FnOnce(&Ledger) -> T) -> T {
        self.copy.read(read)
    }

    fn transact<T>(&mut self, decide: impl FnMut(&Arc<PoolView>, &Ledger) -> (T, ChangeList)) -> T {
        self.copy.transact(decide)
    }

    fn apply(&mut self, changes: ChangeList) {
        self.copy.apply(changes);
    }

    fn with_caches<T>(&self, read: impl FnOnce(&PrefixCaches) -> T) -> Option<T> {
        Some(read(&self.caches.borrow()))
    }

    fn with_queue<T>(&self, run: impl FnOnce(&mut Queue) -> T) -> Option<T> {
        Some(run(&mut self.queue.borrow_mut()))
    }
}

impl OwnStore for QueueingStore {
    fn adopt(&mut self, newer: Arc<PoolView>) -> Arc<PoolView> {
        self.copy.adopt(newer)
    }
}
