//! The agent's HTTP API: snapshots for filters, changes that proxies share, reports of proxies, health
//! checks, metrics and the live page.

pub mod access;
mod batch;
mod cached_prefixes;
mod changes;
pub mod connections;
mod health;
pub mod metrics;
mod models;
pub mod pools;
mod records;
pub mod reports;
pub mod waiters;

use core::sync::atomic::AtomicBool;
use core::time::Duration;
use std::sync::Arc;

use access::{Access, Right, check};
use axum::Router;
use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::{StatusCode, header};
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use endpoint_picker_wire::{Message, OTHER_FORMAT_STATUS};
use metrics::ApiMetrics;
use metrics_agent_catalogue::watch::PlanResult;
use metrics_agent_catalogue::{Refusal, Refusals};
use metrics_agent_gateway::server::status::SharedStatus;
use metrics_agent_kv_events::KvEvents;
use metrics_agent_sources::endpoints::{EndpointSet, Unresolved, WatchedFile};
use metrics_agent_sources::kubernetes::PendingPods;
use metrics_agent_sources::manifests::Problem;
use metrics_agent_status::pool::{PoolStatus, UnresolvedStatus};
use metrics_agent_support::runtime::Clock;
use pools::history::History;
use pools::{build, snapshot};
use prometheus_client::registry::Registry;
use reports::Reports;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use waiters::Waiters;

use crate::page;
use crate::publish::Pools;
use crate::publish::pool_publisher::PoolPublisher;
use crate::record::Recorder;
use crate::sharing::Feeds;

/// All routes. Health checks need no credentials; every other request must pass `access`.
pub fn router(state: Arc<ApiState>, access: Access) -> Router {
    let access = Arc::new(access);
    let guard = |right| from_fn_with_state((Arc::clone(&access), right), check);
    let snapshots = Router::new()
        .route("/v1/pools/{pool}/snapshot", get(snapshot::get))
        .route("/v1/pools/{pool}/cached-prefixes", get(cached_prefixes::get))
        .route_layer(guard(Right::Read));
    let write = reports::routes().merge(changes::routes()).merge(records::routes());
    let write = write.route_layer(guard(Right::Write));
    // The requests of proxies, each of which can be a part of a batch.
    let proxies = snapshots.merge(write);
    let read = Router::new()
        .route("/metrics", get(metrics::metrics))
        .merge(pools::routes())
        .merge(models::routes())
        .merge(page::routes())
        .merge(batch::routes(proxies.clone().with_state(Arc::clone(&state))))
        .route_layer(guard(Right::Read));
    read.merge(proxies)
        .merge(health_routes())
        .fallback(|| async {
            let allowed = "/, /v1/pools, /v1/pools/{pool} and its /snapshot, /cached-prefixes, /history, /report, /changes and /records, \
                           /v1/models, /v1/batch, /healthz, /readyz and /metrics";
            error_response(StatusCode::NOT_FOUND, &format!("no such path; allowed are {allowed}"))
        })
        .with_state(state)
}

/// Health checks alone, for a listener of their own.
pub fn health_router(state: Arc<ApiState>) -> Router {
    let fallback =
        || async { error_response(StatusCode::NOT_FOUND, "no such path; allowed are /healthz and /readyz") };
    health_routes().fallback(fallback).with_state(state)
}

fn health_routes() -> Router<Arc<ApiState>> {
    Router::new().route("/healthz", get(health::alive)).route("/readyz", get(health::ready))
}

/// An error as JSON: `{"error": "…"}`.
fn error_response(status: StatusCode, problem: &str) -> Response {
    (status, Json(serde_json::json!({"error": problem}))).into_response()
}

/// State that all requests share.
#[derive(Debug)]
pub struct ApiState {
    /// The clock of readings and reports.
    pub clock: Clock,
    /// The pools by name.
    pub pools: Arc<Pools>,
    /// The newest plan of the manifests.
    pub plans: watch::Receiver<PlanResult>,
    /// The refused objects of the cluster and the refused manifest files.
    pub refused_manifests: watch::Receiver<Refusals>,
    /// The endpoints file, once it was read.
    pub endpoints_file: watch::Receiver<Option<WatchedFile>>,
    /// The newest endpoint set.
    pub endpoints: watch::Receiver<EndpointSet>,
    /// Host names of model servers that have a problem.
    pub unresolved: watch::Receiver<Arc<[Unresolved]>>,
    /// The pods of a cluster that were not listed yet; `None`: no cluster is watched.
    pub pending_pods: Option<PendingPods>,
    /// Whether the agent was ready once.
    pub was_ready: AtomicBool,
    /// The places of requests that wait for a newer snapshot or cached prefixes.
    pub waiters: Waiters,
    /// Reports of proxies.
    pub reports: Arc<Reports>,
    /// The changes that proxies share; `None`: they do not share any.
    pub feeds: Option<Arc<Feeds>>,
    /// Takes finished requests; `None`: requests are not recorded.
    pub recorder: Option<Arc<Recorder>>,
    /// The contents of servers' KV caches; `None`: their events are not followed.
    pub kv_events: Option<Arc<KvEvents>>,
    /// The last minutes, for the page.
    pub history: Arc<History>,
    /// Envoy Gateway's calls, if the agent is its extension server.
    pub extension: Option<SharedStatus>,
    /// Maximum time in which the body of a request must arrive.
    pub body_timeout: Duration,
    /// Cancelled when the agent is about to end.
    pub draining: CancellationToken,
    /// Counters of the API.
    pub metrics: ApiMetrics,
    /// All counters of the agent.
    pub registry: Registry,
}

