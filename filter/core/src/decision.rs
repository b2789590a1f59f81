//! What was decided.

use core::net::SocketAddr;

pub use crate::load::Reservation;
use crate::rejection::Rejection;
use crate::rng::Rng;
use crate::state::Event;
use crate::subset::Subset;

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Goes to the first of these endpoints (indices in the pool) that takes it; never empty.
    Route(Vec<usize>),
    /// Is answered here.
    Reject(Rejection),
    /// Is left to the proxy.
    Abstain {
        /// Why.
        reason: Abstention,
        /// The addresses that the subset hint names, in the order in which the proxy tries them, never empty; `None` without a hint:
        /// the proxy balances.
        within: Option<Vec<SocketAddr>>,
    },
}

impl Outcome {
    /// Leaves a request to the proxy. A hint is obeyed all the same: its addresses in random order, and 503 if it has none.
    pub fn abstain(reason: Abstention, subset: &Subset, rng: &mut dyn Rng) -> Self {
        match subset.shuffled(rng) {
            Some(addresses) if addresses.is_empty() => Self::Reject(Rejection::no_candidates()),
            within => Self::Abstain { reason, within },
        }
    }
}

/// Why no decision was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abstention {
    /// No snapshot of the pool ever arrived.
    NoSnapshot,
    /// So much of the body has come that no more of it can be held, and its model is not among it.
    BodyTooLarge,
}

impl Abstention {
    /// For counters, logs and explanations.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoSnapshot => "no-snapshot",
            Self::BodyTooLarge => "body-too-large",
        }
    }
}

/// What to do when there is no snapshot to decide by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
pub enum FailureMode {
    /// Leave the request to the proxy, inside its hint.
    #[default]
    FailOpen,
    /// Answer 503.
    FailClose,
}

impl FailureMode {
    /// The outcome while no snapshot of the pool has arrived.
    pub fn without_snapshot(self, subset: &Subset, rng: &mut dyn Rng) -> Outcome {
        match self {
            Self::FailOpen => Outcome::abstain(Abstention::NoSnapshot, subset, rng),
            Self::FailClose => Outcome::Reject(Rejection::no_candidates()),
        }
    }
}

/// A decision with what it was made from, so that it can be explained, and with what follows from it.
#[derive(Clone, Debug)]
pub struct Decision {
    /// What becomes of the request.
    pub outcome: Outcome,
    /// The profiles that ran, in their order; none when the decision fell before, or did not need any.
    pub runs: Vec<ProfileRun>,
    /// Which of `runs` named the destination.
    pub primary: Option<usize>,
    /// The readings were too old to be used.
    pub is_stale: bool,
    /// What of the prompt the destination had been sent before, by the first prefix producer; nothing without one.
    pub prompt: PromptBlocks,
    /// Request headers for the destination, telling it about other stages.
    pub headers: Vec<(&'static str, String)>,
    /// Headers for the answer that tell the client the endpoints of named stages; what it is told of the endpoint that
    /// answers depends on who does ([`Pipeline::response_headers`](crate::pipeline::Pipeline::response_headers)).
    pub response_headers: Vec<(String, String)>,
    /// What the plugins are to remember.
    pub events: Vec<Event>,
    /// What the request adds to the load of each endpoint that will work on it.
    pub reservations: Vec<Reservation>,
}

/// Blocks of a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PromptBlocks {
    /// Those that were sent to the endpoint before.
    pub matched: u32,
    /// All of them.
    pub total: u32,
}

/// What running a profile gave. Endpoints are given by their index in the pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProfileRun {
    /// The profile's index among the pipeline's.
    pub(crate) profile: usize,
    /// Candidates that a filter dropped, with the filter's index among the instances.
    pub dropped: Vec<(usize, usize)>,
    /// Candidates that passed the filters.
    pub scored: Vec<usize>,
    /// Clamped, unweighted scores: those of the first scorer for each of `scored`, then those of the second, and so on.
    pub scores: Vec<f64>,
    /// Weighted sums for each of `scored`.
    pub totals: Vec<f64>,
    /// The choice, best first; empty when the filters left nothing.
    pub picked: Vec<usize>,
}

impl Decision {
    /// A decision that no profile took part in.
    pub(crate) fn without_run(outcome: Outcome) -> Self {
        Self {
            outcome,
            runs: vec![],
            primary: None,
            is_stale: false,
            prompt: PromptBlocks::default(),
            headers: vec![],
            response_headers: vec![],
            events: vec![],
            reservations: vec![],
        }
    }

    /// The endpoint the request goes to first.
    pub fn destination(&self) -> Option<usize> {
        match &self.outcome {
            Outcome::Route(endpoints) => endpoints.first().copied(),
            Outcome::Reject(_) | Outcome::Abstain { .. } => None,
        }
    }

    /// The run that named the destination.
    pub fn primary_run(&self) -> Option<&ProfileRun> {
        self.runs.get(self.primary?)
    }
}
