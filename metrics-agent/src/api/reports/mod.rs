//! Reports of proxies, which are received over HTTP and kept until they are too old, and the unknown pools
//! that proxies request.
//!
//! They feed `/metrics` and the page, and no decision depends on them. Any client of the agent can send them, so
//! everything in them is bounded.

pub mod predictions;
pub mod recent;
pub mod store;

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::rejection::PathRejection;
use axum::extract::{DefaultBodyLimit, Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use endpoint_picker::flow_control::{MAX_BANDS, MAX_TENANTS};
use endpoint_picker::plugin::MAX_FAIRNESS_ID;
use endpoint_picker_wire::REPORT_FORMAT;
use endpoint_picker_wire::report::Report;
use metrics_agent_support::runtime::Clock;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
pub use store::Reports;

use super::{ApiState, Rejection, check_format, error_response};
use crate::api;

/// The route for reports of at most `max_bytes` bytes.
pub(in crate::api) fn routes(max_bytes: usize) -> Router<Arc<ApiState>> {
    Router::new().route("/v1/pools/{pool}/report", post(receive)).layer(DefaultBodyLimit::max(max_bytes))
}

async fn receive(
    State(state): State<Arc<ApiState>>,
    pool: Result<Path<String>, PathRejection>,
    request: Request,
) -> Response {
    let limit = format!("{} bytes (--max-report-bytes)", state.max_report_bytes);
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

/// Why a report is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportError {
    /// The proxy's name has this number of bytes.
    LongName(usize),
    /// The filter's version has this number of bytes.
    LongVersion(usize),
    /// The report has rejections of this number of statuses.
    TooManyStatuses(usize),
    /// The report has a queue of this number of bands.
    TooManyBands(usize),
    /// The report has the band of this priority more than once.
    RepeatedBand(i32),
    /// The report has a queue of this number of tenants.
    TooManyTenants(usize),
    /// The report has a fairness id of this number of bytes.
    LongTenant(usize),
    /// The report has a fairness id more than once in the band of this priority.
    RepeatedTenant(i32),
    /// The report has streams that were not resumed for this number of reasons.
    TooManyReasons(usize),
    /// The report has a reason of this number of bytes.
    LongReason(usize),
    /// The report has waits that cannot be added up.
    InvalidWaits,
    /// The report has errors of predictions that cannot be added up.
    InvalidErrors,
    /// This number of other proxies report on the pool.
    TooManyProxies(usize),
}

impl fmt::Display for ReportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LongName(bytes) => {
                write!(
                    f,
                    "the proxy's name (node.id) has {bytes} bytes; at most {MAX_NAME_BYTES} are allowed"
                )
            }
            Self::LongVersion(bytes) => {
                write!(f, "the filter's version has {bytes} bytes; at most {MAX_VERSION_BYTES} are allowed")
            }
            Self::TooManyStatuses(n) => {
                write!(f, "the report has rejections of {n} statuses; at most {MAX_STATUSES} are allowed")
            }
            Self::TooManyBands(n) => {
                write!(f, "the report has a queue of {n} bands; at most {MAX_BANDS} are allowed")
            }
            Self::RepeatedBand(priority) => write!(f, "the report has the band of priority {priority} twice"),
            Self::TooManyTenants(n) => {
                write!(f, "the report has a queue of {n} tenants; at most {MAX_TENANTS} are allowed")
            }
            Self::LongTenant(bytes) => {
                write!(
                    f,
                    "the report has a fairness id of {bytes} bytes; at most {MAX_FAIRNESS_ID} are allowed"
                )
            }
            Self::RepeatedTenant(priority) => {
                write!(f, "the report has a fairness id twice in the band of priority {priority}")
            }
            Self::TooManyReasons(n) => write!(
                f,
                "the report has streams that were not resumed for {n} reasons; at most {MAX_REASONS} are allowed"
            ),
            Self::LongReason(bytes) => {
                write!(f, "the report has a reason of {bytes} bytes; at most {MAX_REASON_BYTES} are allowed")
            }
            Self::InvalidWaits => f.write_str("the report has waits that cannot be added up"),
            Self::InvalidErrors => {
                f.write_str("the report has errors of predicted tokens that cannot be added up")
            }
            Self::TooManyProxies(max) => {
                write!(f, "{max} other proxies report on this pool; no more are allowed (--max-proxies)")
            }
        }
    }
}

impl core::error::Error for ReportError {}

/// Age from which a report is out of date, and its proxy removed.
const MAX_AGE: Duration = Duration::from_secs(10);

/// Maximum length of the name of a proxy, in bytes.
const MAX_NAME_BYTES: usize = 256;

/// Maximum length of a filter's version, in bytes.
const MAX_VERSION_BYTES: usize = 64;

/// Maximum number of statuses with rejections in a report.
const MAX_STATUSES: usize = 32;

/// Maximum number of reasons why streams were cut, or why requests passed.
const MAX_REASONS: usize = 32;

/// Maximum length of such a reason, in bytes.
const MAX_REASON_BYTES: usize = 64;

/// Names that are kept at once. Any client can ask for any name.
const MAX_NAMES: usize = 16;

/// Maximum length of a name that is kept, in bytes: `namespace/name` in Kubernetes.
const MAX_POOL_NAME_BYTES: usize = 317;

/// How long a name is kept after its last request.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// A pool that proxies ask for and the agent does not have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownPool {
    /// The name that they ask for.
    pub pool: String,
    /// Requests for it since the agent was started.
    pub requests: u64,
    /// Age of the last one.
    pub age_ms: u64,
}

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
