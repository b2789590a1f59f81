//! `GET /healthz` and `GET /readyz`

use core::sync::atomic::Ordering;
use std::sync::Arc;

use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};

use super::{ApiState, error_response};
use crate::publish::pool_publisher::PoolPublisher;

/// Maximum number of endpoints that a response names.
const MAX_NAMES: usize = 10;

pub(super) async fn alive() -> &'static str {
    "ok\n"
}

/// 200 once every pool has an endpoint set, and each of its endpoints was scraped successfully or has been
/// tried for ten seconds; a cluster may have no pools. Never while draining. On a cluster it stays 200 when
/// pools join, because the other pools stay in service. The response names endpoints without a reading.
pub(super) async fn ready(State(state): State<Arc<ApiState>>) -> Response {
    match not_ready(&state) {
        None => {
            let pools = state.pools.publishers();
            let unread =
                pools.iter().filter_map(|(name, publisher)| Some(format!("{}\n", unread(name, publisher)?)));
            core::iter::once("ok\n".to_owned()).chain(unread).collect::<String>().into_response()
        }
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
    // A pool of a cluster has no endpoint set while its pods cannot be listed.
    let is_served =
        |publisher: &PoolPublisher| state.pending_pods.is_none() || publisher.published().is_some();
    let (name, publisher) =
        publishers.iter().find(|(_, publisher)| is_served(publisher) && !publisher.first_round_done())?;
    let refusal = state.endpoints.borrow().as_ref().ok().and_then(|set| plan.check_ports(set).err());
    refusal
        .filter(|_| publisher.published().is_none())
        .map(|refusal| format!("no endpoints yet: {refusal}"))
        .or_else(|| unread(name, publisher))
        .or_else(|| Some(format!("pool {name:?} has no endpoints yet")))
}

/// The endpoints of a pool without a reading, as a sentence; `None`: each has one.
fn unread(pool: &str, publisher: &PoolPublisher) -> Option<String> {
    let names = publisher.without_reading();
    if names.is_empty() {
        return None;
    }
    let named = names.iter().take(MAX_NAMES).map(String::as_str).collect::<Vec<_>>().join(", ");
    let more = names.len().saturating_sub(MAX_NAMES);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    Some(format!("pool {pool:?}: no scrape has succeeded yet of {named}{more}"))
}
