//! A worker's access to a shared pool.

use std::sync::Arc;

use endpoint_picker_engine::ledger::{Change, Ledger};
use endpoint_picker_engine::pool_store::PoolStore;
use endpoint_picker_engine::pool_view::PoolView;

use super::pool::SharedPool;

/// A worker's access to a [`SharedPool`]. Loads are counted by worker, so those of one that ends vanish with it.
#[derive(Debug)]
pub struct SharedStore {
    pool: Arc<SharedPool>,
    sender: u64,
}

impl SharedStore {
    /// The store of one more worker.
    pub fn new(pool: &Arc<SharedPool>) -> Self {
        Self { sender: pool.new_sender(), pool: Arc::clone(pool) }
    }

    /// The pool.
    pub fn pool(&self) -> &SharedPool {
        &self.pool
    }
}

impl PoolStore for SharedStore {
    fn view(&self) -> Arc<PoolView> {
        self.pool.view()
    }

    fn read<T>(&self, read: impl FnOnce(&Ledger) -> T) -> T {
        self.pool.read(read)
    }

    fn decide<T>(&mut self, decide: impl FnMut(&Arc<PoolView>, &Ledger) -> (T, Vec<Change>)) -> T {
        self.pool.decide(self.sender, decide)
    }

    fn apply(&mut self, changes: Vec<Change>) {
        self.pool.apply(self.sender, &changes);
    }

    fn adopt(&mut self, newer: Arc<PoolView>) -> Arc<PoolView> {
        self.pool.adopt(newer)
    }
}

impl Drop for SharedStore {
    fn drop(&mut self) {
        self.pool.forget(self.sender);
    }
}
