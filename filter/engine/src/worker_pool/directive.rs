//! A decision as a proxy acts on it: with addresses, keys and headers instead of indices in the pool.

use core::net::SocketAddr;
use core::time::Duration;
use std::sync::Arc;

use endpoint_picker::Few;
use endpoint_picker::decision::rejection::{DroppedReason, Rejection};
use endpoint_picker::decision::shadow::{Agreement, OtherPick};
use endpoint_picker::decision::{
    Abstention, Decision, MediaCount, Outcome, PromptBlocks, Records, ServedModelRun,
};
use endpoint_picker::input::prediction::ResponseLimits;
use endpoint_picker::pipeline::Scratch;
use endpoint_picker::pool::load::Load;
use endpoint_picker::pool::load::Reservation;
use endpoint_picker::pool::{Endpoint, Endpoints};
use endpoint_picker::request::session::SessionTurn;
use endpoint_picker::state::latency::{CompleteResponse, Expectation};
use endpoint_picker::state::prefix::{SentPrompt, UsagePrediction};

use crate::pool_view::PoolView;
use crate::proxy::headers;
use crate::record::request::RequestRecord;
use crate::worker_pool::decision::{Compared, PoolDecision, Routing};

/// A decision as a proxy acts on it.
#[derive(Debug)]
pub struct Directive {
    /// The treatment of the request.
    pub action: Action,
    /// The explanation, if the request is explained.
    pub explanation: Option<String>,
    /// The comparison with the decision of a shadow, or with the choice of another picker; `None` without
    /// either.
    pub agreement: Option<Agreement>,
    /// The effects of filters by lists of models.
    pub served_models: Vec<ServedModelRun>,
    /// The record of the request, if it is recorded.
    pub(crate) record: Option<Box<RequestRecord>>,
    /// The request's place in its session, if that is known.
    pub session: Option<SessionTurn>,
}

impl Directive {
    /// Drops the predicted usage of the request.
    pub(crate) fn drop_predictions(&mut self) {
        match &mut self.action {
            Action::Route(route) => route.assignment.usage_predictions.clear(),
            Action::Pass(passed) => passed.assignment.usage_predictions.clear(),
            Action::Reject(_) | Action::Abstain { .. } => {}
        }
    }
}

impl From<Outcome> for Directive {
    /// An outcome without a decision of the rules. It is never [`Outcome::Route`], which has no address here.
    fn from(outcome: Outcome) -> Self {
        let action = match outcome {
            Outcome::Reject(rejection) => Action::Reject(rejection),
            Outcome::Abstain { reason, within } => Action::Abstain { reason, within },
            Outcome::Route(_) => Action::Reject(Rejection::no_candidates()),
        };
        Self {
            action,
            explanation: None,
            agreement: None,
            served_models: Vec::new(),
            record: None,
            session: None,
        }
    }
}

/// The treatment of a request.
#[derive(Debug)]
pub enum Action {
    /// It goes to an endpoint.
    Route(Box<Route>),
    /// It goes to the choice of another picker.
    Pass(Box<Passed>),
    /// The proxy responds with an error.
    Reject(Rejection),
    /// The proxy balances it.
    Abstain {
        /// The reason.
        reason: Abstention,
        /// The addresses of the subset hint, in the order in which they are tried; `None` without a hint.
        within: Option<Vec<SocketAddr>>,
    },
}

impl Action {
    /// Adds this decision to the record of its request, after this wait. Returns false if the proxy balances
    /// the request: its end is not known.
    #[cold]
    #[inline(never)]
    pub(crate) fn add_to(
        &self,
        record: &mut RequestRecord,
        pool: &Endpoints,
        waited: Option<Duration>,
    ) -> bool {
        let (assignment, why) = match self {
            Self::Route(route) if route.is_hint => (&route.assignment, "hint"),
            Self::Route(route) if route.is_stale => (&route.assignment, "stale"),
            Self::Route(route) => (&route.assignment, "picked"),
            Self::Pass(passed) => (&passed.assignment, "other-picker"),
            Self::Reject(rejection) => {
                record.rejected(rejection.reason.map_or("rejected", DroppedReason::as_str), waited);
                return true;
            }
            Self::Abstain { .. } => return false,
        };
        let first = assignment.destinations.first().and_then(|&key| pool.of_key(key));
        record.routed(first.map(Endpoint::address), why, waited);
        true
    }
}

/// A request that another picker has routed.
#[derive(Debug)]
pub struct Passed {
    /// The endpoints of the other picker, and the request's load there.
    pub assignment: Assignment,
    /// The blocks of the prompt, and how many of them the other picker's endpoint had been sent before.
    pub prompt: PromptBlocks,
}

