//! A worker's access to a shared pool.

use std::sync::Arc;

use endpoint_picker_engine::ledger::{ChangeList, Ledger};
use endpoint_picker_engine::pool_view::PoolView;
use endpoint_picker_engine::prefix_caches::PrefixCaches;
use endpoint_picker_engine::queue::Queue;
use endpoint_picker_engine::sharing::{Imported, OwnChanges, PeerLedger};
use endpoint_picker_engine::worker_pool::store::PoolStore;

use super::SharedPool;
use crate::process::sync::Borrowed;

/// A worker's access to a [`SharedPool`]. Loads are counted by worker, so the loads of a worker that ends
/// vanish with it.
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
    type View = Borrowed<PoolView>;

    fn view(&self) -> Self::View {
        self.pool.borrowed_view()
    }

    fn read<T>(&self, read: impl FnOnce(&Ledger) -> T) -> T {
        self.pool.read(read)
    }

    fn is_failing(&self, endpoint: u64) -> bool {
        self.pool.is_failing(endpoint)
    }

    fn transact<T>(&mut self, decide: impl FnMut(&Arc<PoolView>, &Ledger) -> (T, ChangeList)) -> T {
        self.pool.transact(self.sender, decide)
    }

    fn apply(&mut self, changes: ChangeList) {
        self.pool.apply(self.sender, changes);
    }

    fn with_caches<T>(&self, read: impl FnOnce(&PrefixCaches) -> T) -> Option<T> {
        Some(self.pool.with_caches(read))
    }

    fn with_queue<T>(&self, run: impl FnOnce(&mut Queue) -> T) -> Option<T> {
        Some(self.pool.with_queue(run))
    }
}

impl PeerLedger for SharedStore {
    fn read<T>(&self, read: impl FnOnce(&Ledger) -> T) -> T {
        self.pool.read(read)
    }

    fn collect(&mut self, is_on: bool) {
        self.pool.set_collects(is_on);
    }

    fn take_own(&mut self) -> OwnChanges {
        self.pool.take_own()
    }

    fn import(&mut self, make: impl FnOnce(&Ledger) -> Vec<Imported>) {
        self.pool.import(make);
    }

    fn resend(&mut self) {
        self.pool.resend();
    }
}

impl Drop for SharedStore {
    fn drop(&mut self) {
        self.pool.forget(self.sender);
    }
}
