//! `GET /healthz` and `GET /readyz`

use core::sync::atomic::Ordering;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::error::error_response;
use super::state::ApiState;
use crate::publish::pool_publisher::PoolPublisher;

pub(super) async fn alive() -> &'static str {
    "ok\n"
}

/// 200 once every pool, of which a cluster may have none, has an endpoint set and each of its endpoints was scraped; never while
/// draining. On a cluster it stays so when pools join, because the others must go on.
pub(super) async fn ready(State(state): State<Arc<ApiState>>) -> Response {
    match not_ready(&state) {
        None => "ok\n".into_response(),
        Some(reason) => error_response(StatusCode::SERVICE_UNAVAILABLE, &reason),
    }
}

fn not_ready(state: &ApiState) -> Option<String> {
    if state.draining.is_cancelled() {
        return Some("draining: the agent is about to end".to_owned());
    }
    let Some(pending_pods) = &state.pending_pods else { return not_served(state) };
    if state.was_ready.load(Ordering::Relaxed) {
        return None;
    }
    let reason = not_served(state).or_else(|| {
        let pending = pending_pods.names();
        (!pending.is_empty()).then(|| format!("not listed yet: {}", pending.join("; ")))
    });
    state.was_ready.store(reason.is_none(), Ordering::Relaxed);
    reason
}

fn not_served(state: &ApiState) -> Option<String> {
    let plan = match &*state.plans.borrow() {
        Ok(plan) => Arc::clone(plan),
        Err(reason) => return Some(format!("no pools yet: {reason}")),
    };
    if let Err(reason) = &*state.endpoints.borrow() {
        return Some(format!("no endpoints yet: {reason}"));
    }
    if let Some(pool) = plan.pools.iter().find(|pool| state.pools.publisher(&pool.name).is_none()) {
        return Some(format!("pool {:?} is not served yet", pool.name));
    }
    let publishers = state.pools.publishers();
    // A pool of a cluster has no endpoint set as long as its pods cannot be listed.
    let is_served =
        |publisher: &PoolPublisher| state.pending_pods.is_none() || publisher.published().is_some();
    let unscraped =
        publishers.iter().find(|(_, publisher)| is_served(publisher) && !publisher.first_round_done());
    unscraped.map(|(name, _)| format!("pool {name:?}: not every endpoint has been scraped yet"))
}
