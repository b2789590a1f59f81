//! The API's paths.

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::middleware::from_fn_with_state;
use axum::routing::get;

use super::access::check::{Access, check};
use super::changes;
use super::error::error_response;
use super::pools::{routes, snapshot};
use super::reports::receive;
use super::state::ApiState;
use super::{health, metrics};
use crate::page;

/// All routes. Health checks need no credentials; every other request must pass `access`.
pub fn router(state: Arc<ApiState>, access: Access) -> Router {
    let guarded = Router::new()
        .route("/v1/pools/{pool}/snapshot", get(snapshot::get))
        .route("/metrics", get(metrics::text::metrics))
        .merge(receive::routes(state.max_report_bytes))
        .merge(changes::routes())
        .merge(routes::routes())
        .merge(page::routes())
        .route_layer(from_fn_with_state(Arc::new(access), check));
    let open = Router::new().route("/healthz", get(health::alive)).route("/readyz", get(health::ready));
    guarded
        .merge(open)
        .fallback(|| async {
            let allowed = "/, /v1/pools, /v1/pools/{pool} and its /snapshot, /history, /report and /changes, /healthz, \
                           /readyz and /metrics";
            error_response(StatusCode::NOT_FOUND, &format!("no such path; allowed are {allowed}"))
        })
        .with_state(state)
}
