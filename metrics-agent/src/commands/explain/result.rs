//! A request to explain, and its explanation.

use core::fmt;
use std::net::SocketAddr;

use endpoint_picker::decision::Outcome;
use endpoint_picker::explanation::Explanation;
use endpoint_picker::pool::Pool;
use endpoint_picker::rejection::Rejection;
use endpoint_picker::subset::Subset;
use endpoint_picker_wire::v1;

/// How often the request is decided to tell how likely each choice is.
pub(super) const DRAWS: u64 = 1000;

/// A request as a client sent it.
#[derive(Clone, Debug)]
pub struct Asked {
    /// With its query, if it had one.
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, Vec<u8>)>,
    /// What an earlier filter restricts the choice to.
    pub subset: Subset,
    /// The whole body.
    pub body: Vec<u8>,
    /// Bodies that went to an endpoint before.
    pub before: Vec<(Vec<u8>, SocketAddr)>,
    /// What chance makes of it.
    pub seed: u64,
}

/// What becomes of a request, and why.
#[derive(Clone, Debug)]
pub struct Explained {
    pub(super) pool: Pool,
    pub(super) path: String,
    pub(super) seed: u64,
    /// What the endpoints' KV usage is from.
    pub(super) kv_usage_metrics: Vec<v1::MetricUse>,
    /// Or why it was refused before there was anything to choose.
    pub(super) told: Result<Told, Rejection>,
}

/// What was decided about a request that could be read.
#[derive(Clone, Debug)]
pub(super) struct Told {
    pub(super) asked: Option<String>,
    pub(super) model: String,
    pub(super) priority: i32,
    pub(super) prompt_tokens: u64,
    pub(super) acting: Choice,
    /// What a configuration on trial would do, or why it is left out.
    pub(super) shadow: Option<Result<Tried, String>>,
}

/// What one configuration makes of the request.
#[derive(Clone, Debug)]
pub(super) struct Choice {
    pub(super) explanation: Explanation,
    /// For the destination.
    pub(super) headers: Vec<(&'static str, String)>,
    /// How many of [`DRAWS`] went to each endpoint, in the pool's order.
    pub(super) draws: Vec<u64>,
}

impl Choice {
    pub(super) fn is_routed(&self) -> bool {
        matches!(self.explanation.outcome, Outcome::Route(_))
    }
}

/// What a configuration on trial would make of it.
#[derive(Clone, Debug)]
pub(super) struct Tried {
    pub(super) choice: Choice,
    /// Whether that is what the acting one does.
    pub(super) agrees: bool,
    /// On how many of [`DRAWS`] it agrees.
    pub(super) agreed: u64,
}

impl Explained {
    /// Whether the request goes to an endpoint.
    pub fn is_routed(&self) -> bool {
        self.told.as_ref().is_ok_and(|told| told.acting.is_routed())
    }
}

/// Why a request cannot be decided again.
#[derive(Debug)]
pub struct ExplainError(pub(super) String);

impl fmt::Display for ExplainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for ExplainError {}
