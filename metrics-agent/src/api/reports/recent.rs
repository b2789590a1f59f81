//! Recent counts of a proxy, which reports counts since its start.

use core::time::Duration;
use std::collections::{BTreeMap, HashMap};

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
    requests: RequestCounts,
    responses: ResponseCounts,
}

#[derive(Clone, Debug)]
struct RequestCounts {
    routed: u64,
    served_elsewhere: u64,
    abstained: u64,
    rejected: BTreeMap<u32, u64>,
}

#[derive(Clone, Debug)]
struct ResponseCounts {
    prompt_blocks: u64,
    prompt_blocks_matched: u64,
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
    requests: Earlier<RequestCounts>,
    responses: Earlier<ResponseCounts>,
}

/// Requests and responses of one proxy lately.
#[derive(Clone, Debug, Default)]
pub struct RecentTraffic {
    /// Requests per second; `None` for the first report.
    pub rates: Option<RequestRates>,
    /// Blocks of prompts of routed requests.
    pub prompt_blocks: u64,
    /// Blocks of them that their endpoint had been sent before.
    pub prompt_blocks_matched: u64,
    /// Times to the first byte of responses that are streams of tokens.
    pub first_token: Waits,
}

/// Requests per second.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RequestRates {
    /// Routed.
    pub routed: f64,
    /// Routed requests that Envoy sent to a server that was not picked.
    pub served_elsewhere: f64,
    /// Left to Envoy's load balancing.
    pub abstained: f64,
    /// Rejected, by HTTP status.
    pub rejected: BTreeMap<u32, f64>,
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
            requests: RequestCounts {
                routed: report.routed,
                served_elsewhere: report.served_elsewhere,
                abstained: report.abstained,
                rejected: report.rejected.iter().map(|it| (it.status, it.requests)).collect(),
            },
            responses: ResponseCounts {
                prompt_blocks: report.prompt_blocks,
                prompt_blocks_matched: report.prompt_blocks_matched,
                first_token: waits(&report.first_token)?,
                endpoints: known.map(endpoint).collect::<Result<_, _>>()?,
            },
        })
    }

    /// The predictions of the endpoint with this key.
    pub(super) fn predictions(&self, endpoint: u64) -> CachePredictions {
        self.responses.endpoints.get(&endpoint).map(|counts| counts.predictions).unwrap_or_default()
    }
}

impl EarlierCounts {
    /// Counts of a proxy's first report.
    pub(super) fn begin(counts: &Counts, now: Duration) -> Self {
        let Counts { requests, responses } = counts.clone();
        Self { requests: Earlier::begin(requests, now), responses: Earlier::begin(responses, now) }
    }

    /// Counts to compare the proxy's next report with.
    #[must_use]
    pub(super) fn next(self, counts: &Counts, now: Duration) -> Self {
        Self {
            requests: self.requests.next(RATE_PERIOD, now, || counts.requests.clone()),
            responses: self.responses.next(RECENT, now, || counts.responses.clone()),
        }
    }

    /// The part of these counts that is recent.
    pub(super) fn recent(&self, counts: &Counts, now: Duration) -> RecentTraffic {
        let older = self.responses.value();
        let newer = &counts.responses;
        RecentTraffic {
            rates: self.rates(&counts.requests, now),
            prompt_blocks: newer.prompt_blocks.saturating_sub(older.prompt_blocks),
            prompt_blocks_matched: newer.prompt_blocks_matched.saturating_sub(older.prompt_blocks_matched),
            first_token: newer.first_token.without(&older.first_token),
        }
    }

    fn rates(&self, newer: &RequestCounts, now: Duration) -> Option<RequestRates> {
        let older = self.requests.value();
        let rate = |newer: u64, older: u64| rate(newer.saturating_sub(older), self.requests.elapsed(now));
        let rejected = newer.rejected.iter().map(|(status, count)| {
            Some((*status, rate(*count, older.rejected.get(status).copied().unwrap_or(0))?))
        });
        Some(RequestRates {
            routed: rate(newer.routed, older.routed)?,
            served_elsewhere: rate(newer.served_elsewhere, older.served_elsewhere)?,
            abstained: rate(newer.abstained, older.abstained)?,
            rejected: rejected.collect::<Option<_>>()?,
        })
    }

    /// The recent responses of the endpoint with this key.
    pub(super) fn of_endpoint(&self, key: u64, counts: &Counts, now: Duration) -> RecentResponses {
        let Some(newer) = counts.responses.endpoints.get(&key) else { return RecentResponses::default() };
        let none = EndpointCounts::default();
        let older = self.responses.value().endpoints.get(&key).unwrap_or(&none);
        let failures = newer.failures.saturating_sub(older.failures);
        RecentResponses {
            errors_per_second: rate(failures, self.responses.elapsed(now)),
            first_byte: newer.first_byte.without(&older.first_byte),
            predictions: newer.predictions.without(&older.predictions),
        }
    }
}

/// `None` for no time.
fn rate(count: u64, time: Duration) -> Option<f64> {
    (!time.is_zero()).then(|| count as f64 / time.as_secs_f64())
}
