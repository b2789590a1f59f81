//! A request to explain, and its explanation.

use core::fmt;
use std::net::SocketAddr;

use endpoint_picker::decision::Outcome;
use endpoint_picker::decision::explanation::Explanation;
use endpoint_picker::decision::rejection::Rejection;
use endpoint_picker::pool::Pool;
use endpoint_picker::request::subset::Subset;
use endpoint_picker_wire::v1;

/// Number of decisions with different seeds, from which the chances of the endpoints are computed.
pub(super) const DRAWS: u64 = 1000;

/// A request as a client sent it.
#[derive(Clone, Debug)]
pub struct RecordedRequest {
    /// The path, with the query if there is one.
    pub path: String,
    /// The headers, with names in lower case.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The subset hint of an earlier filter.
    pub subset: Subset,
    /// The whole body.
    pub body: Vec<u8>,
    /// Earlier bodies, each with the endpoint that it was sent to.
    pub before: Vec<(Vec<u8>, SocketAddr)>,
    /// The seed of the random numbers.
    pub seed: u64,
}

/// The decision about a request, and its reasons.
#[derive(Clone, Debug)]
pub struct ExplainResult {
    pub(super) pool: Pool,
    pub(super) path: String,
    pub(super) seed: u64,
    /// The metrics of the endpoints' KV usage.
    pub(super) kv_usage_metrics: Vec<v1::MetricUse>,
    /// What it would meet in the queues of the proxies; `None`: it would go on at once, or that is not known.
    pub(super) wait: Option<String>,
    /// The decision, or the rejection before there was anything to choose.
    pub(super) decision: Result<DecisionReport, Rejection>,
}

/// The decision about a valid request.
#[derive(Clone, Debug)]
pub(super) struct DecisionReport {
    /// The model in the body.
    pub(super) requested_model: Option<String>,
    /// The model that the server gets.
    pub(super) model: String,
    pub(super) priority: i32,
    pub(super) prompt_tokens: u64,
    pub(super) acting: Choice,
    /// The decision of the shadow configuration, or why that configuration is ignored.
    pub(super) shadow: Option<Result<ShadowReport, String>>,
}

/// The decision of one configuration.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub(super) explanation: Explanation,
    /// Headers for the destination.
    pub(super) headers: Vec<(&'static str, String)>,
    /// How many of [`DRAWS`] decisions pick each endpoint, in the pool's order.
    pub(super) draws: Vec<u64>,
}

impl Choice {
    pub(super) fn is_routed(&self) -> bool {
        matches!(self.explanation.outcome, Outcome::Route(_))
    }
}

/// The decision of the shadow configuration.
#[derive(Clone, Debug)]
pub(super) struct ShadowReport {
    pub(super) choice: Choice,
    /// Whether it equals the acting decision.
    pub(super) agrees: bool,
    /// How many of [`DRAWS`] decisions are equal.
    pub(super) agreed: u64,
}

impl ExplainResult {
    /// Whether the request goes to an endpoint.
    pub fn is_routed(&self) -> bool {
        self.decision.as_ref().is_ok_and(|decision| decision.acting.is_routed())
    }
}

/// Why a request cannot be decided.
#[derive(Debug)]
pub struct ExplainError(pub(super) String);

impl fmt::Display for ExplainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for ExplainError {}
