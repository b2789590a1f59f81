//! The keeper of a ledger, which carries its changes to every copy.

use core::time::Duration;
use std::sync::Arc;

use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::pool::Pool;
use endpoint_picker::pool::reading::Reading;

use super::change::Change;
use super::state::Ledger;

/// Keeps a ledger and carries changes to every copy of it.
///
/// The ledger is read inside closures, so that a lock can implement this trait too.
pub trait LedgerStore {
    /// Reads the ledger as it is now; it need not be up to date with its copies.
    fn read<T>(&self, read: impl FnOnce(&Ledger) -> T) -> T;

    /// Decides by a ledger that is up to date, and applies the changes that follow from the decision.
    ///
    /// When another copy routed a request at the same time, `decide` is called a second time and only its second result counts.
    fn transact<T>(&mut self, decide: impl FnMut(&Ledger) -> (T, Vec<Change>)) -> T;

    /// Applies changes; with none it costs nothing.
    fn apply(&mut self, changes: Vec<Change>);

    /// Takes in new readings, in the pool's order: applies the restarts that they show, unless another copy has done so.
    fn observe(&mut self, readings: &[Reading]);

    /// Follows a change of the pool or the policy, as [`Ledger::adopt`].
    fn adopt<'a>(
        &mut self,
        pool: Arc<Pool>,
        pipelines: impl IntoIterator<Item = &'a Pipeline>,
        avoid_failing: Duration,
    );
}
