//! The API's paths.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::routing::get;

use super::access::check::{Access, Right, check};
use super::changes;
use super::error::error_response;
use super::pools::{routes, snapshot};
use super::reports::receive;
use super::state::ApiState;
use super::{health, metrics};
use crate::page;

/// All routes. Health checks need no credentials; every other request must pass `access`.
pub fn router(state: Arc<ApiState>, access: Access) -> Router {
    let access = Arc::new(access);
    let guard = |right| from_fn_with_state((Arc::clone(&access), right), check);
    let read = Router::new()
        .route("/v1/pools/{pool}/snapshot", get(snapshot::get))
        .route("/metrics", get(metrics::text::metrics))
        .merge(routes::routes())
        .merge(page::routes())
        .route_layer(guard(Right::Read));
    let write =
        receive::routes(state.max_report_bytes).merge(changes::routes()).route_layer(guard(Right::Write));
    read.merge(write)
        .merge(health_routes())
        .fallback(|| async {
            let allowed = "/, /v1/pools, /v1/pools/{pool} and its /snapshot, /history, /report and /changes, /healthz, \
                           /readyz and /metrics";
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