/// The destinations of a request, and the headers and the load that go with them.
#[derive(Debug)]
pub struct Route {
    /// The destinations, as the value of their header.
    pub destinations: String,
    /// Whether a subset hint limits the destinations, so that the request must not go elsewhere.
    pub is_hint: bool,
    /// The names of other pools whose endpoints the proxy may try when every destination has failed.
    pub retry_in: Vec<Arc<str>>,
    /// The score of each rated endpoint's `ip:port`, if the policy asks for them.
    pub scores: Option<Vec<(String, f64)>>,
    /// Further headers to set on the request.
    pub request_headers: Vec<(&'static str, String)>,
    /// Headers to set on the response.
    pub response_headers: Vec<(String, String)>,
    /// The endpoints that the request may go to, and its load there.
    pub assignment: Assignment,
    /// The blocks of the prompt, and how many of them the endpoint had been sent before.
    pub prompt: PromptBlocks,
    /// The images, videos and audio, and how many of them the endpoint had been sent before.
    pub media: MediaCount,
    /// Whether no readings were used, because they were too old.
    pub is_stale: bool,
}

impl Route {
    /// The `ip:port` of the first destination.
    pub fn address(&self) -> &str {
        self.destinations.split(',').next().unwrap_or_default()
    }
}

/// The endpoints of a routed request, and its load there.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Assignment {
    /// Keys of the endpoints that the request may go to, in the order in which they are tried.
    pub destinations: Few<u64>,
    /// The key of the rank that was picked at each of the destinations, where the ranks of a server share a
    /// port; else empty.
    pub ranks: Few<u64>,
    /// The load that it has in flight.
    pub loads: Few<AssignedLoad>,
    /// Expectations of it, by plugins that learn from the response.
    pub expectations: Few<Expectation>,
    /// Limits that its response has to keep.
    pub limits: Option<ResponseLimits>,
    /// The usage that its response is predicted to have; none if only a part of the prompt was read.
    pub usage_predictions: Few<UsagePrediction>,
    /// The prompts that endpoints were not sent before, until the response shows whether they are cached now.
    pub sent_prompts: Few<SentPrompt>,
    /// The time of the decision.
    pub at: Duration,
    /// The place among the other pools of the one that has its load, after
    /// [a retry there](crate::worker_pool::WorkerPool::hand_over).
    pub(crate) handed_over: Option<usize>,
    /// The progress of its response.
    pub(crate) progress: ResponseProgress,
    /// Chunks of its response since the first output, without the last one.
    pub(crate) chunks: u64,
}

/// The first output of a response that shows how long its server takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FirstToken {
    /// When its chunk came.
    pub(crate) at: Duration,
    /// The time since the decision, if the response is a stream of tokens.
    pub(crate) took: Option<Duration>,
    /// The endpoint that sends it, by its key; `None` if that is not in the pool.
    pub(crate) by: Option<u64>,
}

/// How far the response to a request has come, for plugins that learn from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum ResponseProgress {
    /// Its first output has not come.
    #[default]
    Awaited,
    /// Its first output has come, or its first error. If it is known, it shows how long its server takes.
    Begun(Option<FirstToken>),
    /// It is complete. It shows how long its server takes if it is known.
    Complete(Option<CompleteResponse>),
}

/// The load that a request has in flight at one endpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AssignedLoad {
    /// The endpoint's key.
    pub endpoint: u64,
    /// Ends with the first output of the response.
    pub prefill: Load,
    /// Ends with the response.
    pub response: Load,
}

impl Assignment {
    /// The endpoints of a request by their indices in the pool, and the rest of the decision that names them.
    fn of(decision: Decision, destinations: &[usize], pool: &Endpoints, at: Duration) -> Self {
        let Decision { ranks, reservations, records, limits, .. } = decision;
        let Records { expectations, usage_predictions, sent_prompts, .. } = records;
        let key = |&index: &usize| pool.as_slice().get(index).map(Endpoint::key);
        let load = |Reservation { endpoint, prefill, response }| {
            Some(AssignedLoad { endpoint: key(&endpoint)?, prefill, response })
        };
        Self {
            destinations: destinations.iter().filter_map(key).collect(),
            ranks: ranks.iter().filter_map(key).collect(),
            loads: reservations.into_iter().filter_map(load).collect(),
            expectations,
            limits,
            usage_predictions,
            sent_prompts,
            at,
            handed_over: None,
            progress: ResponseProgress::default(),
            chunks: 0,
        }
    }
}

