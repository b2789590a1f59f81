//! A recorded request, decided again by the filter's own rules, with a snapshot and nothing else to go by:
//! `metrics-agent explain`.

mod scene;
mod table;

use core::fmt;
use std::net::SocketAddr;

use endpoint_picker::cycle::Headers;
use endpoint_picker::decision::Outcome;
use endpoint_picker::explanation::Explanation;
use endpoint_picker::pool::Pool;
use endpoint_picker::rejection::Rejection;
use endpoint_picker::subset::Subset;
use endpoint_picker_wire::v1;

use self::scene::Scene;

/// How often the request is decided to tell how likely each choice is.
const DRAWS: u64 = 1000;

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
    pool: Pool,
    path: String,
    seed: u64,
    /// What the endpoints' KV usage is from.
    kv_usage_metrics: Vec<v1::MetricUse>,
    /// Or why it was refused before there was anything to choose.
    told: Result<Told, Rejection>,
}

/// What was decided about a request that could be read.
#[derive(Clone, Debug)]
struct Told {
    asked: Option<String>,
    model: String,
    priority: i32,
    prompt_tokens: u64,
    acting: Choice,
    /// What a configuration on trial would do, or why it is left out.
    shadow: Option<Result<Tried, String>>,
}

/// What one configuration makes of the request.
#[derive(Clone, Debug)]
struct Choice {
    explanation: Explanation,
    /// For the destination.
    headers: Vec<(&'static str, String)>,
    /// How many of [`DRAWS`] went to each endpoint, in the pool's order.
    draws: Vec<u64>,
}

impl Choice {
    fn is_routed(&self) -> bool {
        matches!(self.explanation.outcome, Outcome::Route(_))
    }
}

/// What a configuration on trial would make of it.
#[derive(Clone, Debug)]
struct Tried {
    choice: Choice,
    /// Whether that is what the acting one does.
    agrees: bool,
    /// On how many of [`DRAWS`] it agrees.
    agreed: u64,
}

impl Explained {
    /// Whether the request goes to an endpoint.
    pub fn is_routed(&self) -> bool {
        self.told.as_ref().is_ok_and(|told| told.acting.is_routed())
    }
}

/// Decides a request by a snapshot that has a topology.
pub fn explain(mut snapshot: v1::Snapshot, asked: &Asked) -> Result<Explained, ExplainError> {
    let kv_usage_metrics = core::mem::take(&mut snapshot.kv_usage_metrics);
    let mut scene = Scene::of(snapshot).map_err(ExplainError)?;
    let headers = Headers(&asked.headers);
    for (body, endpoint) in &asked.before {
        scene.remember(asked, headers, body, *endpoint)?;
    }
    let told = scene.tell(asked, headers);
    Ok(Explained { path: asked.path.clone(), seed: asked.seed, kv_usage_metrics, pool: scene.pool, told })
}

/// Why a request cannot be decided again.
#[derive(Debug)]
pub struct ExplainError(String);

impl fmt::Display for ExplainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for ExplainError {}
