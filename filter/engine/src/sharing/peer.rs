//! A ledger that takes part in sharing.

use super::importer::Imported;
use super::outbox::OwnChanges;
use crate::ledger::Ledger;

/// A ledger that shares its changes with those of other proxies.
pub trait PeerLedger {
    /// Reads the ledger.
    fn read<T>(&self, read: impl FnOnce(&Ledger) -> T) -> T;

    /// Collects this proxy's changes from now on, or stops doing so.
    fn collect(&mut self, is_on: bool);

    /// Takes this proxy's changes since the last call.
    fn take_own(&mut self) -> OwnChanges;

    /// Applies changes of other proxies, which `make` takes from the ledger as it is now.
    fn import(&mut self, make: impl FnOnce(&Ledger) -> Vec<Imported>);

    /// Has the next decisions send every prompt in full, because another proxy has missed changes.
    fn resend(&mut self);
}
