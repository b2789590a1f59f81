//! A ledger that shares, in one place.

use core::time::Duration;
use std::sync::Arc;

use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::pool::Pool;

use super::importer::Imported;
use super::outbox::{Outbox, OwnChanges};
use super::peer::PeerLedger;
use crate::ledger::{Change, Ledger};

/// This proxy's only worker.
const WORKER: u64 = 0;

/// A ledger in one place that takes part in sharing: for tests, simulations and tools.
#[derive(Debug, Default)]
pub struct LocalPeer {
    ledger: Ledger,
    outbox: Outbox,
}

impl LocalPeer {
    /// A ledger of this pool for the plugins of this pipeline. An endpoint that fails is first avoided for `avoid_failing`.
    pub fn new(pool: Arc<Pool>, pipeline: &Pipeline, avoid_failing: Duration) -> Self {
        let mut peer = Self::default();
        peer.ledger.adopt(pool, [pipeline], avoid_failing);
        peer
    }

    /// The ledger.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Applies changes of this proxy.
    pub fn apply(&mut self, changes: impl IntoIterator<Item = Change>) {
        for change in changes {
            self.ledger.apply(WORKER, &change);
            self.outbox.push(change);
        }
    }
}

impl PeerLedger for LocalPeer {
    fn read<T>(&self, read: impl FnOnce(&Ledger) -> T) -> T {
        read(&self.ledger)
    }

    fn collect(&mut self, is_on: bool) {
        self.outbox.open(is_on);
    }

    fn take_own(&mut self) -> OwnChanges {
        self.outbox.take()
    }

    fn import(&mut self, make: impl FnOnce(&Ledger) -> Vec<Imported>) {
        for imported in make(&self.ledger) {
            imported.apply_to(&mut self.ledger);
        }
    }

    fn resend(&mut self) {
        self.ledger.resend();
    }
}
