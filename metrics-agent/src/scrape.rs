//! One task for each endpoint, asking for its metrics again and again.

mod connection;
mod error;
mod head_limit;
mod task;

use core::time::Duration;
use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::num::{NonZeroU16, NonZeroU32};
use std::sync::Arc;

use endpoint_picker::pool::Endpoint;
use hyper::Uri;
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

pub use error::{Reason, ScrapeError};

use crate::board::Board;
use crate::clock::{self, Clock};
use crate::credentials::scraping::Credentials;
use crate::dialect::{Dialect, Dialects, MultiEngine};
use crate::exposition::TextLimits;
use crate::published::Topology;
use crate::restart::RestartWatch;
use crate::slot::Slot;
use crate::tasks::Tasks;
use crate::telemetry::Telemetry;

/// Least time between two scrapes of an endpoint, as in the EPP.
pub const MIN_INTERVAL: Duration = Duration::from_millis(50);

/// Endpoints are asked in turns so far apart. Waking up costs as much as asking, so those of one turn share it.
const TURN: Duration = Duration::from_millis(5);

/// How endpoints are scraped.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// Time between two scrapes of one endpoint.
    pub interval: Duration,
    /// Longest time one scrape may take, connecting included.
    pub timeout: Duration,
    /// Whether TLS is spoken.
    pub scheme: Scheme,
    /// Path and query of the metrics.
    pub path: Uri,
    /// Largest text that is read.
    pub max_bytes: usize,
    /// Most series of a text.
    pub max_series: usize,
    /// What one line of a text may be.
    pub text: TextLimits,
    /// So many scrapes failed in a row, and the endpoint is out while others are not; `None`: as in the EPP, never.
    pub unready_after: Option<NonZeroU32>,
    /// How a data-parallel server is read.
    pub engines: MultiEngine,
}

/// How metrics are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Scheme {
    /// In plain text.
    Http,
    /// Over TLS.
    Https,
}

/// How the endpoints of one pool are scraped.
#[derive(Clone, Debug)]
pub struct How {
    /// What is the same for all of them.
    pub settings: Arc<Settings>,
    /// The port that shows the metrics; `None`: the endpoint's own.
    pub port: Option<NonZeroU16>,
    /// What the engines call their metrics.
    pub dialects: Arc<Dialects>,
}

/// A pool to be scraped.
pub struct Followed {
    /// Where its readings go.
    pub board: Arc<Board>,
    /// Its endpoints and policy.
    pub topology: Topology,
    /// How they are scraped.
    pub how: How,
}

/// The scrape tasks of all pools. An endpoint that belongs to several pools and is read alike for them has one task.
pub struct Scraper {
    clock: Clock,
    credentials: Arc<Credentials>,
    tasks: Tasks,
    telemetry: Arc<Telemetry>,
    running: HashMap<Job, Running>,
    /// The endpoints of all pools, by name and address; `None` until there are pools.
    endpoints: Option<HashSet<(String, SocketAddr)>>,
    started: u32,
}

/// All that a task depends on; it goes on as long as this stays.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Job {
    endpoint: String,
    /// Where the metrics are.
    address: SocketAddr,
    settings: Arc<Settings>,
    dialect: Arc<Dialect>,
}

struct Running {
    slot: Arc<Slot>,
    readers: Vec<Arc<Notify>>,
    _task: AbortOnDropHandle<()>,
}

impl Scraper {
    /// Nothing is scraped until [`Self::follow`] is called; `credentials` must allow TLS if a pool is to be scraped over it.
    pub fn new(clock: Clock, credentials: Arc<Credentials>, tasks: Tasks, telemetry: Arc<Telemetry>) -> Self {
        Self { clock, credentials, tasks, telemetry, running: HashMap::new(), endpoints: None, started: 0 }
    }

