//! One change of the ledger.

use core::time::Duration;

use endpoint_picker::decision::Decision;
use endpoint_picker::pool::Pool;
use endpoint_picker::pool::load::Load;
use endpoint_picker::state::{self, Event};

/// One change of the ledger. `Hashes` holds the hashes of a prompt's blocks: a `Vec` of its own, or a slice borrowed from the
/// bytes that the change was read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change<Hashes = Vec<u64>> {
    /// The [key](endpoint_picker::pool::Endpoint::key) of the endpoint that it is about.
    pub endpoint: u64,
    /// The event.
    pub kind: ChangeKind<Hashes>,
}

/// An event at an endpoint. Times are on the shell's clock, since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind<Hashes = Vec<u64>> {
    /// A request, or one stage of it, was routed to the endpoint: this load is in flight there from now on.
    Started(Load),
    /// This load is no longer in flight at the endpoint.
    Ended(Load),
    /// Load that was in flight at the endpoint is in flight at another one instead.
    Moved {
        /// The key of the other endpoint.
        to: u64,
        /// The load that moves.
        load: Load,
    },
    /// This is all that the sender has in flight at the endpoint.
    InFlight(Load),
    /// The endpoint refused a connection, broke one off or answered with an error before the first byte of the body.
    Failed {
        /// When.
        at: Duration,
    },
    /// The endpoint answered a request after it had failed others.
    Answered {
        /// When.
        at: Duration,
    },
    /// The endpoint has sent a body to a client.
    Served {
        /// Time from the choice of the endpoint to the first byte.
        first_byte: Duration,
        /// Whether the body is a stream of tokens.
        is_streamed: bool,
    },
    /// The endpoint has restarted, so its caches are empty.
    Restarted {
        /// The start of the caches that it has now.
        since: Duration,
    },
    /// The endpoint was sent a prompt.
    SentPrompt {
        /// The key of the plugin that records it.
        plugin: u64,
        /// The number of blocks that the endpoint's cache holds.
        capacity: u64,
        /// The hashes of one token list's blocks, each of the list up to there.
        hashes: Hashes,
    },
    /// The endpoint was sent a request that no endpoint had a prefix of.
    SentCold {
        /// The key of the plugin that records it.
        plugin: u64,
        /// When.
        at: Duration,
    },
    /// The endpoint serves a session from now on.
    BoundSession {
        /// The key of the plugin that records it.
        plugin: u64,
        /// The hash of the session's name.
        session: u64,
        /// When.
        at: Duration,
    },
}

impl Change {
    /// The start of a load; `None` for no load, which changes nothing.
    pub fn started(endpoint: u64, load: Load) -> Option<Self> {
        (load != Load::default()).then_some(Self { endpoint, kind: ChangeKind::Started(load) })
    }

    /// The end of a load; `None` for no load, which changes nothing.
    pub fn ended(endpoint: u64, load: Load) -> Option<Self> {
        (load != Load::default()).then_some(Self { endpoint, kind: ChangeKind::Ended(load) })
    }

    /// A plugin's event; `None` if the pool has no endpoint of that index.
    pub fn of_event(Event { plugin, change }: Event, pool: &Pool) -> Option<Self> {
        let (endpoint, kind) = match change {
            state::Change::SentPrompt { endpoint, capacity, chain } => {
                (endpoint, ChangeKind::SentPrompt { plugin, capacity: capacity as u64, hashes: chain })
            }
            state::Change::SentCold { endpoint, at } => (endpoint, ChangeKind::SentCold { plugin, at }),
            state::Change::BoundSession { session, endpoint, at } => {
                (endpoint, ChangeKind::BoundSession { plugin, session, at })
            }
        };
        Some(Self { endpoint: pool.endpoints().get(endpoint)?.key(), kind })
    }
}

/// The changes that follow from a decision: its plugins' events, which are moved out of it, and the load of its reservations.
pub fn changes_of(decision: &mut Decision, pool: &Pool) -> Vec<Change> {
    let events = core::mem::take(&mut decision.events);
    let mut changes = Vec::with_capacity(events.len() + decision.reservations.len());
    changes.extend(events.into_iter().filter_map(|event| Change::of_event(event, pool)));
    changes.extend(decision.reservations.iter().filter_map(|reservation| {
        let mut load = reservation.prefill;
        load += reservation.response;
        Change::started(pool.endpoints().get(reservation.endpoint)?.key(), load)
    }));
    changes
}

impl<Hashes: AsRef<[u64]>> Change<Hashes> {
    /// The same change with hashes of its own.
    pub fn into_owned(self) -> Change {
        let kind = match self.kind {
            ChangeKind::SentPrompt { plugin, capacity, hashes } => {
                ChangeKind::SentPrompt { plugin, capacity, hashes: hashes.as_ref().to_vec() }
            }
            ChangeKind::Started(load) => ChangeKind::Started(load),
            ChangeKind::Ended(load) => ChangeKind::Ended(load),
            ChangeKind::Moved { to, load } => ChangeKind::Moved { to, load },
            ChangeKind::InFlight(load) => ChangeKind::InFlight(load),
            ChangeKind::Failed { at } => ChangeKind::Failed { at },
            ChangeKind::Answered { at } => ChangeKind::Answered { at },
            ChangeKind::Served { first_byte, is_streamed } => ChangeKind::Served { first_byte, is_streamed },
            ChangeKind::Restarted { since } => ChangeKind::Restarted { since },
            ChangeKind::SentCold { plugin, at } => ChangeKind::SentCold { plugin, at },
            ChangeKind::BoundSession { plugin, session, at } => {
                ChangeKind::BoundSession { plugin, session, at }
            }
        };
        Change { endpoint: self.endpoint, kind }
    }

    /// The event of a plugin in a pool; `None` if the pool has no such endpoint, or the change is not about a plugin.
    pub(super) fn event(&self, pool: &Pool) -> Option<Event<&[u64]>> {
        let (plugin, change) = match self.kind {
            ChangeKind::SentPrompt { plugin, capacity, ref hashes } => {
                let endpoint = pool.index_of(self.endpoint)?;
                let capacity = usize::try_from(capacity).unwrap_or(usize::MAX);
                (plugin, state::Change::SentPrompt { endpoint, capacity, chain: hashes.as_ref() })
            }
            ChangeKind::SentCold { plugin, at } => {
                (plugin, state::Change::SentCold { endpoint: pool.index_of(self.endpoint)?, at })
            }
            ChangeKind::BoundSession { plugin, session, at } => {
                let endpoint = pool.index_of(self.endpoint)?;
                (plugin, state::Change::BoundSession { session, endpoint, at })
            }
            ChangeKind::Started(_)
            | ChangeKind::Ended(_)
            | ChangeKind::Moved { .. }
            | ChangeKind::InFlight(_)
            | ChangeKind::Failed { .. }
            | ChangeKind::Answered { .. }
            | ChangeKind::Served { .. }
            | ChangeKind::Restarted { .. } => return None,
        };
        Some(Event { plugin, change })
    }
}
