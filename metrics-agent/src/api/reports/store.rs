//! Keeps the last report of each proxy until it is too old.

use core::time::Duration;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use endpoint_picker::pool::Endpoints;
use endpoint_picker_wire::figures::Figures;
use endpoint_picker_wire::report as wire;
use endpoint_picker_wire::report::{EndpointReport, Report};
use metrics_agent_status::pool::FilterForm;
use metrics_agent_status::queues::QueueReport;
use metrics_agent_status::queues::earlier::EarlierWaits;
use metrics_agent_status::report::{
    MAX_COUNTS, MAX_NAME_BYTES, MAX_REASON_BYTES, MAX_VERSION_BYTES, ReportError,
};
use metrics_agent_support::runtime::Clock;
use parking_lot::Mutex;

use super::recent::{Counts, EarlierCounts, EndpointCounts, RecentTraffic};
use super::{MAX_AGE, UnknownPools};

/// The last reports, by pool and proxy.
#[derive(Debug)]
pub struct Reports {
    clock: Clock,
    max_proxies: usize,
    /// Pools that proxies ask for and the agent does not have.
    pub(in crate::api) unknown_pools: UnknownPools,
    pools: Mutex<HashMap<String, PoolReports>>,
}

/// The reports on one pool.
#[derive(Clone, Debug, Default)]
pub struct PoolReports {
    /// The last report of each proxy, by the proxy's name.
    pub proxies: BTreeMap<String, Arc<ProxyReport>>,
    /// Counts of each endpoint by all proxies since the first report on the pool, by the endpoint's key. They
    /// never decrease, even when proxies join and leave.
    pub totals: HashMap<u64, EndpointCounts>,
}

/// The last report of one proxy.
#[derive(Clone, Debug)]
pub struct ProxyReport {
    /// When the report arrived.
    pub at: Duration,
    /// Counts since the proxy started.
    pub counts: Figures<u64>,
    /// The filter's version; `None` if it did not report it.
    pub version: Option<String>,
    /// The filter's form; `None` if it did not report one that is known.
    pub form: Option<FilterForm>,
    /// Its queue, with earlier waits to compare with; `None`: it has none.
    pub queue: Option<(QueueReport, EarlierWaits)>,
    /// Traffic to each endpoint that the pool had when the report arrived, by the endpoint's key.
    pub endpoints: HashMap<u64, EndpointTraffic>,
    /// Its requests and responses lately.
    pub recent: RecentTraffic,
    earlier: EarlierCounts,
    generation: u64,
}

/// Traffic of one proxy to one endpoint.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EndpointTraffic {
    /// Its counts, since a time that depends on the proxy.
    pub totals: EndpointCounts,
    /// Picks per second since the report before; `None` for the first report.
    pub picks_per_second: Option<f64>,
    /// Requests in flight.
    pub requests: u64,
    /// Tokens of the requests in flight.
    pub tokens: u64,
    /// Whether the proxy avoids the endpoint, because a request failed there.
    pub failing: bool,
    /// Its counts lately.
    pub recent: EndpointCounts,
    /// Failed requests per second lately; `None` for the first report.
    pub errors_per_second: Option<f64>,
}

impl Reports {
    /// No reports. At most `max_proxies` proxies may report on each pool.
    pub fn new(clock: Clock, max_proxies: usize) -> Self {
        Self { clock, max_proxies, unknown_pools: UnknownPools::new(clock), pools: Mutex::default() }
    }

