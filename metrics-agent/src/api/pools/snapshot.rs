//! `GET /v1/pools/{pool}/snapshot?topology=<u64>&readings=<u64>&wait_ms=<n>`
//!
//! The client names the versions that it has. If the current versions differ, the response comes at once.
//! Otherwise it is the next version, or 204 if there is none within `wait_ms`, and at once in a batch and
//! while too many requests wait. It includes the topology only if the client has a different one.

use core::time::Duration;
use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Extension, Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tokio::sync::watch;

use crate::api::access::Right;
use crate::api::batch::InBatch;
use crate::api::{ApiState, error_response};
use crate::publish::snapshot::PoolSnapshot;

/// Maximum wait. A longer `wait_ms` is reduced to it.
const MAX_WAIT: Duration = Duration::from_secs(30);

const ALLOWED: &str =
    "topology, readings and wait_ms, each at most once, decimal from 0 to 18446744073709551615";

/// The versions of the client, and how long it waits for others.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct SnapshotQuery {
    topology: Option<u64>,
    readings: Option<u64>,
    #[serde(default)]
    wait_ms: u64,
}

enum SnapshotResult {
    Snapshot(Arc<PoolSnapshot>),
    NothingNew,
    NoEndpoints,
    TooManyWaiters,
}

pub(in crate::api) async fn get(
    State(state): State<Arc<ApiState>>,
    pool: Result<Path<String>, PathRejection>,
    query: Result<Query<SnapshotQuery>, QueryRejection>,
    in_batch: Option<Extension<InBatch>>,
    Extension(right): Extension<Right>,
) -> Response {
    let name = pool.map(|Path(name)| name).unwrap_or_default();
    let Some(publisher) = state.pools.publisher(&name) else {
        let names: Vec<_> = state.pools.publishers().into_iter().map(|(name, _)| name).collect();
        if names.is_empty() {
            state.metrics.count_snapshot("no_endpoints");
            return error_response(StatusCode::SERVICE_UNAVAILABLE, "there are no pools yet; see /readyz");
        }
        state.metrics.count_snapshot("unknown_pool");
        state.reports.unknown_pools.count(&name);
        return error_response(
            StatusCode::NOT_FOUND,
            &format!("no such pool; allowed: {}", names.join(", ")),
        );
    };
    let query = match query {
        Ok(Query(query)) if in_batch.is_some() => SnapshotQuery { wait_ms: 0, ..query },
        Ok(Query(query)) => query,
        Err(rejection) => {
            state.metrics.count_snapshot("bad_query");
            let problem = format!("{}; allowed are {ALLOWED}", rejection.body_text());
            return error_response(StatusCode::BAD_REQUEST, &problem);
        }
    };
    match wait_for_version(&state, publisher.subscribe(), query, right).await {
        SnapshotResult::Snapshot(published) => {
            state.metrics.count_snapshot("snapshot");
            let with_topology = query.topology != Some(published.versions().topology);
            let kind = [(header::CONTENT_TYPE, "application/x-protobuf")];
            (kind, published.bytes(with_topology)).into_response()
        }
        SnapshotResult::NothingNew => {
            state.metrics.count_snapshot("nothing_new");
            StatusCode::NO_CONTENT.into_response()
        }
        SnapshotResult::NoEndpoints => {
            state.metrics.count_snapshot("no_endpoints");
            error_response(StatusCode::SERVICE_UNAVAILABLE, "the pool has no endpoints yet; see /readyz")
        }
        // Not an error: the client has the newest version, and polls again after its usual pause.
        SnapshotResult::TooManyWaiters => {
            state.metrics.count_snapshot("too_many_waiters");
            StatusCode::NO_CONTENT.into_response()
        }
    }
}

async fn wait_for_version(
    state: &ApiState,
    mut pool: watch::Receiver<Option<Arc<PoolSnapshot>>>,
    query: SnapshotQuery,
    right: Right,
) -> SnapshotResult {
    match pool.borrow_and_update().as_ref() {
        None => return SnapshotResult::NoEndpoints,
        Some(now) if query.differs_from(now) => return SnapshotResult::Snapshot(Arc::clone(now)),
        Some(_) => {}
    }
    let wait = Duration::from_millis(query.wait_ms).min(MAX_WAIT);
    if wait.is_zero() || state.draining.is_cancelled() {
        return SnapshotResult::NothingNew;
    }
    let Some(_place) = state.waiters.place(right) else { return SnapshotResult::TooManyWaiters };
    let _waiter = state.metrics.count_waiter();
    let next_version = pool.wait_for(|now| now.as_ref().is_some_and(|now| query.differs_from(now)));
    tokio::select! {
        version = next_version => match version.as_deref() {
            Ok(Some(published)) => SnapshotResult::Snapshot(Arc::clone(published)),
            // The pool was removed.
            Ok(None) | Err(_) => SnapshotResult::NothingNew,
        },
        () = tokio::time::sleep(wait) => SnapshotResult::NothingNew,
        () = state.draining.cancelled() => SnapshotResult::NothingNew,
    }
}

impl SnapshotQuery {
    fn differs_from(self, now: &PoolSnapshot) -> bool {
        let now = now.versions();
        self.topology != Some(now.topology) || self.readings != Some(now.readings)
    }
}
