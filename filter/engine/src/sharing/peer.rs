//! Ledgers that take part in sharing, and the changes that wait there until they are sent.

use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::pool::Endpoints;
use endpoint_picker::pool::reading::Reading;
use endpoint_picker::state::ChangedReadings;
#[cfg(feature = "testing")]
use endpoint_picker::state::PluginState;

use super::importer::Imported;
use crate::ledger::{Change, ChangeKind, ChangeList, Ledger, LedgerStore};

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

/// Maximum number of words in the waiting changes, as [`weight`] counts them: half a megabyte, the prompts of
/// some seconds.
const MAX_WORDS: usize = 1 << 16;

/// This proxy's own changes, until they are sent to the agent. Loads are not among them: their sums are read
/// from the ledger.
#[derive(Debug, Default)]
pub struct Outbox {
    is_open: bool,
    changes: VecDeque<Change>,
    words: usize,
    has_lost: bool,
}

/// Changes that an [`Outbox`] has collected.
#[derive(Debug, Default)]
pub struct OwnChanges {
    /// The changes, oldest first.
    pub changes: Vec<Change>,
    /// Whether older changes were dropped, because there were too many.
    pub has_lost: bool,
}

impl Outbox {
    /// Collects changes from now on, or drops all and collects none.
    pub fn open(&mut self, is_open: bool) {
        // Another worker sends now, or no agent shares: waiting changes would grow stale.
        if !is_open {
            *self = Self::default();
        }
        self.is_open = is_open;
    }

    /// Whether changes are collected.
    pub fn is_open(&self) -> bool {
        self.is_open
    }

    /// Whether a change has an effect on the outbox: it is collected, or it drops waiting changes.
    pub fn wants<Words>(change: &Change<Words>) -> bool {
        let Change::Endpoint { kind, .. } = change else { return true };
        match kind {
            // A proxy whose own clients prove nothing about an endpoint learns from others that it works
            // again.
            ChangeKind::Failed { .. } | ChangeKind::Recovered { .. } | ChangeKind::Restarted { .. } => true,
            ChangeKind::Served { .. }
            | ChangeKind::Cached(_)
            | ChangeKind::Started(_)
            | ChangeKind::Ended(_)
            | ChangeKind::Moved { .. }
            | ChangeKind::InFlight(_) => false,
        }
    }

    /// Adds a change that this proxy made. The oldest are dropped when there are too many.
    pub fn push(&mut self, change: Change) {
        if !self.is_open || !Self::wants(&change) {
            return;
        }
        if let Change::Endpoint { endpoint, kind: ChangeKind::Restarted { .. } } = change {
            // Prompts that were sent before the restart are no longer in the endpoint's caches. The restart
            // itself is not sent: every proxy finds it in the readings.
            self.changes.retain(|other| other.endpoint() != endpoint);
            self.words = self.changes.iter().map(weight).sum();
            return;
        }
        self.words += weight(&change);
        self.changes.push_back(change);
        while self.words > MAX_WORDS {
            let Some(oldest) = self.changes.pop_front() else { return };
            self.words -= weight(&oldest);
            self.has_lost = true;
        }
    }

    /// Takes the changes that wait.
    pub fn take(&mut self) -> OwnChanges {
        self.words = 0;
        OwnChanges {
            changes: core::mem::take(&mut self.changes).into(),
            has_lost: core::mem::take(&mut self.has_lost),
        }
    }
}

/// The words of 64 bits that a change takes, about.
fn weight(change: &Change) -> usize {
    const HEAD: usize = 4;
    match change {
        Change::State(change) => HEAD + change.words.len(),
        Change::Endpoint { .. } => HEAD,
    }
}

/// This proxy's only worker.
const WORKER: u64 = 0;

/// A ledger in one place that takes part in sharing: for tests, simulations and tools.
#[derive(Debug, Default)]
pub struct LocalPeer {
    ledger: Ledger,
    outbox: Outbox,
}

impl LocalPeer {
    /// A ledger of this pool for the plugins of this pipeline. An endpoint that fails is first avoided for
    /// `avoid_failing`.
    pub fn new(pool: Arc<Endpoints>, pipeline: &Pipeline, avoid_failing: Duration) -> Self {
        let mut peer = Self::default();
        peer.ledger.adopt(pool, [pipeline], avoid_failing);
        peer
    }

    /// The ledger.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Replaces the state of a plugin, for a simulation that knows the true one.
    #[cfg(feature = "testing")]
    pub fn replace_state(&mut self, plugin: u64, state: Box<dyn PluginState>) {
        self.ledger.replace_state(plugin, state);
    }

    /// Applies changes of this proxy.
    pub fn apply(&mut self, changes: impl IntoIterator<Item = Change>) {
        for change in changes {
            self.ledger.apply(WORKER, &change);
            self.outbox.push(change);
        }
    }
}

impl LedgerStore for LocalPeer {
    fn read<T>(&self, read: impl FnOnce(&Ledger) -> T) -> T {
        read(&self.ledger)
    }

    fn transact<T>(&mut self, mut decide: impl FnMut(&Ledger) -> (T, ChangeList)) -> T {
        let (result, changes) = decide(&self.ledger);
        self.apply(changes);
        result
    }

    fn apply(&mut self, changes: ChangeList) {
        Self::apply(self, changes);
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

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use endpoint_picker::pool::load::Load;
    use endpoint_picker::state::StateChange;

    use super::*;

    fn prompt(endpoint: u64, hashes: usize) -> Change {
        Change::State(StateChange { plugin: 1, endpoint, at: Duration::ZERO, words: vec![7; hashes].into() })
    }

    fn open() -> Outbox {
        let mut outbox = Outbox::default();
        outbox.open(true);
        outbox
    }

    #[test]
    fn an_outbox_collects_only_while_it_is_open() {
        let mut outbox = Outbox::default();
        outbox.push(prompt(1, 2));
        assert!(outbox.take().changes.is_empty());
        outbox.open(true);
        outbox.push(prompt(1, 2));
        outbox.push(Change::Endpoint {
            endpoint: 1,
            kind: ChangeKind::Started(Load { requests: 1, tokens: 1 }),
        });
        assert_eq!(outbox.take().changes, [prompt(1, 2)], "without loads");
        assert!(outbox.take().changes.is_empty(), "once");
        outbox.push(prompt(1, 2));
        outbox.open(false);
        assert!(!outbox.is_open() && outbox.take().changes.is_empty());
    }

    #[test]
    fn the_oldest_changes_are_dropped_when_there_are_too_many() {
        let mut outbox = open();
        outbox.push(prompt(1, 10));
        outbox.push(prompt(2, MAX_WORDS - 20));
        assert_eq!(outbox.changes.len(), 2);
        outbox.push(prompt(3, 10));
        let OwnChanges { changes, has_lost } = outbox.take();
        let endpoints: Vec<_> = changes.iter().map(Change::endpoint).collect();
        assert_eq!((endpoints, has_lost), (vec![2, 3], true));
        outbox.push(prompt(4, 10));
        assert!(!outbox.take().has_lost);
        outbox.push(prompt(5, MAX_WORDS));
        assert!(outbox.take().changes.is_empty(), "one alone is too large");
    }

    #[test]
    fn a_restart_drops_what_its_endpoint_was_sent() {
        let mut outbox = open();
        outbox.push(prompt(1, 10));
        outbox.push(prompt(2, 10));
        let since = Duration::from_secs(9);
        outbox.push(Change::Endpoint { endpoint: 1, kind: ChangeKind::Restarted { since } });
        assert_eq!(outbox.take().changes, [prompt(2, 10)]);
    }
}
