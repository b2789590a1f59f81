//! Stores of a ledger, which carry its changes to every copy.

use core::time::Duration;
use std::sync::Arc;

use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::pool::Endpoints;
use endpoint_picker::pool::load::Load;
use endpoint_picker::pool::reading::Reading;
use endpoint_picker::state::ChangedReadings;

use super::{ChangeList, Ledger};

/// A store of a ledger, which carries changes to every copy of it.
///
/// The ledger is read inside closures, so that a lock can implement this trait too.
pub trait LedgerStore {
    /// Reads the ledger as it is now; it need not be up to date with its copies.
    fn read<T>(&self, read: impl FnOnce(&Ledger) -> T) -> T;

    /// Decides by a ledger that is up to date, and applies the changes that follow from the decision.
    ///
    /// When another copy routed a request at the same time, `decide` is called again, and only its second
    /// result counts.
    fn transact<T>(&mut self, decide: impl FnMut(&Ledger) -> (T, ChangeList)) -> T;

    /// Applies changes; with none it costs nothing.
    fn apply(&mut self, changes: ChangeList);

    /// Takes in new readings, in the pool's order: has plugins learn from them, and applies the restarts that
    /// they show, unless another copy has done so. `changed` are those that differ from the last call's.
    fn observe(&mut self, readings: &[Reading], changed: ChangedReadings<'_>);

    /// Follows a change of the pool or the policy, as [`Ledger::adopt`].
    fn adopt<'a>(
        &mut self,
        pool: Arc<Endpoints>,
        pipelines: impl IntoIterator<Item = &'a Pipeline>,
        avoid_failing: Duration,
    );
}

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
    pub fn set_loads(&mut self, loads: impl IntoIterator<Item = (u64, Load)>) {
        self.ledger.set_loads(SENDER, loads);
    }
}

impl LedgerStore for LocalLedger {
    fn read<T>(&self, read: impl FnOnce(&Ledger) -> T) -> T {
        read(&self.ledger)
    }

    fn transact<T>(&mut self, mut decide: impl FnMut(&Ledger) -> (T, ChangeList)) -> T {
        let (result, changes) = decide(&self.ledger);
        self.apply(changes);
        result
    }

    fn apply(&mut self, changes: ChangeList) {
        for change in &changes {
            self.ledger.apply(SENDER, change);
        }
    }

    fn observe(&mut self, readings: &[Reading], changed: ChangedReadings<'_>) {
        self.ledger.observe(readings, changed);
        let restarts = self.ledger.restarts_in(readings, changed);
        self.apply(restarts);
    }

    fn adopt<'a>(
        &mut self,
        pool: Arc<Endpoints>,
        pipelines: impl IntoIterator<Item = &'a Pipeline>,
        avoid_failing: Duration,
    ) {
        self.ledger.adopt(pool, pipelines, avoid_failing);
    }
}
