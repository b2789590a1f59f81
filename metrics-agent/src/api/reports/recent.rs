//! Recent counts of a proxy, which reports counts since its start.

use core::time::Duration;
use std::collections::HashMap;

use endpoint_picker_wire::figures::Figures;
use endpoint_picker_wire::report::{EndpointReport, Report};

use metrics_agent_status::predictions::CachePredictions;
use metrics_agent_status::queues::earlier::{Earlier, RECENT};
use metrics_agent_status::queues::waits::Waits;
use metrics_agent_status::report::ReportError;

/// Rates of requests are over one to two of these periods.
const RATE_PERIOD: Duration = Duration::from_secs(5);

/// The counts of one report that are compared with earlier ones.
#[derive(Clone, Debug)]
pub(super) struct Counts {
    /// The counts of the proxy.
    pub(super) figures: Figures<u64>,
    first_token: Waits,
    /// Counts by the endpoint's key.
    endpoints: HashMap<u64, EndpointCounts>,
}

#[derive(Clone, Debug, Default)]
struct EndpointCounts {
    failures: u64,
    first_byte: Waits,
    predictions: CachePredictions,
}

/// The counts of earlier reports of a proxy.
#[derive(Clone, Debug)]
pub(super) struct EarlierCounts {
    /// Counts for rates.
    figures: Earlier<Figures<u64>>,
    /// Counts for shares and times.
    all: Earlier<Counts>,
}

/// Requests and responses of one proxy lately.
#[derive(Clone, Debug, Default)]
pub struct RecentTraffic {
    /// Counts per second; empty for the first report.
    pub rates: Figures<f64>,
    /// Counts in the time of the shares.
    pub counts: Figures<u64>,
    /// Times to the first byte of responses that are streams of tokens.
    pub first_token: Waits,
}

/// Responses of one endpoint to one proxy lately.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RecentResponses {
    /// Failed requests per second; `None` for the first report.
    pub errors_per_second: Option<f64>,
    /// Times to the first byte.
    pub first_byte: Waits,
    /// Predictions of cached tokens.
    pub predictions: CachePredictions,
}

impl Counts {
    /// Reads the counts of a report, of the endpoints for which `is_known`.
    pub(super) fn read(report: &Report, is_known: impl Fn(u64) -> bool) -> Result<Self, ReportError> {
        let waits = |waits: &Option<endpoint_picker_wire::report::Waits>| {
            let waits = waits.as_ref();
            waits.map_or(Ok(Waits::default()), |waits| Waits::read(&waits.counts, waits.seconds))
        };
        let known = report.endpoints.iter().filter(|entry| is_known(entry.endpoint));
        let endpoint = |it: &EndpointReport| {
            let counts = EndpointCounts {
                failures: it.failures,
                first_byte: waits(&it.first_byte)?,
                predictions: CachePredictions::read(it)?,
            };
            Ok((it.endpoint, counts))
        };
        Ok(Self {
            figures: Figures::read(report),
            first_token: waits(&report.first_token)?,
            endpoints: known.map(endpoint).collect::<Result<_, _>>()?,
        })
    }

    /// The predictions of the endpoint with this key.
    pub(super) fn predictions(&self, endpoint: u64) -> CachePredictions {
        self.endpoints.get(&endpoint).map(|counts| counts.predictions).unwrap_or_default()
    }
}

impl EarlierCounts {
    /// Counts of a proxy's first report.
    pub(super) fn begin(counts: &Counts, now: Duration) -> Self {
        Self {
            figures: Earlier::begin(counts.figures.clone(), now),
            all: Earlier::begin(counts.clone(), now),
        }
    }

    /// Counts to compare the proxy's next report with.
    #[must_use]
    pub(super) fn next(self, counts: &Counts, now: Duration) -> Self {
        Self {
            figures: self.figures.next(RATE_PERIOD, now, || counts.figures.clone()),
            all: self.all.next(RECENT, now, || counts.clone()),
        }
    }

    /// The part of these counts that is recent.
    pub(super) fn recent(&self, counts: &Counts, now: Duration) -> RecentTraffic {
        let older = self.all.value();
        RecentTraffic {
            rates: counts.figures.without(self.figures.value()).per(self.figures.elapsed(now)),
            counts: counts.figures.without(&older.figures),
            first_token: counts.first_token.without(&older.first_token),
        }
    }

    /// The recent responses of the endpoint with this key.
    pub(super) fn of_endpoint(&self, key: u64, counts: &Counts, now: Duration) -> RecentResponses {
        let Some(newer) = counts.endpoints.get(&key) else { return RecentResponses::default() };
        let none = EndpointCounts::default();
        let older = self.all.value().endpoints.get(&key).unwrap_or(&none);
        let failures = newer.failures.saturating_sub(older.failures);
        RecentResponses {
            errors_per_second: rate(failures, self.all.elapsed(now)),
            first_byte: newer.first_byte.without(&older.first_byte),
            predictions: newer.predictions.without(&older.predictions),
        }
    }
}

/// `None` for no time.
fn rate(count: u64, time: Duration) -> Option<f64> {
    (!time.is_zero()).then(|| count as f64 / time.as_secs_f64())
}
