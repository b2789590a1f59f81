//! The result of a decision.

pub mod explanation;
pub mod rejection;
pub mod shadow;

use core::net::SocketAddr;
use std::sync::Arc;

use crate::Few;
use crate::decision::rejection::Rejection;
use crate::input::prediction::ResponseLimits;
use crate::pool::load::Reservation;
use crate::request::session::SessionTurn;
use crate::request::subset::Subset;
use crate::rng::Rng;
use crate::state::StateChanges;
use crate::state::latency::Expectation;
use crate::state::prefix::{SentPrompt, UsagePrediction};

/// The result for the request.
#[derive(Clone, Debug, PartialEq)]
pub enum Outcome {
    /// Goes to the first of these endpoints (indices in the pool) that takes it; never empty.
    Route(Few<usize>),
    /// Is answered by the picker.
    Reject(Rejection),
    /// Is left to the proxy to balance.
    Abstain {
        /// Why.
        reason: Abstention,
        /// The addresses that the subset hint names, in the order in which the proxy tries them, never empty;
        /// `None` without a hint: the proxy balances.
        within: Option<Vec<SocketAddr>>,
    },
}

impl Outcome {
    /// Leaves a request to the proxy. A hint is obeyed all the same: its addresses in random order, and 503
    /// if it has none.
    pub fn abstain(reason: Abstention, subset: &Subset, rng: &mut dyn Rng) -> Self {
        match subset.shuffled(rng) {
            Some(addresses) if addresses.is_empty() => Self::Reject(Rejection::no_candidates()),
            within => Self::Abstain { reason, within },
        }
    }
}

/// Why a request is left to the proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abstention {
    /// No snapshot of the pool ever arrived.
    NoSnapshot,
    /// As much of the body has arrived as can be held, and its model is not in it.
    BodyTooLarge,
    /// The first message of the body is compressed.
    BodyCompressed,
}

impl Abstention {
    /// The name in counters, logs and explanations.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoSnapshot => "no-snapshot",
            Self::BodyTooLarge => "body-too-large",
            Self::BodyCompressed => "body-compressed",
        }
    }
}

/// The result for requests while there is no snapshot.
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

/// A decision: its outcome, the profile runs that explain it, and the changes that follow from it.
#[derive(Clone, Debug)]
pub struct Decision {
    /// The result for the request.
    pub outcome: Outcome,
    /// The profiles that ran, in their order; empty if the request was rejected before, or has no body.
    pub runs: Vec<ProfileRun>,
    /// Which of `runs` named the destination.
    pub primary: Option<usize>,
    /// The rank that was picked at each endpoint of the outcome, where the ranks of a server share a port;
    /// else empty.
    pub ranks: Vec<usize>,
    /// The readings were too old to be used.
    pub is_stale: bool,
    /// Blocks of the prompt that were sent to the destination before, by the first prefix producer; none
    /// without one.
    pub prompt: PromptBlocks,
    /// Images, videos and audio that were sent to the destination before, by the first producer that
    /// remembers them; none without one.
    pub media: MediaCount,
    /// The request's place in its session, if that is known.
    pub session: Option<SessionTurn>,
    /// The effects of filters by lists of models.
    pub served_models: Vec<ServedModelRun>,
    /// The endpoint that is named to the destination to copy KV blocks from.
    pub cache_source: Option<CacheSource>,
    /// Request headers that name the endpoints of other stages to the destination.
    pub headers: Vec<(&'static str, String)>,
    /// Headers for the response that name the endpoints of stages to the client. Headers that name the
    /// endpoint that responds are made when it does
    /// ([`Pipeline::response_headers`](crate::pipeline::Pipeline::response_headers)).
    pub response_headers: Vec<(String, String)>,
    /// The records of plugins that remember where requests went.
    pub records: Records,
    /// Limits that the response has to keep.
    pub limits: Option<ResponseLimits>,
    /// Predicted latencies, sources of prefix matches, and room for sessions, by endpoint in words, if the
    /// decision is [explained](crate::pipeline::Pipeline::add_details).
    pub predictions: Vec<(usize, String)>,
    /// Terms of scores, if the decision is [explained](crate::pipeline::Pipeline::add_details).
    pub details: Vec<ScoreDetail>,
    /// Load that the request reserves on each endpoint that will work on it.
    pub reservations: Few<Reservation>,
}

/// The records of a routed request, by all plugins that remember where requests went.
#[derive(Clone, Debug, Default)]
pub struct Records {
    /// [Changes](crate::input::cycle::Cycle::state_change) of the plugins' states.
    pub changes: StateChanges,
    /// The expected course of the request at its endpoints, by plugins that learn from the response.
    pub expectations: Few<Expectation>,
    /// The predicted usage in its response, by each index of prompts.
    pub usage_predictions: Few<UsagePrediction>,
    /// The prompts in `changes` that their endpoints were not sent before: they are not cached unless the
    /// endpoints serve the request.
    pub sent_prompts: Few<SentPrompt>,
}

/// An endpoint that another one may copy KV blocks of the prompt from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheSource {
    /// The endpoint's index in the pool.
    pub endpoint: usize,
    /// Tokens of the prompt that it has cached.
    pub tokens: u64,
    /// The part of them that the endpoint that computes the prompt has not.
    pub ahead: u64,
}