    /// Replaces the proxy's last report.
    pub fn add(&self, pool: &Endpoints, report: Report) -> Result<(), ReportError> {
        if report.proxy.len() > MAX_NAME_BYTES {
            return Err(ReportError::LongName(report.proxy.len()));
        }
        if report.version.len() > MAX_VERSION_BYTES {
            return Err(ReportError::LongVersion(report.version.len()));
        }
        let queue = report.flow_control.as_ref().map(QueueReport::read).transpose()?;
        check_counts(&report)?;
        let counts = Counts::read(&report, |key| pool.index_of(key).is_some())?;
        let now = self.clock.now();
        let mut pools = self.pools.lock();
        let PoolReports { proxies, totals } = pools.entry(pool.name().to_owned()).or_default();
        totals.retain(|key, _| pool.index_of(*key).is_some());
        proxies.retain(|_, report| report.is_current(now));
        if proxies.len() >= self.max_proxies && !proxies.contains_key(&report.proxy) {
            return Err(ReportError::TooManyProxies(self.max_proxies));
        }
        // A restarted proxy counts from zero again, and reports another generation.
        let last = proxies.get(&report.proxy).filter(|last| last.generation == report.generation);
        let begin = || EarlierCounts::begin(&counts, now);
        let earlier_counts = last.map_or_else(begin, |last| last.earlier.clone());
        let elapsed = last.map(|last| now.saturating_sub(last.at)).filter(|elapsed| !elapsed.is_zero());
        let mut traffic = |entry: &EndpointReport| {
            let (key, own) = (entry.endpoint, counts.endpoints.get(&entry.endpoint)?.clone());
            // The first report adds nothing, because its counts may be from before the agent's start.
            let before = last.map(|last| last.endpoints.get(&key));
            let before = before.map(|traffic| traffic.map(|it| it.totals.clone()).unwrap_or_default());
            let more = before.as_ref().and_then(|before| own.picks.checked_sub(before.picks));
            let growth = before.map(|before| own.without(&before)).unwrap_or_default();
            totals.entry(key).or_default().add(&growth);
            let (recent, time) = earlier_counts.of_endpoint(key, &own, now);
            let rate = |count: u64, time: Duration| count as f64 / time.as_secs_f64();
            let traffic = EndpointTraffic {
                picks_per_second: more.zip(elapsed).map(|(more, time)| rate(more, time)),
                requests: entry.requests,
                tokens: entry.tokens,
                failing: entry.failing,
                errors_per_second: (!time.is_zero()).then(|| rate(recent.failures, time)),
                recent,
                totals: own,
            };
            Some((key, traffic))
        };
        let endpoints = report.endpoints.iter().filter_map(&mut traffic).collect();
        let before = last.and_then(|last| last.queue.as_ref());
        let earlier = before.map(|(_, earlier)| earlier.clone());
        let queue = queue.map(|mut queue| {
            let others = proxies.iter().filter(|(proxy, _)| **proxy != report.proxy);
            let others = others.filter_map(|(_, other)| other.queue.as_ref());
            queue.bound_tenants(others.map(|(queue, _)| queue), before.map(|(queue, _)| queue));
            let begin = || EarlierWaits::begin(&queue, now);
            let earlier = earlier.map_or_else(begin, |earlier| earlier.next(&queue, now));
            (queue, earlier)
        });
        let recent = earlier_counts.recent(&counts, now);
        let earlier = earlier_counts.next(&counts, now);
        let stored = ProxyReport {
            at: now,
            form: form(report.form()),
            version: Some(report.version).filter(|version| !version.is_empty()),
            queue,
            endpoints,
            recent,
            earlier,
            counts: counts.figures,
            generation: report.generation,
        };
        proxies.insert(report.proxy, Arc::new(stored));
        Ok(())
    }

    /// The reports on one pool that are not too old.
    pub fn of(&self, pool: &str) -> PoolReports {
        let now = self.clock.now();
        let mut pools = self.pools.lock();
        pools.retain(|_, reports| {
            reports.proxies.retain(|_, report| report.is_current(now));
            !reports.proxies.is_empty()
        });
        pools.get(pool).cloned().unwrap_or_default()
    }
}

fn form(form: wire::FilterForm) -> Option<FilterForm> {
    match form {
        wire::FilterForm::Unspecified => None,
        wire::FilterForm::Wasm => Some(FilterForm::Wasm),
        wire::FilterForm::Native => Some(FilterForm::Native),
    }
}

/// Whether a report has a bounded number of counts, and values of bounded length.
fn check_counts(report: &Report) -> Result<(), ReportError> {
    let streams = report.resumptions.as_ref().map(|it| (it.cut.as_slice(), it.unresumable.as_slice()));
    let (cut, unresumable) = streams.unwrap_or_default();
    let most = [report.rejected.len(), cut.len(), unresumable.len(), report.counts.len()].into_iter().max();
    let most = most.unwrap_or(0);
    if most > MAX_COUNTS {
        return Err(ReportError::TooManyCounts(most));
    }
    let reasons = cut.iter().chain(unresumable).map(|it| it.reason.len());
    let longest = reasons.chain(report.counts.iter().map(|it| it.value.len())).max().unwrap_or(0);
    if longest > MAX_REASON_BYTES { Err(ReportError::LongReason(longest)) } else { Ok(()) }
}

impl ProxyReport {
    fn is_current(&self, now: Duration) -> bool {
        now.saturating_sub(self.at) < MAX_AGE
    }
}

#[cfg(test)]
mod tests;
