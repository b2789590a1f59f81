//! `metrics-agent explain`: decides a recorded request by the filter's rules and a snapshot.

mod replay;
mod table;

use core::fmt;
use std::net::SocketAddr;

use endpoint_picker::decision::Outcome;
use endpoint_picker::decision::explanation::Explanation;
use endpoint_picker::decision::rejection::Rejection;
use endpoint_picker::headers::Headers;
use endpoint_picker::pool::Endpoints;
use endpoint_picker::request::subset::Subset;
use endpoint_picker_wire::v1;
use metrics_agent_status::queues::status::QueueStatus;

use self::replay::ReplayedPool;

/// Decides a request by a snapshot that has a topology. `queue` are the proxies' queues, if they are known.
pub fn explain(
    mut snapshot: v1::Snapshot,
    request: &RecordedRequest,
    queue: Option<&QueueStatus>,
) -> Result<ExplainResult, ExplainError> {
    let kv_usage_metrics = core::mem::take(&mut snapshot.kv_usage_metrics);
    let mut replay = ReplayedPool::of(snapshot).map_err(ExplainError)?;
    let headers = request.headers.iter().map(|(name, value)| (name, value)).collect();
    let headers = Headers(&headers);
    for (body, endpoint) in &request.before {
        replay.record(request, headers, body, *endpoint)?;
    }
    let decision = replay.explain(request, headers);
    let wait = |report: &DecisionReport| replay.forecast(queue?, report.priority);
    Ok(ExplainResult {
        wait: decision.as_ref().ok().and_then(wait),
        path: request.path.clone(),
        seed: request.seed,
        kv_usage_metrics,
        pool: replay.pool().clone(),
        decision,
    })
}

/// Number of decisions with different seeds, from which the chances of the endpoints are computed.
const DRAWS: u64 = 1000;

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
    pool: Endpoints,
    path: String,
    seed: u64,
    /// The metrics of the endpoints' KV usage.
    kv_usage_metrics: Vec<v1::MetricUse>,
    /// The queues of the proxies as it would meet them; `None`: it would be dispatched at once, or that is
    /// not known.
    wait: Option<String>,
    /// The decision, or the rejection before there was anything to choose.
    decision: Result<DecisionReport, Rejection>,
}

/// The decision about a valid request.
#[derive(Clone, Debug)]
struct DecisionReport {
    /// The model in the body.
    requested_model: Option<String>,
    /// The model that the server gets.
    model: String,
    priority: i32,
    prompt_tokens: u64,
    acting: ExplainedChoice,
    /// The decision of the shadow configuration, or why that configuration is ignored.
    shadow: Option<Result<ShadowReport, String>>,
}

/// The decision of one configuration.
#[derive(Clone, Debug)]
struct ExplainedChoice {
    explanation: Explanation,
    /// Headers for the destination.
    headers: Vec<(&'static str, String)>,
    /// How many of [`DRAWS`] decisions pick each endpoint, in the pool's order.
    draws: Vec<u64>,
}

impl ExplainedChoice {
    fn is_routed(&self) -> bool {
        matches!(self.explanation.outcome, Outcome::Route(_))
    }
}

/// The decision of the shadow configuration.
#[derive(Clone, Debug)]
struct ShadowReport {
    choice: ExplainedChoice,
    /// Whether it equals the acting decision.
    agrees: bool,
    /// How many of [`DRAWS`] decisions are equal.
    agreed: u64,
}

impl ExplainResult {
    /// Whether the request goes to an endpoint.
    pub fn is_routed(&self) -> bool {
        self.decision.as_ref().is_ok_and(|decision| decision.acting.is_routed())
    }
}

/// Why a request cannot be decided.
#[derive(Debug)]
pub struct ExplainError(String);

impl fmt::Display for ExplainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for ExplainError {}
