//! `GET /v1/pools/{pool}/cached-prefixes?log=<u64>&version=<u64>&wait_ms=<n>`
//!
//! The prefixes of prompts that the KV caches of a pool's endpoints have, by their text and by their token
//! ids. The client names the log and version of its last response, and the response has the changes since. It
//! comes with the first change, or as 204 after `wait_ms` without one; in a batch, and while too many
//! requests wait, it comes at once. Without log and version it has everything.

use core::time::Duration;
use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Extension, Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use metrics_agent_kv_events::KvEvents;
use metrics_agent_kv_events::prefixes::readers::{PrefixesRead, ReaderPosition};
use serde::Deserialize;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep, sleep_until};

use super::access::Right;
use super::batch::InBatch;
use super::{ApiState, PROTOBUF, Rejection, error_response};
use crate::publish::pool_publisher::PoolPublisher;

/// Maximum wait. A longer `wait_ms` is reduced to it.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// Time for which changes are gathered before a client that waits gets them, so that it gets ten messages a
/// second at most. Servers publish some changes at each step of their engines.
const GATHER: Duration = Duration::from_millis(100);

const ALLOWED: &str = "log, version and wait_ms, each at most once, decimal from 0 to 18446744073709551615";

/// The position of the client, and how long it waits for changes.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PrefixesQuery {
    log: Option<u64>,
    version: Option<u64>,
    #[serde(default)]
    wait_ms: u64,
}

pub(super) async fn get(
    State(state): State<Arc<ApiState>>,
    pool: Result<Path<String>, PathRejection>,
    query: Result<Query<PrefixesQuery>, QueryRejection>,
    in_batch: Option<Extension<InBatch>>,
    Extension(right): Extension<Right>,
) -> Response {
    let wait = |query: &PrefixesQuery| {
        let wait = Duration::from_millis(query.wait_ms).min(MAX_WAIT);
        if in_batch.is_some() { Duration::ZERO } else { wait }
    };
    let read = async {
        let events = state.kv_events.clone();
        let events = events.ok_or_else(|| not_found("KV-cache events are not followed (--kv-events)"))?;
        let publisher = pool.ok().and_then(|Path(name)| state.pools.publisher(&name));
        let publisher = publisher.ok_or_else(|| not_found("no such pool"))?;
        let Query(query) = query.map_err(|rejection| {
            (StatusCode::BAD_REQUEST, format!("{}; allowed are {ALLOWED}", rejection.body_text()))
        })?;
        let position = query.log.zip(query.version).map(|(log, version)| ReaderPosition { log, version });
        read(&state, events, &publisher, position, (wait(&query), right)).await
    };
    match read.await {
        Ok(Some(message)) => ([(header::CONTENT_TYPE, PROTOBUF)], message).into_response(),
        Ok(None) => StatusCode::NO_CONTENT.into_response(),
        Err((status, problem)) => error_response(status, &problem),
    }
}

fn not_found(problem: &str) -> Rejection {
    (StatusCode::NOT_FOUND, problem.to_owned())
}

/// Waits for a change, if the client has a place to wait; `None`: there was none in this time.
async fn read(
    state: &ApiState,
    events: Arc<KvEvents>,
    publisher: &PoolPublisher,
    mut position: Option<ReaderPosition>,
    (wait, right): (Duration, Right),
) -> Result<Option<Vec<u8>>, Rejection> {
    let mut versions = events.versions();
    // Everything comes at once.
    let waits = position.is_some() && !wait.is_zero();
    let place = waits.then(|| state.waiters.place(right)).flatten();
    let wait = if place.is_some() { wait } else { Duration::ZERO };
    let deadline = Instant::now() + wait;
    let _waiting = place.map(|place| (place, state.metrics.count_waiter()));
    sleep(GATHER.min(wait)).await;
    loop {
        versions.mark_unchanged();
        let is_last = Instant::now() >= deadline || state.draining.is_cancelled();
        let published = publisher.published();
        let published = published.ok_or_else(|| {
            (StatusCode::SERVICE_UNAVAILABLE, "the pool has no endpoints yet; see /readyz".to_owned())
        })?;
        let events = Arc::clone(&events);
        // Everything may be some megabytes.
        let reading = spawn_blocking(move || {
            let pool = &published.topology().pool;
            events.read_prefixes(pool.name(), pool.as_slice(), position, is_last)
        });
        match reading.await {
            Ok(PrefixesRead::Message(message)) => return Ok(Some(message)),
            Ok(PrefixesRead::Nothing(version)) => {
                position = position.map(|position| ReaderPosition { version, ..position });
            }
            Err(error) => return Err((StatusCode::INTERNAL_SERVER_ERROR, error.to_string())),
        }
        if is_last {
            return Ok(None);
        }
        tokio::select! {
            _ = versions.changed() => sleep(GATHER).await,
            () = sleep_until(deadline) => {}
            () = state.draining.cancelled() => {}
        }
    }
}
