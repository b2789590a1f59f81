//! `POST /v1/pools/{pool}/report`

use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::PathRejection;
use axum::extract::{DefaultBodyLimit, FromRequest, Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use endpoint_picker_wire::Message;
use endpoint_picker_wire::report::Report;

use crate::api::error::error_response;
use crate::api::state::ApiState;

const PROTOBUF: &str = "application/x-protobuf";

/// Where reports are taken, of at most so many bytes.
pub(in crate::api) fn routes(max_bytes: usize) -> Router<Arc<ApiState>> {
    Router::new().route("/v1/pools/{pool}/report", post(take)).layer(DefaultBodyLimit::max(max_bytes))
}

async fn take(
    State(state): State<Arc<ApiState>>,
    pool: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    request: Request,
) -> Response {
    let limit = state.body_timeout;
    let body = if let Ok(body) = tokio::time::timeout(limit, Bytes::from_request(request, &())).await {
        body.map_err(|rejection| match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => {
                let most = state.max_report_bytes;
                let problem =
                    format!("the report is larger than the allowed {most} bytes (--max-report-bytes)");
                (StatusCode::PAYLOAD_TOO_LARGE, problem)
            }
            status => (status, rejection.body_text()),
        })
    } else {
        let problem = format!("the report did not come whole within {limit:?} (--idle-timeout)");
        Err((StatusCode::REQUEST_TIMEOUT, problem))
    };
    let (outcome, answer) = match read(&state, pool, &headers, body) {
        Ok(()) => ("accepted", StatusCode::NO_CONTENT.into_response()),
        Err((status, problem)) => ("refused", error_response(status, &problem)),
    };
    state.metrics.count_report(outcome);
    answer
}

fn read(
    state: &ApiState,
    pool: Result<Path<String>, PathRejection>,
    headers: &HeaderMap,
    body: Result<Bytes, (StatusCode, String)>,
) -> Result<(), (StatusCode, String)> {
    // A web page that the operator has open cannot send this type here without being asked whether it may.
    if headers.get(header::CONTENT_TYPE).is_none_or(|kind| kind != PROTOBUF) {
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, format!("the content-type allowed is {PROTOBUF}")));
    }
    let body = body?;
    let publisher = pool.ok().and_then(|Path(name)| state.pools.publisher(&name));
    let published = publisher.and_then(|publisher| publisher.published());
    let Some(published) = published else {
        return Err((StatusCode::NOT_FOUND, "no such pool".to_owned()));
    };
    let report = Report::decode(body)
        .map_err(|error| (StatusCode::BAD_REQUEST, format!("the report is malformed: {error}")))?;
    let taken = state.reports.take(&published.topology().pool, report);
    taken.map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))
}
