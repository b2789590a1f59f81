//! `POST /v1/pools/{pool}/changes`: a proxy sends its own changes and gets the changes of others.

use core::time::Duration;
use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use endpoint_picker_wire::changes::{Feed, Sync};
use endpoint_picker_wire::{CHANGES_FORMAT, Message};
use metrics_agent_support::runtime;

use super::{ApiState, PROTOBUF, Rejection, check_format, error_response};
use crate::api;
use crate::sharing::MAX_MESSAGE_BYTES;

/// Maximum size of a request, in bytes. A proxy sends at most half of it.
const MAX_BYTES: usize = MAX_MESSAGE_BYTES;

/// Maximum length of the name of a proxy, in bytes.
const MAX_NAME_BYTES: usize = 256;

pub(super) fn routes() -> Router<Arc<ApiState>> {
    Router::new().route("/v1/pools/{pool}/changes", post(sync)).layer(DefaultBodyLimit::max(MAX_BYTES))
}

async fn sync(
    State(state): State<Arc<ApiState>>,
    pool: Result<Path<String>, PathRejection>,
    request: Request,
) -> Response {
    let read = api::read_message(&state, request, "sync", &format!("{MAX_BYTES} bytes")).await;
    let result = read.and_then(check).and_then(|sync| feed(&state, pool, sync));
    state.metrics.count_exchange(if result.is_ok() { "accepted" } else { "refused" });
    match result {
        Ok(feed) => ([(header::CONTENT_TYPE, PROTOBUF)], feed.encode_to_vec()).into_response(),
        Err((status, problem)) => error_response(status, &problem),
    }
}

/// Refuses a sync that the agent cannot pass on.
fn check(sync: Sync) -> Result<Sync, Rejection> {
    check_format("sync", sync.format, CHANGES_FORMAT)?;
    let name_bytes = sync.proxy.len();
    if name_bytes > MAX_NAME_BYTES {
        let problem =
            format!("the proxy's name has {name_bytes} bytes; at most {MAX_NAME_BYTES} are allowed");
        return Err((StatusCode::BAD_REQUEST, problem));
    }
    Ok(sync)
}

/// Adds the proxy's changes to the pool's feed, and reads the changes of others.
fn feed(state: &ApiState, pool: Result<Path<String>, PathRejection>, sync: Sync) -> Result<Feed, Rejection> {
    let not_found = |problem: &str| (StatusCode::NOT_FOUND, problem.to_owned());
    let feeds = state.feeds.as_ref().ok_or_else(|| not_found("proxies do not share changes (--share)"))?;
    let publisher = pool.ok().and_then(|Path(name)| state.pools.publisher(&name));
    let published = publisher.and_then(|publisher| publisher.published());
    let published = published.ok_or_else(|| not_found("no such pool"))?;
    let name = published.topology().pool.name();
    let qualified_name = qualified_name(state, name).ok_or_else(|| not_found("no such pool"))?;
    let shared = feeds.of(name, &qualified_name);
    let Sync { sender, proxy, positions, changes, age_ms, .. } = sync;
    if let Some(changes) = changes {
        shared.publish(sender, Duration::from_millis(age_ms), &changes);
    }
    let (position, deliveries) = shared.feed.read(sender, &proxy, &positions);
    let since_epoch_ms = u64::try_from(runtime::since_epoch().as_millis()).unwrap_or(u64::MAX);
    Ok(Feed { format: CHANGES_FORMAT, position: Some(position), deliveries, since_epoch_ms })
}

/// The name of a served pool unique among all agents.
fn qualified_name(state: &ApiState, name: &str) -> Option<String> {
    let plan = state.plans.borrow();
    let pool = plan.as_ref().ok()?.pools.iter().find(|pool| pool.name == name)?;
    Some(pool.qualified_name())
}
