//! For probes and for Prometheus.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::{Served, Shared, refuse};
use crate::board::Census;
use crate::telemetry::CONTENT_TYPE;

pub(super) async fn alive() -> &'static str {
    "ok\n"
}

/// 200 once every pool has an endpoint set and each of its endpoints was tried; never while draining.
pub(super) async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    let reason = if shared.draining.is_cancelled() {
        Some("draining: the agent is about to end".to_owned())
    } else {
        shared
            .pools
            .iter()
            .find_map(|(name, pool)| not_ready(pool).map(|why| format!("pool {name:?}: {why}")))
    };
    match reason {
        None => "ok\n".into_response(),
        Some(reason) => refuse(StatusCode::SERVICE_UNAVAILABLE, &reason),
    }
}

fn not_ready(pool: &Served) -> Option<String> {
    if let Err(reason) = &*pool.sets.borrow() {
        return Some(format!("no endpoints yet: {reason}"));
    }
    (!pool.board.first_round_done()).then(|| "not every endpoint has been tried yet".to_owned())
}

pub(super) async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    let all = shared.pools.values().map(|pool| pool.board.census()).fold(Census::default(), |a, b| Census {
        endpoints: a.endpoints + b.endpoints,
        ready: a.ready + b.ready,
        oldest: a.oldest.max(b.oldest),
    });
    match shared.telemetry.text(all) {
        Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(error) => {
            refuse(StatusCode::INTERNAL_SERVER_ERROR, &format!("cannot write the metrics: {error}"))
        }
    }
}
