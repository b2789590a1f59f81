//! One change of the ledger.

use core::time::Duration;

use endpoint_picker::decision::Decision;
use endpoint_picker::pool::Endpoints;
use endpoint_picker::pool::load::Load;
use endpoint_picker::state::prefix::CachedTokens;
use endpoint_picker::state::{StateChange, Words};
use smallvec::SmallVec;

/// The changes of one event, which take no allocation for a usual request.
pub type ChangeList = SmallVec<[Change; 3]>;

/// One change of the ledger. `W` are the words of a [`StateChange`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change<W = Words> {
    /// A plugin's state changes.
    State(StateChange<W>),
    /// Something happened at an endpoint.
    Endpoint {
        /// The endpoint's [key](endpoint_picker::pool::Endpoint::key).
        endpoint: u64,
        /// The event.
        kind: ChangeKind,
    },
}

/// An event at an endpoint. Times are on the shell's clock, since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChangeKind {
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
    /// The endpoint [failed](endpoint_picker::response::outcome::ServerOutcome) a request.
    Failed {
        /// When.
        at: Duration,
    },
    /// The endpoint served a generation after it had failed requests.
    Recovered {
        /// When.
        at: Duration,
    },
    /// The endpoint has sent a body to a client.
    Served {
        /// Time from the choice of the endpoint to the first output.
        first_byte: Duration,
        /// Whether the body is a stream of tokens.
        is_streamed: bool,
    },
    /// The usage in a response of the endpoint has shown tokens of its prompt that were cached.
    Cached(CachedTokens),
    /// The endpoint has restarted, so its caches are empty.
    Restarted {
        /// The start of the caches that it has now.
        since: Duration,
    },
}

impl Change {
    /// The start of a load; `None` for no load, which changes nothing.
    pub fn started(endpoint: u64, load: Load) -> Option<Self> {
        (load != Load::default()).then_some(Self::Endpoint { endpoint, kind: ChangeKind::Started(load) })
    }

    /// The end of a load; `None` for no load, which changes nothing.
    pub fn ended(endpoint: u64, load: Load) -> Option<Self> {
        (load != Load::default()).then_some(Self::Endpoint { endpoint, kind: ChangeKind::Ended(load) })
    }
}

/// The changes that follow from a decision: those of its plugins' states, which are moved out of it, and the
/// load of its reservations.
pub fn changes_of(decision: &mut Decision, pool: &Endpoints) -> ChangeList {
    let states = core::mem::take(&mut decision.records.changes);
    let mut changes: ChangeList = states.into_iter().map(Change::State).collect();
    changes.extend(decision.reservations.iter().filter_map(|reservation| {
        let mut load = reservation.prefill;
        load += reservation.response;
        Change::started(pool.as_slice().get(reservation.endpoint)?.key(), load)
    }));
    changes
}

impl<W: AsRef<[u64]>> Change<W> {
    /// The key of the endpoint that it is about.
    pub fn endpoint(&self) -> u64 {
        match self {
            Self::State(change) => change.endpoint,
            Self::Endpoint { endpoint, .. } => *endpoint,
        }
    }

    /// The same change with words of its own.
    pub fn into_owned(self) -> Change {
        match self {
            Self::State(change) => Change::State(change.into_owned()),
            Self::Endpoint { endpoint, kind } => Change::Endpoint { endpoint, kind },
        }
    }
}
