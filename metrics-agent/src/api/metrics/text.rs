//! `GET /metrics`

use std::sync::Arc;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use prometheus_client::encoding::text::{encode_eof, encode_registry};

use super::pool_gauges;
use crate::api::error::error_response;
use crate::api::pools::status::PoolStatus;
use crate::api::state::ApiState;
use crate::publish::pool_publisher::EndpointCounts;

const OPENMETRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

pub(in crate::api) async fn metrics(State(state): State<Arc<ApiState>>) -> Response {
    let publishers = state.pools.publishers();
    let counts = publishers.iter().map(|(_, publisher)| publisher.endpoint_counts());
    let counts = counts.fold(EndpointCounts::default(), |a, b| EndpointCounts {
        endpoints: a.endpoints + b.endpoints,
        ready: a.ready + b.ready,
        oldest: a.oldest.max(b.oldest),
    });
    let statuses = publishers.iter().filter_map(|(_, publisher)| state.status(publisher));
    match text(&state, counts, &statuses.collect::<Vec<_>>()) {
        Ok(text) => ([(header::CONTENT_TYPE, OPENMETRICS)], text).into_response(),
        Err(error) => {
            let problem = format!("cannot write the metrics: {error}");
            error_response(StatusCode::INTERNAL_SERVER_ERROR, &problem)
        }
    }
}

/// The agent's counters, then the gauges of the pools.
fn text(state: &ApiState, counts: EndpointCounts, pools: &[PoolStatus]) -> Result<String, core::fmt::Error> {
    state.metrics.set_endpoints(counts);
    state.metrics.set_refused_objects(&state.refusals());
    let mut text = String::new();
    encode_registry(&mut text, &state.registry)?;
    encode_registry(&mut text, &pool_gauges::registry(pools))?;
    encode_eof(&mut text)?;
    Ok(text)
}
