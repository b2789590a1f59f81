//! `POST /v1/pools/{pool}/records`: a proxy sends finished requests of a pool that is recorded.

use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use endpoint_picker_wire::RECORD_FORMAT;
use endpoint_picker_wire::record::Records;

use super::{ApiState, Rejection, check_format, error_response, read_message};

/// Maximum size of a message, in bytes. A proxy sends at most half of it.
const MAX_BYTES: usize = 4 << 20;

pub(super) fn routes() -> Router<Arc<ApiState>> {
    Router::new().route("/v1/pools/{pool}/records", post(receive)).layer(DefaultBodyLimit::max(MAX_BYTES))
}

async fn receive(
    State(state): State<Arc<ApiState>>,
    pool: Result<Path<String>, PathRejection>,
    request: Request,
) -> Response {
    let read = read_message(&state, request, "record", &format!("{MAX_BYTES} bytes")).await;
    match read.and_then(|records| take(&state, pool, records)) {
        Ok(()) => StatusCode::NO_CONTENT.into_response(),
        Err((status, problem)) => error_response(status, &problem),
    }
}

fn take(
    state: &ApiState,
    pool: Result<Path<String>, PathRejection>,
    records: Records,
) -> Result<(), Rejection> {
    check_format("record", records.format, RECORD_FORMAT)?;
    let not_found = |problem: &str| (StatusCode::NOT_FOUND, problem.to_owned());
    let recorder =
        state.recorder.as_ref().ok_or_else(|| not_found("requests are not recorded (--record)"))?;
    let publisher = pool.ok().and_then(|Path(name)| state.pools.publisher(&name));
    let published = publisher.and_then(|publisher| publisher.published());
    let published = published.ok_or_else(|| not_found("no such pool"))?;
    if published.topology().policy.as_ref().is_none_or(|policy| policy.record.is_none()) {
        return Err(not_found("the pool is not recorded"));
    }
    let full = |_| (StatusCode::SERVICE_UNAVAILABLE, "the record is not written fast enough".to_owned());
    recorder.take(&published, records).map_err(full)
}
