//! `POST /v1/pools/{pool}/changes`: a proxy sends its own changes and gets those of others.

use core::time::Duration;
use std::sync::Arc;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{DefaultBodyLimit, FromRequest, Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use endpoint_picker_wire::changes::{Exchange, Feed};
use endpoint_picker_wire::{CHANGES_FORMAT, Message};
use tokio::time::error::Elapsed;

use crate::api::error::error_response;
use crate::api::state::ApiState;

const PROTOBUF: &str = "application/x-protobuf";

/// Largest request, in bytes. A proxy sends half as many at most.
const MAX_BYTES: usize = 1 << 20;

/// Longest name of a proxy, in bytes.
const MAX_NAME_BYTES: usize = 256;

pub(super) fn routes() -> Router<Arc<ApiState>> {
    Router::new().route("/v1/pools/{pool}/changes", post(exchange)).layer(DefaultBodyLimit::max(MAX_BYTES))
}

async fn exchange(
    State(state): State<Arc<ApiState>>,
    pool: Result<Path<String>, PathRejection>,
    headers: HeaderMap,
    request: Request,
) -> Response {
    let body = tokio::time::timeout(state.body_timeout, Bytes::from_request(request, &())).await;
    let result = read(&state, &headers, body).and_then(|exchange| feed(&state, pool, exchange));
    state.metrics.count_exchange(if result.is_ok() { "accepted" } else { "refused" });
    match result {
        Ok(feed) => ([(header::CONTENT_TYPE, PROTOBUF)], feed.encode_to_vec()).into_response(),
        Err((status, problem)) => error_response(status, &problem),
    }
}

/// The status and the problem of an error response.
type Refusal = (StatusCode, String);

fn read(
    state: &ApiState,
    headers: &HeaderMap,
    body: Result<Result<Bytes, BytesRejection>, Elapsed>,
) -> Result<Exchange, Refusal> {
    // A browser does not let a web page send this type to another origin without a CORS preflight, which the agent never allows.
    if headers.get(header::CONTENT_TYPE).is_none_or(|kind| kind != PROTOBUF) {
        return Err((StatusCode::UNSUPPORTED_MEDIA_TYPE, format!("the content-type must be {PROTOBUF}")));
    }
    let body = body.map_err(|_| {
        let limit = state.body_timeout;
        (
            StatusCode::REQUEST_TIMEOUT,
            format!("the changes were not complete within {limit:?} (--idle-timeout)"),
        )
    })?;
    let body = body.map_err(|rejection| match rejection.status() {
        StatusCode::PAYLOAD_TOO_LARGE => (
            StatusCode::PAYLOAD_TOO_LARGE,
            format!("the changes are larger than the allowed {MAX_BYTES} bytes"),
        ),
        status => (status, rejection.body_text()),
    })?;
    let bad = |problem| (StatusCode::BAD_REQUEST, problem);
    let exchange =
        Exchange::decode(body).map_err(|error| bad(format!("the changes are malformed: {error}")))?;
    if exchange.format != CHANGES_FORMAT {
        let found = exchange.format;
        let problem = format!(
            "the changes have format {found}, this agent reads format {CHANGES_FORMAT}: update the older side"
        );
        return Err(bad(problem));
    }
    let name_bytes = exchange.proxy.len();
    if name_bytes > MAX_NAME_BYTES {
        let problem =
            format!("the proxy's name has {name_bytes} bytes; at most {MAX_NAME_BYTES} are allowed");
        return Err(bad(problem));
    }
    Ok(exchange)
}

/// Adds the proxy's changes to the pool's feed, and reads those of others.
fn feed(
    state: &ApiState,
    pool: Result<Path<String>, PathRejection>,
    exchange: Exchange,
) -> Result<Feed, Refusal> {
    let not_found = |problem: &str| (StatusCode::NOT_FOUND, problem.to_owned());
    let feeds = state.feeds.as_ref().ok_or_else(|| not_found("proxies do not share changes (--share)"))?;
    let publisher = pool.ok().and_then(|Path(name)| state.pools.publisher(&name));
    let published = publisher.and_then(|publisher| publisher.published());
    let published = published.ok_or_else(|| not_found("no such pool"))?;
    let shared = feeds.of(published.topology().pool.name());
    let Exchange { sender, proxy, positions, changes, age_ms, .. } = exchange;
    if let Some(changes) = changes {
        shared.publish(sender, Duration::from_millis(age_ms), changes);
    }
    let (position, deliveries) = shared.feed.read(sender, &proxy, &positions);
    Ok(Feed { format: CHANGES_FORMAT, position: Some(position), deliveries })
}