impl Assignment {
    /// The key of the rank that was picked at this destination; `None` where an endpoint is one rank.
    pub(crate) fn rank_at(&self, destination: u64) -> Option<u64> {
        let mut ranks = self.destinations.iter().zip(&self.ranks);
        ranks.find_map(|(&key, &rank)| (key == destination).then_some(rank))
    }
}

impl PoolView {
    /// Turns a decision of this view into instructions for the proxy.
    pub(crate) fn directive(
        &self,
        decided: PoolDecision,
        routing: &Routing<'_>,
        scratch: &mut Scratch,
    ) -> Directive {
        let Routing { request, explain, now, .. } = *routing;
        let explanation = explain.then(|| self.explanation(&decided, routing));
        let PoolDecision { mut decision, compared, .. } = decided;
        let served_models = core::mem::take(&mut decision.served_models);
        let session = decision.session;
        let (action, agreement) = match compared {
            None => (self.action(decision, (request.subset.is_hint(), now), scratch), None),
            Some(Compared::Shadow(shadow)) => {
                let action = self.action(decision, (request.subset.is_hint(), now), scratch);
                (action, Some(shadow.agreement))
            }
            Some(Compared::Other(pick, agreement)) => (self.pass(decision, &pick, now), Some(agreement)),
        };
        Directive { action, explanation, agreement, served_models, record: None, session }
    }

    #[cold]
    #[inline(never)]
    fn explanation(&self, decided: &PoolDecision, routing: &Routing<'_>) -> String {
        let PoolDecision { decision, compared, avoided } = decided;
        let comparison = match (routing.other, compared) {
            (Some(addresses), Some(Compared::Other(_, agreement))) => {
                Some(format!("; the acting picker picks {}: {}", addresses.first, agreement.as_str()))
            }
            (_, Some(Compared::Shadow(shadow))) => shadow.difference(self.pool()),
            (None, Some(Compared::Other(..))) | (_, None) => None,
        };
        let fallback = routing.fallback.map(|fallback| format!("; {fallback}"));
        let rest = comparison.into_iter().chain(fallback).collect::<String>();
        let view = self.without_ledger(avoided);
        let why = self.topology().pipeline.explain(decision, routing.request, &view, routing.now);
        why.within(headers::LONGEST_VALUE.saturating_sub(rest.len())) + &rest
    }

    /// Has a request pass to the choice of another picker.
    #[cold]
    #[inline(never)]
    fn pass(&self, decision: Decision, pick: &OtherPick, now: Duration) -> Action {
        let prompt = decision.prompt;
        let assignment = Assignment::of(decision, &pick.destinations, self.pool(), now);
        Action::Pass(Box::new(Passed { assignment, prompt }))
    }

    fn action(
        &self,
        mut decision: Decision,
        (is_hint, now): (bool, Duration),
        scratch: &mut Scratch,
    ) -> Action {
        let pool = self.pool();
        let with_scores = self.policy().emit_endpoint_scores;
        let scores = with_scores.then(|| scores(&decision, pool)).flatten();
        scratch.keep_runs(core::mem::take(&mut decision.runs));
        let destinations = match core::mem::replace(&mut decision.outcome, Outcome::Route(Few::new())) {
            Outcome::Route(destinations) => destinations,
            Outcome::Reject(rejection) => return Action::Reject(rejection),
            Outcome::Abstain { reason, within } => return Action::Abstain { reason, within },
        };
        let endpoints = || destinations.iter().filter_map(|&index| pool.as_slice().get(index));
        Action::Route(Box::new(Route {
            destinations: headers::destination_list(endpoints().map(Endpoint::printed_address)),
            is_hint,
            retry_in: Vec::new(),
            scores,
            request_headers: core::mem::take(&mut decision.headers),
            response_headers: core::mem::take(&mut decision.response_headers),
            prompt: decision.prompt,
            media: decision.media,
            is_stale: decision.is_stale,
            assignment: Assignment::of(decision, &destinations, pool, now),
        }))
    }
}

/// The weighted total of every endpoint that the primary profile rated; `None` if no endpoint was rated.
fn scores(decision: &Decision, pool: &Endpoints) -> Option<Vec<(String, f64)>> {
    let run = decision.primary_run()?;
    let rated = run.scored.iter().zip(run.totals.iter().copied());
    let address = |index: usize| Some(pool.as_slice().get(index)?.printed_address().to_owned());
    Some(rated.filter_map(|(&index, total)| Some((address(index)?, total))).collect())
}
