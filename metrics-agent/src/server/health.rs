//! For probes and for Prometheus.

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};

use super::{Shared, refuse};
use crate::board::Census;
use crate::telemetry::CONTENT_TYPE;

pub(super) async fn alive() -> &'static str {
    "ok\n"
}

/// 200 once every pool has an endpoint set and each of its endpoints was tried; never while draining.
pub(super) async fn ready(State(shared): State<Arc<Shared>>) -> Response {
    match not_ready(&shared) {
        None => "ok\n".into_response(),
        Some(reason) => refuse(StatusCode::SERVICE_UNAVAILABLE, &reason),
    }
}

fn not_ready(shared: &Shared) -> Option<String> {
    if shared.draining.is_cancelled() {
        return Some("draining: the agent is about to end".to_owned());
    }
    if let Err(reason) = &*shared.plans.borrow() {
        return Some(format!("no pools yet: {reason}"));
    }
    if let Err(reason) = &*shared.sets.borrow() {
        return Some(format!("no endpoints yet: {reason}"));
    }
    let boards = shared.pools.boards();
    if boards.is_empty() {
        return Some("no pools yet".to_owned());
    }
    let untried = boards.iter().find(|(_, board)| !board.first_round_done());
    untried.map(|(name, _)| format!("pool {name:?}: not every endpoint has been tried yet"))
}

pub(super) async fn metrics(State(shared): State<Arc<Shared>>) -> Response {
    let all =
        shared.pools.boards().into_iter().map(|(_, board)| board.census()).fold(Census::default(), |a, b| {
            Census {
                endpoints: a.endpoints + b.endpoints,
                ready: a.ready + b.ready,
                oldest: a.oldest.max(b.oldest),
            }
        });
    let statuses = shared.pools.boards().into_iter().filter_map(|(_, board)| board.status(&shared.reports));
    match shared.telemetry.text(all, &statuses.collect::<Vec<_>>()) {
        Ok(text) => ([(header::CONTENT_TYPE, CONTENT_TYPE)], text).into_response(),
        Err(error) => {
            refuse(StatusCode::INTERNAL_SERVER_ERROR, &format!("cannot write the metrics: {error}"))
        }
    }
}
