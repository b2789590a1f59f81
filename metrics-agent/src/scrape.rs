//! One task for each endpoint, asking for its metrics again and again.

mod connection;
mod error;
mod task;

use core::time::Duration;
use std::collections::HashMap;
use std::sync::Arc;

use endpoint_picker::pool::{Endpoint, Pool};
use hyper::Uri;
use tokio_util::task::AbortOnDropHandle;

pub use error::{Reason, ScrapeError};

use crate::board::Board;
use crate::clock::Clock;
use crate::dialect::{Dialect, Dialects, MultiEngine};
use crate::slot::Slot;
use crate::telemetry::Telemetry;

/// Least time between two scrapes of an endpoint, as in the reference.
pub const MIN_INTERVAL: Duration = Duration::from_millis(50);

/// How endpoints are scraped.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Time between two scrapes of one endpoint.
    pub interval: Duration,
    /// Longest time one scrape may take, connecting included.
    pub timeout: Duration,
    /// Path and query of the metrics.
    pub path: Uri,
    /// Largest text that is read.
    pub max_bytes: usize,
    /// How a data-parallel server is read.
    pub engines: MultiEngine,
}

/// The scrape tasks of one pool.
pub struct Scraper {
    settings: Arc<Settings>,
    dialects: Dialects,
    clock: Clock,
    telemetry: Arc<Telemetry>,
    board: Arc<Board>,
    running: HashMap<String, Running>,
    started: u32,
}

struct Running {
    endpoint: Endpoint,
    dialect: Arc<Dialect>,
    slot: Arc<Slot>,
    _task: AbortOnDropHandle<()>,
}

impl Scraper {
    /// Nothing is scraped until [`Self::follow`] is called.
    pub fn new(settings: Settings, clock: Clock, telemetry: Arc<Telemetry>, board: Arc<Board>) -> Self {
        let (settings, dialects) = (Arc::new(settings), Dialects::built_in());
        Self { settings, dialects, clock, telemetry, board, running: HashMap::new(), started: 0 }
    }

    /// Scrapes the endpoints of `pool` from now on. Those that stay keep their task and their reading.
    pub fn follow(&mut self, pool: Pool) {
        let mut before = core::mem::take(&mut self.running);
        let mut slots = Vec::with_capacity(pool.endpoints().len());
        for endpoint in pool.endpoints() {
            let dialect = Arc::clone(self.dialects.of_endpoint(endpoint));
            let stays =
                |old: &Running| old.endpoint.address() == endpoint.address() && old.dialect == dialect;
            let running = match before.remove(endpoint.name()).filter(stays) {
                Some(old) => Running { endpoint: endpoint.clone(), ..old },
                None => self.start(endpoint.clone(), dialect),
            };
            slots.push(Arc::clone(&running.slot));
            self.running.insert(endpoint.name().to_owned(), running);
        }
        self.board.install(pool, slots);
    }

    fn start(&mut self, endpoint: Endpoint, dialect: Arc<Dialect>) -> Running {
        let slot = Slot::new();
        let task = task::Task::new(task::Parts {
            endpoint: endpoint.clone(),
            settings: Arc::clone(&self.settings),
            dialect: &dialect,
            slot: Arc::clone(&slot),
            board: Arc::clone(&self.board),
            clock: self.clock,
            telemetry: Arc::clone(&self.telemetry),
        });
        let offset = stagger(self.started, self.settings.interval);
        self.started = self.started.wrapping_add(1);
        let task = AbortOnDropHandle::new(tokio::spawn(task.run(offset)));
        Running { endpoint, dialect, slot, _task: task }
    }
}

/// Where in the interval the nth task starts. Steps of the golden ratio spread any number of tasks evenly, so
/// neither the first set nor endpoints that come later bunch up.
fn stagger(nth: u32, interval: Duration) -> Duration {
    const GOLDEN: f64 = 0.618_033_988_749_895;
    interval.mul_f64((f64::from(nth) * GOLDEN).fract())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_spread_over_the_interval() {
        let mut starts: Vec<_> = (0..100).map(|nth| stagger(nth, MIN_INTERVAL)).collect();
        starts.sort_unstable();
        assert!(starts.iter().all(|start| *start < MIN_INTERVAL));
        let gaps = starts.windows(2).map(|pair| pair[1].saturating_sub(pair[0]));
        assert!(gaps.max().unwrap() < Duration::from_millis(1), "{starts:?}");
    }
}