    /// Scrapes the endpoints of these pools from now on. Those that stay keep their task and their reading.
    pub fn follow(&mut self, pools: Vec<Followed>) {
        let mut before = core::mem::take(&mut self.running);
        let endpoints_before = self.endpoints.take();
        let mut endpoints = HashSet::new();
        let mut installed = Vec::with_capacity(pools.len());
        for Followed { board, topology, how } in pools {
            let mut slots = Vec::with_capacity(topology.pool.endpoints().len());
            for endpoint in topology.pool.endpoints() {
                let job = how.job(endpoint);
                let identity = (endpoint.name().to_owned(), endpoint.address());
                let is_new = endpoints_before.as_ref().is_some_and(|before| !before.contains(&identity));
                endpoints.insert(identity);
                let mut running = match self.running.remove(&job) {
                    Some(shared) => shared,
                    None => match before.remove(&job) {
                        Some(old) => Running { readers: Vec::new(), ..old },
                        None => self.start(&job, is_new),
                    },
                };
                running.readers.push(board.changes());
                slots.push(Arc::clone(&running.slot));
                self.running.insert(job, running);
            }
            installed.push((board, topology, slots));
        }
        self.endpoints = Some(endpoints);
        for running in self.running.values() {
            running.slot.set_readers(running.readers.clone());
        }
        for (board, topology, slots) in installed {
            board.install(topology, slots);
        }
    }

    /// An endpoint that joins the pools later may have been there before: what proxies know of its caches is out of date.
    fn start(&mut self, job: &Job, is_new: bool) -> Running {
        let came_back = is_new.then(clock::since_epoch);
        let slot = Slot::of_returned(came_back);
        let credentials = Arc::clone(&self.credentials);
        let (telemetry, restarts) = (Arc::clone(&self.telemetry), RestartWatch::new(came_back));
        let task = task::Task::new(job, Arc::clone(&slot), self.clock, credentials, telemetry, restarts);
        let interval = job.settings.interval;
        let first = from_now_on(self.clock.now(), turn(self.started, interval), interval);
        self.started = self.started.wrapping_add(1);
        let task = self.tasks.spawn(format!("scraping of {}", job.endpoint), task.run(first));
        Running { slot, readers: Vec::new(), _task: task }
    }
}

impl How {
    fn job(&self, endpoint: &Endpoint) -> Job {
        let own = endpoint.address();
        Job {
            endpoint: endpoint.name().to_owned(),
            address: SocketAddr::new(own.ip(), self.port.map_or(own.port(), NonZeroU16::get)),
            settings: Arc::clone(&self.settings),
            dialect: Arc::clone(self.dialects.of_endpoint(endpoint)),
        }
    }
}

/// When in the interval the nth task has its turn. Steps of the golden ratio spread any number of tasks evenly, so
/// neither the first set nor endpoints that come later bunch up.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a share of a count, and not negative"
)]
fn turn(nth: u32, interval: Duration) -> Duration {
    const GOLDEN: f64 = 0.618_033_988_749_895;
    let turns = interval.div_duration_f64(TURN).floor();
    TURN * ((f64::from(nth) * GOLDEN).fract() * turns) as u32
}

/// The first moment not before `now` that lies `turn` after the begin of an interval; all count from the agent's start.
fn from_now_on(now: Duration, turn: Duration, interval: Duration) -> Duration {
    let intervals = now.saturating_sub(turn).as_nanos().div_ceil(interval.as_nanos());
    turn + interval.saturating_mul(u32::try_from(intervals).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn turns_are_spread_over_the_interval() {
        for interval in [MIN_INTERVAL, Duration::from_millis(53), Duration::from_secs(5)] {
            let turns = u32::try_from(interval.as_millis() / TURN.as_millis()).unwrap();
            let mut endpoints = vec![0; turns as usize];
            for nth in 0..10 * turns {
                let turn = turn(nth, interval);
                assert!(turn < interval && turn.subsec_millis().is_multiple_of(5), "{turn:?}");
                endpoints[usize::try_from(turn.as_millis() / TURN.as_millis()).unwrap()] += 1;
            }
            assert!(endpoints.iter().all(|n| (8..=12).contains(n)), "{interval:?}: {endpoints:?}");
        }
    }

    #[test]
    fn the_first_turn_is_within_an_interval_and_on_the_same_grid_for_all() {
        let (turn, interval) = (Duration::from_millis(15), Duration::from_millis(50));
        for (now, first) in [(0, 15), (15, 15), (16, 65), (64, 65), (65, 65), (1_000_000, 1_000_015)] {
            let found = from_now_on(Duration::from_millis(now), turn, interval);
            assert_eq!(found, Duration::from_millis(first), "at {now} ms");
        }
    }
}
