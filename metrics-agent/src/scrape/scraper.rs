//! The scrape tasks of all pools.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::Arc;

use endpoint_picker::pool::Endpoint;
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

use super::connection::credentials::Credentials;
use super::metrics::ScrapeMetrics;
use super::restart::RestartWatch;
use super::slot::Slot;
use super::task::{Job, Task};
use super::turns::{from_now_on, turn};
use crate::catalogue::scraping::ScrapePlan;
use crate::runtime::clock::{self, Clock};
use crate::runtime::tasks::Tasks;

/// A pool to be scraped.
pub struct ScrapedPool<'a> {
    /// The pool's endpoints.
    pub endpoints: &'a [Endpoint],
    /// How they are scraped.
    pub plan: ScrapePlan,
    /// Notified when one of the pool's slots has changed.
    pub changes: Arc<Notify>,
}

/// The scrape tasks of all pools. An endpoint that belongs to several pools has one task if they scrape it the same way.
pub struct Scraper {
    clock: Clock,
    credentials: Arc<Credentials>,
    tasks: Tasks,
    metrics: ScrapeMetrics,
    running: HashMap<Job, RunningTask>,
    /// The endpoints of all pools, by name and address; `None` until there are pools.
    endpoints: Option<HashSet<(String, SocketAddr)>>,
    started: u32,
}

struct RunningTask {
    slot: Arc<Slot>,
    readers: Vec<Arc<Notify>>,
    _task: AbortOnDropHandle<()>,
}

impl Scraper {
    /// Scrapes nothing until [`Self::set_pools`] is called. `credentials` must have TLS if a pool is scraped over TLS.
    pub fn new(clock: Clock, credentials: Arc<Credentials>, tasks: Tasks, metrics: ScrapeMetrics) -> Self {
        Self { clock, credentials, tasks, metrics, running: HashMap::new(), endpoints: None, started: 0 }
    }

    /// Scrapes the endpoints of these pools from now on, and returns the slots of each pool, one for each endpoint in its order.
    /// Endpoints that stay keep their task and their reading.
    pub fn set_pools(&mut self, pools: Vec<ScrapedPool<'_>>) -> Vec<Vec<Arc<Slot>>> {
        let mut before = core::mem::take(&mut self.running);
        let endpoints_before = self.endpoints.take();
        let mut endpoints = HashSet::new();
        let mut slots = Vec::with_capacity(pools.len());
        for ScrapedPool { endpoints: members, plan, changes } in pools {
            let mut own = Vec::with_capacity(members.len());
            for endpoint in members {
                let job = Job::new(&plan, endpoint);
                let identity = (endpoint.name().to_owned(), endpoint.address());
                let is_new = endpoints_before.as_ref().is_some_and(|before| !before.contains(&identity));
                endpoints.insert(identity);
                let mut task = match self.running.remove(&job) {
                    Some(shared) => shared,
                    None => match before.remove(&job) {
                        Some(old) => RunningTask { readers: Vec::new(), ..old },
                        None => self.start(&job, is_new),
                    },
                };
                task.readers.push(Arc::clone(&changes));
                own.push(Arc::clone(&task.slot));
                self.running.insert(job, task);
            }
            slots.push(own);
        }
        self.endpoints = Some(endpoints);
        for task in self.running.values() {
            task.slot.set_readers(task.readers.clone());
        }
        slots
    }

    /// Starts a task. An endpoint that joins a pool (`is_new`) may have been there before, but what proxies recorded about its
    /// caches is out of date.
    fn start(&mut self, job: &Job, is_new: bool) -> RunningTask {
        let joined = is_new.then(clock::since_epoch);
        let slot = Slot::of_joined(joined);
        let credentials = Arc::clone(&self.credentials);
        let (metrics, restarts) = (self.metrics.clone(), RestartWatch::new(joined));
        let task = Task::new(job, Arc::clone(&slot), self.clock, credentials, metrics, restarts);
        let interval = job.settings.interval;
        let first = from_now_on(self.clock.now(), turn(self.started, interval), interval);
        self.started = self.started.wrapping_add(1);
        let task = self.tasks.spawn(format!("scraping of {}", job.endpoint), task.run(first));
        RunningTask { slot, readers: Vec::new(), _task: task }
    }
}
