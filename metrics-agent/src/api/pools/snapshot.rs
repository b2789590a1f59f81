//! `GET /v1/pools/{pool}/snapshot?topology=<u64>&readings=<u64>&wait_ms=<n>`
//!
//! The asker names the versions it has. Other ones are answered at once; otherwise the answer is the next version,
//! or 204 when none came within `wait_ms`. The topology is part of the answer only when the asker has another one.

use core::time::Duration;
use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use tokio::sync::watch;

use crate::api::error::error_response;
use crate::api::state::ApiState;
use crate::publish::snapshot::PoolSnapshot;

/// Longest wait; a longer one is cut to it.
const MAX_WAIT: Duration = Duration::from_secs(30);

const ALLOWED: &str =
    "topology, readings and wait_ms, each at most once, decimal from 0 to 18446744073709551615";

/// What the asker has, and how long it would wait for something else.
#[derive(Clone, Copy, Deserialize)]
#[serde(deny_unknown_fields)]
pub(in crate::api) struct Asked {
    topology: Option<u64>,
    readings: Option<u64>,
    #[serde(default)]
    wait_ms: u64,
}

enum Answer {
    Snapshot(Arc<PoolSnapshot>),
    NothingNew,
    NoEndpoints,
    TooManyWaiters,
}

pub(in crate::api) async fn get(
    State(state): State<Arc<ApiState>>,
    pool: Result<Path<String>, PathRejection>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Response {
    let known = pool.ok().and_then(|Path(name)| state.pools.publisher(&name));
    let Some(publisher) = known else {
        let names: Vec<_> = state.pools.publishers().into_iter().map(|(name, _)| name).collect();
        if names.is_empty() {
            state.metrics.count_snapshot("no_endpoints");
            return error_response(
                StatusCode::SERVICE_UNAVAILABLE,
                "there are no pools yet; /readyz says why",
            );
        }
        state.metrics.count_snapshot("unknown_pool");
        return error_response(
            StatusCode::NOT_FOUND,
            &format!("no such pool; allowed: {}", names.join(", ")),
        );
    };
    let asked = match asked {
        Ok(Query(asked)) => asked,
        Err(rejection) => {
            state.metrics.count_snapshot("bad_query");
            let problem = format!("{}; allowed are {ALLOWED}", rejection.body_text());
            return error_response(StatusCode::BAD_REQUEST, &problem);
        }
    };
    match answer(&state, publisher.subscribe(), asked).await {
        Answer::Snapshot(published) => {
            state.metrics.count_snapshot("snapshot");
            let with_topology = asked.topology != Some(published.versions().topology);
            let kind = [(header::CONTENT_TYPE, "application/x-protobuf")];
            (kind, published.bytes(with_topology)).into_response()
        }
        Answer::NothingNew => {
            state.metrics.count_snapshot("nothing_new");
            StatusCode::NO_CONTENT.into_response()
        }
        Answer::NoEndpoints => {
            state.metrics.count_snapshot("no_endpoints");
            error_response(StatusCode::SERVICE_UNAVAILABLE, "the pool has no endpoints yet; /readyz says why")
        }
        Answer::TooManyWaiters => {
            state.metrics.count_snapshot("too_many_waiters");
            error_response(StatusCode::SERVICE_UNAVAILABLE, "too many requests are waiting (--max-waiters)")
        }
    }
}

async fn answer(
    state: &ApiState,
    mut pool: watch::Receiver<Option<Arc<PoolSnapshot>>>,
    asked: Asked,
) -> Answer {
    match pool.borrow_and_update().as_ref() {
        None => return Answer::NoEndpoints,
        Some(now) if asked.has_not(now) => return Answer::Snapshot(Arc::clone(now)),
        Some(_) => {}
    }
    let wait = Duration::from_millis(asked.wait_ms).min(MAX_WAIT);
    if wait.is_zero() || state.draining.is_cancelled() {
        return Answer::NothingNew;
    }
    let Ok(_permit) = state.waiters.try_acquire() else { return Answer::TooManyWaiters };
    let _counted = state.metrics.count_waiter();
    let news = pool.wait_for(|now| now.as_ref().is_some_and(|now| asked.has_not(now)));
    tokio::select! {
        found = news => match found.as_deref() {
            Ok(Some(published)) => Answer::Snapshot(Arc::clone(published)),
            _ => Answer::NothingNew,
        },
        () = tokio::time::sleep(wait) => Answer::NothingNew,
        () = state.draining.cancelled() => Answer::NothingNew,
    }
}

impl Asked {
    fn has_not(self, now: &PoolSnapshot) -> bool {
        let now = now.versions();
        self.topology != Some(now.topology) || self.readings != Some(now.readings)
    }
}
