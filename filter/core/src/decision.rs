//! What was decided.

use crate::prefix::PrefixMatch;
use crate::profile::ProfileRun;
use crate::prompt::BlockHashes;
use crate::rejection::Rejection;

/// What becomes of a request.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Outcome {
    /// Goes to the first of these endpoints (indices in the pool) that takes it; never empty.
    Route(Vec<usize>),
    /// Is answered here.
    Reject(Rejection),
    /// Is left to the proxy's own balancing.
    Abstain(Abstention),
}

/// Why no decision was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Abstention {
    /// No snapshot of the pool ever arrived.
    NoSnapshot,
}

impl Abstention {
    /// For counters, logs and explanations.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoSnapshot => "no-snapshot",
        }
    }
}

/// What to do when there is no snapshot to decide by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
pub enum FailureMode {
    /// Leave the request to the proxy's balancing.
    #[default]
    FailOpen,
    /// Answer 503.
    FailClose,
}

impl FailureMode {
    /// The outcome while no snapshot of the pool has arrived.
    pub fn without_snapshot(self) -> Outcome {
        match self {
            Self::FailOpen => Outcome::Abstain(Abstention::NoSnapshot),
            Self::FailClose => Outcome::Reject(Rejection::no_candidates()),
        }
    }
}

/// A decision with what it was made from, so that it can be explained and remembered.
#[derive(Clone, Debug)]
pub struct Decision {
    /// What becomes of the request.
    pub outcome: Outcome,
    /// How the candidates were rated; `None` when the decision fell before, or did not need it.
    pub run: Option<ProfileRun>,
    /// How much of the prompt the endpoints had seen.
    pub prefix: PrefixMatch,
    /// The prompt's blocks.
    pub(crate) hashes: BlockHashes,
}

impl Decision {
    /// A decision that no profile took part in.
    pub(crate) fn without_run(outcome: Outcome) -> Self {
        Self { outcome, run: None, prefix: PrefixMatch::default(), hashes: BlockHashes::default() }
    }

    /// The endpoint the request goes to first.
    pub fn destination(&self) -> Option<usize> {
        match &self.outcome {
            Outcome::Route(endpoints) => endpoints.first().copied(),
            _ => None,
        }
    }
}
