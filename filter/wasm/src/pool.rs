//! The pool of a VM, and the pool of all VMs, which the VM with the lease keeps up to date.

use core::time::Duration;
use std::sync::{Arc, LazyLock};

use endpoint_picker_engine::agent::{NewSnapshot, PollError};
use endpoint_picker_engine::budget::UsedBytes;
use endpoint_picker_engine::link::LinkedPool;
use endpoint_picker_engine::metrics::{SharingCounts, Totals};
use endpoint_picker_engine::proxy::Result;
use endpoint_picker_engine::record::RecordOutbox;
use endpoint_picker_engine::worker_pool::WorkerPool;
use endpoint_picker_engine::worker_pool::store::PoolCopy;
use endpoint_picker_wire::statistics::Count;
use endpoint_picker_workers::{Replica, SharedSnapshot};

use crate::host::Envoy;

/// The bytes that all pools of this VM hold of request bodies.
pub(crate) static HELD_BODIES: LazyLock<Arc<UsedBytes>> = LazyLock::new(Arc::default);

/// The pool that all streams of a VM use.
pub(crate) type Pool = WorkerPool<PoolCopy<Replica<Envoy>>, Envoy>;

/// This VM's copy of the pool, and the snapshot that all VMs share.
pub(crate) struct LinkedVms<'a> {
    pub(crate) pool: &'a mut Pool,
    pub(crate) snapshot: &'a SharedSnapshot,
}

impl LinkedPool for LinkedVms<'_> {
    type Store = PoolCopy<Replica<Envoy>>;
    type Peer = Replica<Envoy>;

    fn store(&self) -> &Self::Store {
        self.pool.store()
    }

    fn peer(&mut self) -> &mut Self::Peer {
        self.pool.store_mut().ledger_mut()
    }

    fn totals(&self) -> Totals {
        self.pool.totals()
    }

    fn records(&self) -> &RecordOutbox {
        self.pool.records()
    }

    fn publish(&mut self, newer: NewSnapshot<'_>, now: Duration) -> Result<()> {
        let Some(versions) = newer.view.versions() else { return Ok(()) };
        self.snapshot.publish(&Envoy, newer.bytes, versions.readings, newer.has_topology, now)
    }

    fn count_snapshot(&mut self) {
        self.pool.metrics.count(Count::Snapshots);
    }

    fn count_failed_poll(&mut self, _reason: &PollError) {
        self.pool.metrics.count(Count::SnapshotFailures);
    }

    fn count_sharing(&mut self, counts: SharingCounts, proxies: usize) {
        self.pool.metrics.count_sharing(counts, proxies);
    }
}
