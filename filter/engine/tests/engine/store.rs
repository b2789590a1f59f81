//! A store with a queue, for one thread.

use std::cell::RefCell;
use std::sync::Arc;

use endpoint_picker_engine::ledger::{Change, Ledger, LocalLedger};
use endpoint_picker_engine::pool_store::{PoolCopy, PoolStore};
use endpoint_picker_engine::pool_view::PoolView;
use endpoint_picker_engine::queue::Queue;

/// A view and a ledger in one place, with a queue in front of them.
#[derive(Debug, Default)]
pub(crate) struct QueueingStore {
    copy: PoolCopy<LocalLedger>,
    queue: RefCell<Queue>,
}

impl PoolStore for QueueingStore {
    fn view(&self) -> Arc<PoolView> {
        self.copy.view()
    }

    fn read<T>(&self, read: impl FnOnce(&Ledger) -> T) -> T {
        self.copy.read(read)
    }

    fn decide<T>(&mut self, decide: impl FnMut(&Arc<PoolView>, &Ledger) -> (T, Vec<Change>)) -> T {
        self.copy.decide(decide)
    }

    fn apply(&mut self, changes: Vec<Change>) {
        self.copy.apply(changes);
    }

    fn adopt(&mut self, newer: Arc<PoolView>) -> Arc<PoolView> {
        self.copy.adopt(newer)
    }

    fn with_queue<T>(&self, run: impl FnOnce(&mut Queue) -> T) -> Option<T> {
        Some(run(&mut self.queue.borrow_mut()))
    }
}
