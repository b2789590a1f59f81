//! A ledger without copies.

use core::time::Duration;
use std::sync::Arc;

use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::pool::Pool;
use endpoint_picker::pool::reading::Reading;

use super::change::Change;
use super::state::Ledger;
use super::store::LedgerStore;

/// The only sender.
const SENDER: u64 = 0;

/// A ledger without copies: for tests, simulations and tools, and for a proxy that decides in one place.
#[derive(Debug, Default)]
pub struct LocalLedger {
    ledger: Ledger,
}

impl LocalLedger {
    /// The ledger.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Replaces everything that is in flight: keys of endpoints with the load there.
    pub fn set_loads(&mut self, loads: impl IntoIterator<Item = (u64, endpoint_picker::pool::load::Load)>) {
        self.ledger.set_loads(SENDER, loads);
    }
}

impl LedgerStore for LocalLedger {
    fn read<T>(&self, read: impl FnOnce(&Ledger) -> T) -> T {
        read(&self.ledger)
    }

    fn transact<T>(&mut self, mut decide: impl FnMut(&Ledger) -> (T, Vec<Change>)) -> T {
        let (result, changes) = decide(&self.ledger);
        self.apply(changes);
        result
    }

    fn apply(&mut self, changes: Vec<Change>) {
        for change in &changes {
            self.ledger.apply(SENDER, change);
        }
    }

    fn observe(&mut self, readings: &[Reading]) {
        let restarts = self.ledger.restarts_in(readings);
        self.apply(restarts);
    }

    fn adopt<'a>(
        &mut self,
        pool: Arc<Pool>,
        pipelines: impl IntoIterator<Item = &'a Pipeline>,
        avoid_failing: Duration,
    ) {
        self.ledger.adopt(pool, pipelines, avoid_failing);
    }
}
