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

/// The route for reports of at most `max_bytes` bytes.
pub(in crate::api) fn routes(max_bytes: usize) -> Router<Arc<ApiState>> {
    Router::new().route("/v1/pools/{pool}/report", post(receive)).layer(DefaultBodyLimit::max(max_bytes))
}

async fn receive(
    State(state): State<Arc<ApiState>>,
    pool: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    request: Request,
) -> Response {
    let limit = state.body_timeout;
    let body = if let Ok(body) = tokio::time::timeout(limit, Bytes::from_request(request, &())).await {
        body.map_err(|rejection| match rejection.status() {
            StatusCode::PAYLOAD_TOO_LARGE => {
                let max = state.max_report_bytes;
                let problem =
                    format!("the report is larger than the allowed {max} bytes (--max-report-bytes)");
                (StatusCode::PAYLOAD_TOO_LARGE, problem)
            }
            status => (status, rejection.body_text()),
        })
    } else {
        let problem = format!("the report was not complete within {limit:?} (--idle-timeout)");
        Err((StatusCode::REQUEST_TIMEOUT, problem))
    };
    let (outcome, response) = match store(&state, pool, &headers, body) {
        Ok(()) => ("accepted", StatusCode::NO_CONTENT.into_response()),
        Err((status, problem)) => ("refused", error_response(status, &problem)),
    };
    state.metrics.count_report(outcome);
    response
}

/// Stores a report, or returns the status and the problem of the error response.
fn store(
    state: &ApiState,
    pool: Result<Path<String>, PathRejection>,
    headers: &HeaderMap,
    body: Result<Bytes, (StatusCode, String)>,
) -> Result<(), (StatusCode, String)> {
    // A browser does not let a web page send this type to another origin without a CORS preflight, which the agent never allows.
    if headers.get(header::CONTENT_TYPE).is_none_or(|kind| kind != PROTOBUF) {
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, format!("the content-type must be {PROTOBUF}")));
    }
    let body = body?;
    let publisher = pool.ok().and_then(|Path(name)| state.pools.publisher(&name));
    let published = publisher.and_then(|publisher| publisher.published());
    let Some(published) = published else {
        return Err((StatusCode::NOT_FOUND, "no such pool".to_owned()));
    };
    let report = Report::decode(body)
        .map_err(|error| (StatusCode::BAD_REQUEST, format!("the report is malformed: {error}")))?;
    let added = state.reports.add(&published.topology().pool, report);
    added.map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))
}
