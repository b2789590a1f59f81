//! What proxies tell of themselves: the last report of each, until it is too old.

use core::fmt;
use core::time::Duration;
use std::collections::{BTreeMap, HashMap};

use endpoint_picker::pool::Pool;
use endpoint_picker_wire::REPORT_FORMAT;
use endpoint_picker_wire::report::{EndpointReport, Report};
use parking_lot::Mutex;

use crate::api::pools::status::ShadowCounts;
use crate::clock::Clock;

/// A proxy that has not reported for so long is forgotten.
pub const GOOD_FOR: Duration = Duration::from_secs(10);

/// Longest name of a proxy, in bytes.
pub const MAX_NAME: usize = 256;

/// Most statuses that a report may tell rejections of.
const MAX_STATUSES: usize = 32;

/// The last reports, by pool and proxy.
#[derive(Debug)]
pub struct Reports {
    clock: Clock,
    max_proxies: usize,
    pools: Mutex<HashMap<String, PoolReports>>,
}

/// What is known of one pool's proxies.
#[derive(Clone, Debug, Default)]
pub struct PoolReports {
    /// Their last reports, by their names.
    pub proxies: BTreeMap<String, Heard>,
    /// How often each endpoint was chosen, all proxies together, since the first report on the pool. By the endpoints'
    /// keys; it never falls, whichever proxies come and go.
    pub picks: HashMap<u64, u64>,
}

/// The last report of one proxy.
#[derive(Clone, Debug)]
pub struct Heard {
    /// When it came.
    pub at: Duration,
    /// Requests since the proxy was started.
    pub routed: u64,
    /// Requests left to Envoy's own balancing.
    pub abstained: u64,
    /// Requests answered by the filter, by status.
    pub rejected: BTreeMap<u32, u64>,
    /// What a shadow configuration would have done with them; `None` while none is tried.
    pub shadow: Option<ShadowCounts>,
    /// By the endpoints' keys; only those of the pool as it was then.
    pub endpoints: HashMap<u64, Tally>,
    generation: u64,
}

/// What one proxy has sent to one endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// How often it was chosen, from a beginning that only the proxy knows.
    pub picks: u64,
    /// How often per second since the report before; `None` when there is none to compare with.
    pub picks_per_second: Option<f64>,
    /// Requests in flight.
    pub requests: u64,
    /// Their tokens.
    pub tokens: u64,
    /// Whether the proxy avoids it, because a request failed there.
    pub failing: bool,
}

impl Reports {
    /// Nobody has reported yet; of each pool at most so many proxies may.
    pub fn new(clock: Clock, max_proxies: usize) -> Self {
        Self { clock, max_proxies, pools: Mutex::default() }
    }

    /// Keeps a report in the place of the proxy's last one.
    pub fn take(&self, pool: &Pool, report: Report) -> Result<(), ReportError> {
        if report.format != REPORT_FORMAT {
            return Err(ReportError::UnknownFormat(report.format));
        }
        if report.proxy.len() > MAX_NAME {
            return Err(ReportError::LongName(report.proxy.len()));
        }
        if report.rejected.len() > MAX_STATUSES {
            return Err(ReportError::TooManyStatuses(report.rejected.len()));
        }
        let now = self.clock.now();
        let mut pools = self.pools.lock();
        let PoolReports { proxies, picks } = pools.entry(pool.name().to_owned()).or_default();
        picks.retain(|key, _| pool.index_of(*key).is_some());
        proxies.retain(|_, heard| heard.is_good(now));
        if proxies.len() >= self.max_proxies && !proxies.contains_key(&report.proxy) {
            return Err(ReportError::TooManyProxies(self.max_proxies));
        }
        let last = proxies.get(&report.proxy).filter(|last| last.generation == report.generation);
        let elapsed = last.map(|last| now.saturating_sub(last.at)).filter(|elapsed| !elapsed.is_zero());
        let mut tally = |told: &EndpointReport| {
            let before = last.map(|last| last.endpoints.get(&told.endpoint).map_or(0, |tally| tally.picks));
            let more = before.and_then(|before| told.picks.checked_sub(before));
            let all = picks.entry(told.endpoint).or_default();
            *all = all.saturating_add(more.unwrap_or(0));
            let picks_per_second = more.zip(elapsed).map(|(more, time)| more as f64 / time.as_secs_f64());
            Tally {
                picks: told.picks,
                picks_per_second,
                requests: told.requests,
                tokens: told.tokens,
                failing: told.failing,
            }
        };
        let known = report.endpoints.iter().filter(|told| pool.index_of(told.endpoint).is_some());
        let shadow = report.shadow_agreed.zip(report.shadow_disagreed);
        let heard = Heard {
            at: now,
            routed: report.routed,
            abstained: report.abstained,
            rejected: report.rejected.iter().map(|it| (it.status, it.requests)).collect(),
            shadow: shadow.map(|(agreed, disagreed)| ShadowCounts { agreed, disagreed }),
            endpoints: known.map(|told| (told.endpoint, tally(told))).collect(),
            generation: report.generation,
        };
        proxies.insert(report.proxy, heard);
        Ok(())
    }

    /// What is known of one pool's proxies, by reports that are not too old.
    pub fn of(&self, pool: &str) -> PoolReports {
        let now = self.clock.now();
        let mut pools = self.pools.lock();
        pools.retain(|_, known| {
            known.proxies.retain(|_, heard| heard.is_good(now));
            !known.proxies.is_empty()
        });
        pools.get(pool).cloned().unwrap_or_default()
    }
}

impl Heard {
    fn is_good(&self, now: Duration) -> bool {
        now.saturating_sub(self.at) < GOOD_FOR
    }
}

/// Why a report is not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ReportError {
    /// Another format than this agent's.
    UnknownFormat(u32),
    /// The proxy's name has so many bytes.
    LongName(usize),
    /// It tells rejections of so many statuses.
    TooManyStatuses(usize),
    /// So many others report already.
    TooManyProxies(usize),
}

impl fmt::Display for ReportError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownFormat(found) => write!(
                f,
                "the report has format {found}, this agent reads format {REPORT_FORMAT}: update the older side"
            ),
            Self::LongName(bytes) => {
                write!(f, "the proxy's name (node.id) has {bytes} bytes; at most {MAX_NAME} are allowed")
            }
            Self::TooManyStatuses(n) => {
                write!(f, "rejections of {n} statuses are told; at most {MAX_STATUSES} are allowed")
            }
            Self::TooManyProxies(most) => {
                write!(f, "{most} other proxies report on this pool; no more are allowed (--max-proxies)")
            }
        }
    }
}

impl core::error::Error for ReportError {}

#[cfg(test)]
mod tests;