impl ApiState {
    /// A pool with its proxies' reports and what they share; `None` until it has an endpoint set.
    fn status(&self, publisher: &PoolPublisher) -> Option<PoolStatus> {
        let mut status =
            build::of_pool(publisher, &self.reports, self.history.state_times(), self.clock.now())?;
        let shared = self.feeds.as_ref().map(|feeds| feeds.status(&status.pool));
        status.unknown_pools = self.reports.unknown_pools.recent();
        status.sharing = shared.map(build::of_shared);
        status.unresolved = self.unresolved_of(&status.pool);
        if let Some(events) = &self.kv_events {
            build::add_kv_events(&mut status, events, self.clock.now());
        }
        Some(status)
    }

    /// The refused objects of the cluster and the refused files.
    fn refusals(&self) -> Vec<Refusal> {
        let mut refusals = self.refused_manifests.borrow().to_vec();
        if let Some(problem) = self.problem_of_endpoints() {
            let mut publishers = self.pools.publishers().into_iter();
            let is_served = publishers.any(|(_, publisher)| publisher.published().is_some());
            refusals.extend(Refusal::of_files(&problem.into(), is_served));
        }
        refusals
    }

    /// Why the endpoints file is refused, by itself or with the newest plan.
    fn problem_of_endpoints(&self) -> Option<Problem> {
        let file = self.endpoints_file.borrow().clone()?;
        file.problem.or_else(|| {
            let plan = self.plans.borrow().clone().ok()?;
            let without_port = plan.check_ports(self.endpoints.borrow().as_ref().ok()?).err()?;
            Some(Problem::of_file(&file.path, without_port))
        })
    }

    /// The host names with a problem whose servers belong to this pool.
    fn unresolved_of(&self, pool: &str) -> Vec<UnresolvedStatus> {
        let unresolved = Arc::clone(&self.unresolved.borrow());
        if unresolved.is_empty() {
            return Vec::new();
        }
        let plan = self.plans.borrow().clone();
        let plan = plan.ok().and_then(|plan| plan.pools.iter().find(|plan| plan.name == pool).cloned());
        let Some(plan) = plan else { return Vec::new() };
        let belongs =
            |name: &&Unresolved| !plan.members.among(core::slice::from_ref(&name.placeholder)).is_empty();
        unresolved.iter().filter(belongs).map(build::of_unresolved).collect()
    }
}

/// Refuses a message of another format than this agent reads. The error calls the message `name`.
fn check_format(name: &str, found: u32, read: u32) -> Result<(), Rejection> {
    if found == read {
        return Ok(());
    }
    let status = StatusCode::from_u16(OTHER_FORMAT_STATUS).unwrap_or(StatusCode::BAD_REQUEST);
    let problem =
        format!("the {name} has format {found}, this agent reads format {read}: update the older side");
    Err((status, problem))
}

/// The type of the messages.
const PROTOBUF: &str = "application/x-protobuf";

/// The status and the problem of an error response.
type Rejection = (StatusCode, String);

/// Reads the message in a request's body. Errors call it `name`; `limit` is the most bytes that its route
/// allows, with the flag that sets them.
async fn read_message<M: Message + Default>(
    state: &ApiState,
    request: Request,
    name: &str,
    limit: &str,
) -> Result<M, Rejection> {
    // A browser does not let a web page send this type to another origin without a CORS preflight, which the
    // agent never allows.
    let is_protobuf = request.headers().get(header::CONTENT_TYPE).is_some_and(|kind| kind == PROTOBUF);
    let body = tokio::time::timeout(state.body_timeout, Bytes::from_request(request, &())).await;
    if !is_protobuf {
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, format!("the content-type must be {PROTOBUF}")));
    }
    let body = body.map_err(|_| {
        let limit = state.body_timeout;
        let problem = format!("the {name} was not complete within {limit:?} (--idle-timeout)");
        (StatusCode::REQUEST_TIMEOUT, problem)
    })?;
    let body = body.map_err(|rejection| match rejection.status() {
        status @ StatusCode::PAYLOAD_TOO_LARGE => {
            (status, format!("the {name} is larger than the allowed {limit}"))
        }
        status => (status, rejection.body_text()),
    })?;
    M::decode(body).map_err(|error| (StatusCode::BAD_REQUEST, format!("the {name} is malformed: {error}")))
}
