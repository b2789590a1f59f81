//! Pools as the API returns them.

pub(super) mod build;
pub mod history;
pub(super) mod snapshot;
mod state_times;

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Json, Response};
use axum::routing::get;
use metrics_agent_status::pool::PoolStatus;

use super::{ApiState, error_response};

pub(in crate::api) fn routes() -> Router<Arc<ApiState>> {
    Router::new()
        .route("/v1/pools", get(pools))
        .route("/v1/pools/{pool}", get(pool))
        .route("/v1/pools/{pool}/history", get(history))
}

async fn pools(State(state): State<Arc<ApiState>>) -> Response {
    let names: Vec<_> = state.pools.publishers().into_iter().map(|(name, _)| name).collect();
    let refused = build::of_refusals(&state.refusals());
    let mut list = serde_json::json!({
        "version": env!("CARGO_PKG_VERSION"),
        "pools": names,
        "refused": refused,
        "unknown_pools": state.reports.unknown_pools.recent(),
    });
    if let Some(extension) = &state.extension {
        list["extension"] = serde_json::json!(extension.now());
    }
    fresh(Json(list))
}

async fn pool(State(state): State<Arc<ApiState>>, pool: Result<Path<String>, PathRejection>) -> Response {
    match find(&state, pool) {
        Ok(status) => fresh(Json(status)),
        Err((code, problem)) => error_response(code, &problem),
    }
}

async fn history(State(state): State<Arc<ApiState>>, pool: Result<Path<String>, PathRejection>) -> Response {
    match find(&state, pool) {
        Ok(status) => {
            let json = state.history.json(&status.pool);
            fresh(([(header::CONTENT_TYPE, "application/json")], json))
        }
        Err((code, problem)) => error_response(code, &problem),
    }
}

/// The pool's status, or why there is none.
fn find(
    state: &ApiState,
    pool: Result<Path<String>, PathRejection>,
) -> Result<PoolStatus, (StatusCode, String)> {
    let Ok(Path(name)) = pool else {
        return Err((StatusCode::BAD_REQUEST, "the pool's name is not UTF-8".to_owned()));
    };
    let Some(publisher) = state.pools.publisher(&name) else {
        let names: Vec<_> = state.pools.publishers().into_iter().map(|(name, _)| name).collect();
        let allowed = if names.is_empty() { "none yet; see /readyz".to_owned() } else { names.join(", ") };
        return Err((StatusCode::NOT_FOUND, format!("no such pool; allowed: {allowed}")));
    };
    state.status(&publisher).ok_or_else(|| {
        let problem = "the pool has no endpoint set yet; see /readyz";
        (StatusCode::SERVICE_UNAVAILABLE, problem.to_owned())
    })
}

/// A response that must not be cached.
fn fresh(response: impl IntoResponse) -> Response {
    ([(header::CACHE_CONTROL, "no-store")], response).into_response()
}