/// Blocks of a prompt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PromptBlocks {
    /// The blocks that were sent to the endpoint before.
    pub matched: u32,
    /// All of them.
    pub total: u32,
}

/// The images, videos and audio of a request, each counted once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MediaCount {
    /// The items that were sent to the endpoint before.
    pub matched: u32,
    /// All of them.
    pub total: u32,
}

/// The effect of a `served-model-filter` in one run of a profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedModelRun {
    /// The instance's name in the configuration.
    pub plugin: Arc<str>,
    /// The effect.
    pub outcome: ServedModelOutcome,
    /// The candidates that it judged; 0 without a model.
    pub candidates: u32,
    /// Candidates without a list of models.
    pub unlisted: u32,
}

/// Effects of a `served-model-filter` on a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServedModelOutcome {
    /// A candidate lists the model.
    Listed,
    /// No candidate lists the model, and the candidates without a list are kept.
    Unlisted,
    /// All are kept rather than none.
    Fallback,
    /// None is kept.
    Empty,
    /// The request has no model.
    NotApplicable,
}

impl ServedModelOutcome {
    /// The EPP's word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Listed => "listed",
            Self::Unlisted => "unlisted",
            Self::Fallback => "fallback",
            Self::Empty => "empty",
            Self::NotApplicable => "not_applicable",
        }
    }
}

/// Terms of the score of one endpoint by one scorer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ScoreDetail {
    /// The scorer's index in the profile.
    pub(crate) scorer: usize,
    /// The endpoint's index in the pool.
    pub(crate) endpoint: usize,
    /// In words.
    pub(crate) text: String,
}

/// The result of running a profile. Endpoints are given by their index in the pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ProfileRun {
    /// The profile's index among the pipeline's.
    pub(crate) profile: usize,
    /// Candidates that a filter dropped, with the filter's index in the profile.
    pub dropped: Vec<(usize, usize)>,
    /// Candidates that passed the filters.
    pub scored: Vec<usize>,
    /// Clamped, unweighted scores: one row for each scorer, with a score for each of `scored`.
    pub scores: Vec<f64>,
    /// Weighted sums for each of `scored`.
    pub totals: Vec<f64>,
    /// The choice, best first; empty when the filters left nothing.
    pub picked: Few<usize>,
}

impl ProfileRun {
    /// An empty run in the same memory.
    pub(crate) fn emptied(self) -> Self {
        let Self { mut dropped, mut scored, mut scores, mut totals, .. } = self;
        dropped.clear();
        scored.clear();
        scores.clear();
        totals.clear();
        Self { dropped, scored, scores, totals, ..Self::default() }
    }
}

impl Decision {
    /// The decision for a request that is rejected before a profile runs.
    #[cold]
    #[inline(never)]
    pub(crate) fn refused(rejection: Rejection) -> Self {
        Self::without_run(Outcome::Reject(rejection))
    }

    /// A decision without a profile run.
    pub(crate) fn without_run(outcome: Outcome) -> Self {
        Self {
            outcome,
            runs: vec![],
            primary: None,
            ranks: vec![],
            is_stale: false,
            prompt: PromptBlocks::default(),
            media: MediaCount::default(),
            session: None,
            served_models: vec![],
            cache_source: None,
            headers: vec![],
            response_headers: vec![],
            records: Records::default(),
            limits: None,
            predictions: vec![],
            details: vec![],
            reservations: Few::new(),
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
