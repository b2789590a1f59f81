//! What the agent answers over HTTP.

pub mod access;
mod answer;
mod health;
pub mod hosts;
pub mod listen;
mod snapshot;

use core::time::Duration;
use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

use self::access::Access;
use crate::discovery::Discovered;
use crate::manifests::watch::Planned;
use crate::page::{self, History};
use crate::report::{self, Reports};
use crate::served::Pools;
use crate::telemetry::Telemetry;

/// What all requests share.
#[derive(Debug)]
pub struct Shared {
    /// The pools by name.
    pub pools: Arc<Pools>,
    /// The pools' plans.
    pub plans: watch::Receiver<Planned>,
    /// The endpoint sets.
    pub sets: watch::Receiver<Discovered>,
    /// One permit for each request that may wait for news.
    pub waiters: Semaphore,
    /// What proxies tell of themselves.
    pub reports: Arc<Reports>,
    /// The last minutes, for the page.
    pub history: Arc<History>,
    /// Largest report of a proxy.
    pub max_report_bytes: usize,
    /// Longest time in which the body of a request must have come.
    pub body_timeout: Duration,
    /// Cancelled when the agent is about to end.
    pub draining: CancellationToken,
    /// The agent's own metrics.
    pub telemetry: Arc<Telemetry>,
}

/// All routes. Health checks are answered to everyone, all else to whom `access` allows.
pub fn router(shared: Arc<Shared>, access: Access) -> Router {
    let guarded = Router::new()
        .route("/v1/pools/{pool}/snapshot", get(snapshot::get))
        .route("/metrics", get(health::metrics))
        .merge(report::routes(shared.max_report_bytes))
        .merge(page::routes())
        .route_layer(from_fn_with_state(Arc::new(access), access::check));
    let open = Router::new().route("/healthz", get(health::alive)).route("/readyz", get(health::ready));
    guarded
        .merge(open)
        .fallback(|| async {
            let allowed = "/, /v1/pools, /v1/pools/{pool} and its /snapshot, /history and /report, /healthz, /readyz \
                           and /metrics";
            refuse(StatusCode::NOT_FOUND, &format!("no such path; allowed are {allowed}"))
        })
        .with_state(shared)
}

/// An error as JSON: `{"error": "…"}`.
pub(crate) fn refuse(status: StatusCode, problem: &str) -> Response {
    (status, Json(serde_json::json!({"error": problem}))).into_response()
}
