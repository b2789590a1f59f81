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
    pub(super) endpoints: HashMap<u64, EndpointCounts>,
}

/// Counts of one endpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndpointCounts {
    /// Picks.
    pub picks: u64,
    /// Failed requests.
    pub failures: u64,
    /// Times to the first byte.
    pub first_byte: Waits,
    /// Predictions of cached tokens.
    pub predictions: CachePredictions,
}

impl EndpointCounts {
    /// These counts without those of an earlier report.
    #[must_use]
    pub(super) fn without(&self, earlier: &Self) -> Self {
        Self {
            picks: self.picks.saturating_sub(earlier.picks),
            failures: self.failures.saturating_sub(earlier.failures),
            first_byte: self.first_byte.without(&earlier.first_byte),
            predictions: self.predictions.without(&earlier.predictions),
        }
    }

    /// Adds more counts.
    pub fn add(&mut self, more: &Self) {
        self.picks = self.picks.saturating_add(more.picks);
        self.failures = self.failures.saturating_add(more.failures);
        self.first_byte.add(&more.first_byte);
        self.predictions.add(&more.predictions);
    }
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
                picks: it.picks,
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

    /// The part of the counts of the endpoint with this key that is recent, and its time.
    pub(super) fn of_endpoint(
        &self,
        key: u64,
        newer: &EndpointCounts,
        now: Duration,
    ) -> (EndpointCounts, Duration) {
        let older = self.all.value().endpoints.get(&key);
        let recent = older.map_or_else(|| newer.clone(), |older| newer.without(older));
        (recent, self.all.elapsed(now))
    }
}
