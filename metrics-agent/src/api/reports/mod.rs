//! Reports of proxies, which are received over HTTP and kept until they are too old, and the unknown pools
//! that proxies request.
//!
//! They feed `/metrics` and the page, and no decision depends on them. Any client of the agent can send them,
//! so everything in them is bounded.

pub mod recent;
pub mod store;

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use endpoint_picker_wire::REPORT_FORMAT;
use endpoint_picker_wire::report::Report;
use metrics_agent_status::pool::UnknownPool;
use metrics_agent_support::runtime::Clock;
use parking_lot::Mutex;
pub use store::Reports;

use super::{ApiState, Rejection, check_format, error_response};
use crate::api;

/// Maximum number of bytes of a proxy's report, in which an endpoint takes about 30; above it the status is
/// 413.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// The route for reports.
pub(in crate::api) fn routes() -> Router<Arc<ApiState>> {
    Router::new().route("/v1/pools/{pool}/report", post(receive)).layer(DefaultBodyLimit::max(MAX_BYTES))
}

async fn receive(
    State(state): State<Arc<ApiState>>,
    pool: Result<Path<String>, PathRejection>,
    request: Request,
) -> Response {
    let limit = format!("{MAX_BYTES} bytes");
    let read = api::read_message(&state, request, "report", &limit).await;
    let (outcome, response) = match read.and_then(|report| store(&state, pool, report)) {
        Ok(()) => ("accepted", StatusCode::NO_CONTENT.into_response()),
        Err((status, problem)) => ("refused", error_response(status, &problem)),
    };
    state.metrics.count_report(outcome);
    response
}

fn store(
    state: &ApiState,
    pool: Result<Path<String>, PathRejection>,
    report: Report,
) -> Result<(), Rejection> {
    check_format("report", report.format, REPORT_FORMAT)?;
    let publisher = pool.ok().and_then(|Path(name)| state.pools.publisher(&name));
    let published = publisher.and_then(|publisher| publisher.published());
    let Some(published) = published else {
        return Err((StatusCode::NOT_FOUND, "no such pool".to_owned()));
    };
    let added = state.reports.add(&published.topology().pool, report);
    added.map_err(|error| (StatusCode::BAD_REQUEST, error.to_string()))
}

/// Age from which a report is out of date, and its proxy removed.
const MAX_AGE: Duration = Duration::from_secs(10);

/// Names that are kept at once. Any client can ask for any name.
const MAX_NAMES: usize = 16;

/// Maximum length of a name that is kept, in bytes: `namespace/name` in Kubernetes.
const MAX_POOL_NAME_BYTES: usize = 317;

/// How long a name is kept after its last request.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// The names that were asked for lately.
#[derive(Debug)]
pub struct UnknownPools {
    clock: Clock,
    names: Mutex<BTreeMap<String, Requests>>,
}

#[derive(Clone, Copy, Debug)]
struct Requests {
    count: u64,
    last: Duration,
}

impl UnknownPools {
    /// No names.
    pub fn new(clock: Clock) -> Self {
        Self { clock, names: Mutex::default() }
    }

    /// Counts a request for a pool of this name. A new name is not kept while there are [`MAX_NAMES`] names.
    pub(in crate::api) fn count(&self, pool: &str) {
        let now = self.clock.now();
        let mut names = self.names.lock();
        names.retain(|_, requests| requests.is_recent(now));
        if !names.contains_key(pool) && (names.len() >= MAX_NAMES || pool.len() > MAX_POOL_NAME_BYTES) {
            return;
        }
        let requests = names.entry(pool.to_owned()).or_insert(Requests { count: 0, last: now });
        requests.count = requests.count.saturating_add(1);
        requests.last = now;
    }

    /// The names that were asked for in the last minute, in their order.
    pub(in crate::api) fn recent(&self) -> Vec<UnknownPool> {
        let now = self.clock.now();
        let names = self.names.lock();
        let recent = names.iter().filter(|(_, requests)| requests.is_recent(now));
        recent
            .map(|(pool, requests)| UnknownPool {
                pool: pool.clone(),
                requests: requests.count,
                age_ms: u64::try_from(requests.age(now).as_millis()).unwrap_or(u64::MAX),
            })
            .collect()
    }
}

impl Requests {
    fn age(&self, now: Duration) -> Duration {
        now.saturating_sub(self.last)
    }

    fn is_recent(&self, now: Duration) -> bool {
        self.age(now) < KEPT_FOR
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn names_are_kept_for_a_minute_and_bounded() {
        let unknown = UnknownPools::new(Clock::start());
        unknown.count("defualt");
        unknown.count("defualt");
        unknown.count(&"x".repeat(MAX_POOL_NAME_BYTES + 1));
        tokio::time::advance(Duration::from_secs(2)).await;
        let expected = UnknownPool { pool: "defualt".to_owned(), requests: 2, age_ms: 2000 };
        assert_eq!(unknown.recent(), [expected]);
        for number in 0..1000 {
            unknown.count(&number.to_string());
        }
        assert_eq!(unknown.recent().len(), MAX_NAMES);
        tokio::time::advance(KEPT_FOR).await;
        assert_eq!(unknown.recent(), []);
        unknown.count("another");
        assert_eq!(unknown.recent().len(), 1);
    }
}
