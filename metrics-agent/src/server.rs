//! What the agent answers over HTTP.

mod health;
mod snapshot;

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use tokio::sync::{Semaphore, watch};
use tokio_util::sync::CancellationToken;

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
    /// Cancelled when the agent is about to end.
    pub draining: CancellationToken,
    /// The agent's own metrics.
    pub telemetry: Arc<Telemetry>,
}

/// All routes.
pub fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/v1/pools/{pool}/snapshot", get(snapshot::get))
        .route("/healthz", get(health::alive))
        .route("/readyz", get(health::ready))
        .route("/metrics", get(health::metrics))
        .merge(report::routes())
        .merge(page::routes())
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
