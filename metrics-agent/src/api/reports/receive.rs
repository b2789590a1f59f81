//! `POST /v1/pools/{pool}/report`

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use endpoint_picker_wire::report::Report;

use crate::api::error::error_response;
use crate::api::protobuf::{self, Refusal};
use crate::api::state::ApiState;

/// The route for reports of at most `max_bytes` bytes.
pub(in crate::api) fn routes(max_bytes: usize) -> Router<Arc<ApiState>> {
    Router::new().route("/v1/pools/{pool}/report", post(receive)).layer(DefaultBodyLimit::max(max_bytes))
}

async fn receive(
    State(state): State<Arc<ApiState>>,
    pool: Result<Path<String>, PathRejection>,
    request: Request,
) -> Response {
    let limit = format!("{} bytes (--max-report-bytes)", state.max_report_bytes);
    let read = protobuf::read(&state, request, "report", &limit).await;
    let (outcome, response) = match read.and_then(|report| store(&state, pool, report)) {
        Ok(()) => ("accepted", StatusCode::NO_CONTENT.into_response()),
        Err((status, problem)) => ("refused", error_response(status, &problem)),
    };
    state.metrics.count_report(outcome);
    response
}

fn store(state: &ApiState, pool: Result<Path<String>, PathRejection>, report: Report) -> Result<(), Refusal> {
    let publisher = pool.ok().and_then(|Path(name)| state.pools.publisher(&name));
    let published = publisher.and_then(|publisher| publisher.published());
    let Some(published) = published else {
        return Err((StatusCode::NOT_FOUND, "no such pool".to_owned()));
    };
    let added = state.reports.add(&published.topology().pool, report);
    added.map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))
}
