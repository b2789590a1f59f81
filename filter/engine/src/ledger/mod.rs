//! The state that changes with every request: plugin states, loads in flight, failures and restarts.
//!
//! A decision borrows the [`Ledger`] and returns [`Change`]s. They name endpoints and plugins by their keys, so they mean the
//! same to a copy with another list of endpoints. A [`LedgerStore`] applies them to the ledger, and to all of its copies in one
//! order, so all copies are equal.

mod change;
mod local;
mod responses;
mod state;
mod store;

pub use change::{Change, ChangeKind, changes_of};
pub use local::LocalLedger;
pub use responses::ResponseCounts;
pub use state::Ledger;
pub use store::LedgerStore;

#[cfg(test)]
mod tests;
