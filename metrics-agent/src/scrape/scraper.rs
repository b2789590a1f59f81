//! The scrape tasks of all pools.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use metrics_agent_catalogue::plan::members::Member;
use metrics_agent_catalogue::scraping::ScrapePlan;
use metrics_agent_support::client::credentials::ClientCredentials;
use metrics_agent_support::runtime::{self, Clock, Tasks};
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;

use super::ScrapeMetrics;
use super::data_sources::{BySource, DataSources};
use super::leases::Leases;
use super::restart::RestartWatch;
use super::slot::Slot;
use super::task::{Job, Task};
use super::turn::{from_now_on, nth_turn};

/// A pool to be scraped.
pub struct ScrapedPool<'a> {
    /// The pool's name.
    pub name: &'a str,
    /// Its name unique among all agents.
    pub qualified_name: &'a str,
    /// The pool's endpoints.
    pub members: &'a [Member],
    /// How they are scraped.
    pub plan: ScrapePlan,
    /// Notified when one of the pool's slots has changed.
    pub changes: Arc<Notify>,
}

/// The scrape tasks of all pools. An endpoint that belongs to several pools has one task if they scrape it
/// the same way.
pub struct Scraper {
    clock: Clock,
    credentials: Arc<ClientCredentials>,
    tasks: Tasks,
    metrics: ScrapeMetrics,
    /// `None`: every agent scrapes for itself.
    leases: Option<Leases>,
    running: HashMap<Job, RunningTask>,
    /// The endpoints of each pool that was scraped last.
    pools: HashMap<String, HashSet<Server>>,
    sources: DataSources,
    started: u32,
}

/// One server, by the key of its endpoint's name and address, and by its pod.
type Server = (u64, Option<Arc<str>>);

struct RunningTask {
    slot: Arc<Slot>,
    readers: Vec<Arc<Notify>>,
    _task: AbortOnDropHandle<()>,
}

impl Scraper {
    /// Scrapes nothing until [`Self::set_pools`] is called. `credentials` must have TLS if a pool is scraped
    /// over TLS. With `leases`, agents scrape for one another.
    pub fn new(
        clock: Clock,
        credentials: Arc<ClientCredentials>,
        tasks: Tasks,
        metrics: ScrapeMetrics,
        leases: Option<Leases>,
    ) -> Self {
        let sources = DataSources::new(clock, Arc::clone(&credentials), tasks.clone(), metrics.clone());
        Self {
            clock,
            credentials,
            tasks,
            metrics,
            leases,
            running: HashMap::new(),
            pools: HashMap::new(),
            sources,
            started: 0,
        }
    }

    /// Scrapes the endpoints of these pools from now on, and returns the slots of each pool, one for each
    /// endpoint in its order. Endpoints that stay keep their task and their reading.
    pub fn set_pools(&mut self, pools: Vec<ScrapedPool<'_>>) -> Vec<Vec<Arc<Slot>>> {
        let mut before = core::mem::take(&mut self.running);
        let pools_before = core::mem::take(&mut self.pools);
        if let Some(leases) = &mut self.leases {
            leases.keep(|name| pools.iter().any(|pool| pool.qualified_name == name));
        }
        let mut by_source = BySource::default();
        let mut slots = Vec::with_capacity(pools.len());
        for ScrapedPool { name, qualified_name, members, plan, changes } in pools {
            let mut own = Vec::with_capacity(members.len());
            // In a new pool no endpoint counts as new: proxies have recorded nothing about it that could be
            // out of date.
            let pool_before = pools_before.get(name);
            let mut servers = HashSet::with_capacity(members.len());
            for member in members {
                let job = Job::new(&plan, member);
                let server = (member.endpoint.key(), member.pod_uid());
                let is_new = pool_before.is_some_and(|before| !before.contains(&server));
                servers.insert(server);
                let mut task = match self.running.remove(&job) {
                    Some(shared) => shared,
                    None => match before.remove(&job) {
                        Some(old) => RunningTask { readers: Vec::new(), ..old },
                        None => self.start(qualified_name, &job, is_new),
                    },
                };
                task.readers.push(Arc::clone(&changes));
                task.slot.set_denied(member.is_denied);
                for source in &plan.sources {
                    by_source.add(source, member, &task.slot);
                }
                own.push(Arc::clone(&task.slot));
                self.running.insert(job, task);
            }
            slots.push(own);
            self.pools.insert(name.to_owned(), servers);
        }
        for task in self.running.values() {
            task.slot.set_readers(task.readers.clone());
        }
        self.sources.set(by_source);
        slots
    }

    /// Starts a task. An endpoint that joins a pool (`is_new`) may have been there before, but what proxies
    /// recorded about its caches is out of date.
    fn start(&mut self, pool: &str, job: &Job, is_new: bool) -> RunningTask {
        let joined = is_new.then(runtime::since_epoch);
        let slot = Slot::of_joined(joined);
        let credentials = Arc::clone(&self.credentials);
        let (metrics, restarts) = (self.metrics.clone(), RestartWatch::new(joined));
        let shared = self
            .leases
            .as_mut()
            .map(|leases| leases.of(pool, job.fingerprint(), job.settings.interval, &slot));
        let task = Task::new(job, Arc::clone(&slot), self.clock, credentials, metrics, restarts, shared);
        let interval = job.settings.interval;
        let first = from_now_on(self.clock.now(), nth_turn(self.started, interval), interval);
        self.started = self.started.wrapping_add(1);
        let task = self.tasks.spawn(format!("scraping of {}", job.endpoint), task.run(first));
        RunningTask { slot, readers: Vec::new(), _task: task }
    }
}

#[cfg(test)]
mod tests {
    use endpoint_picker::pool::Endpoint;
    use metrics_agent_catalogue::Plan;
    use metrics_agent_sources::kubernetes::Pod;
    use prometheus_client::registry::Registry;

    use super::*;
    use crate::flags::Flags;

    fn plan() -> ScrapePlan {
        use clap::Parser;
        let flags = Flags::try_parse_from(["metrics-agent", "--endpoint", "10.0.0.1:1"]).unwrap();
        let settings = flags.settings().unwrap();
        Plan::without_manifests(&settings.options).pools[0].scraping(&settings.scrape)
    }

    fn scraper() -> Scraper {
        let metrics = ScrapeMetrics::register(&mut Registry::default());
        Scraper::new(Clock::start(), Arc::default(), Tasks::new().0, metrics, None)
    }

    fn member(name: &str, pod: Option<&str>) -> Member {
        let endpoint = Endpoint::new(name.to_owned(), "10.0.0.1:1".parse().unwrap(), Vec::new());
        Member { endpoint, pod: pod.map(Pod::with_uid), is_denied: false }
    }

    /// The slots of one pool with these endpoints. Nothing is scraped, because nothing is awaited.
    fn slots(scraper: &mut Scraper, plan: &ScrapePlan, members: &[Member]) -> Vec<Arc<Slot>> {
        let pool = ScrapedPool {
            name: "p",
            qualified_name: "p",
            members,
            plan: plan.clone(),
            changes: Arc::default(),
        };
        scraper.set_pools(vec![pool]).remove(0)
    }

    #[tokio::test]
    async fn a_pod_that_comes_back_under_its_name_and_address_begins_cold() {
        let (mut scraper, plan) = (scraper(), plan());
        let first = slots(&mut scraper, &plan, &[member("n/a-rank-0", Some("u1"))]);
        assert_eq!(first[0].reading().cached_since, None, "it was there when the agent started");
        let same = slots(&mut scraper, &plan, &[member("n/a-rank-0", Some("u1"))]);
        assert!(Arc::ptr_eq(&first[0], &same[0]));
        let next = slots(&mut scraper, &plan, &[member("n/a-rank-0", Some("u2"))]);
        assert!(next[0].reading().cached_since.is_some());
        assert!(next[0].reading().updated.is_none(), "it has none of the readings of the other pod");
    }

    #[tokio::test]
    async fn an_endpoint_that_joins_a_pool_is_new_unless_the_pool_is() {
        let (mut scraper, plan) = (scraper(), plan());
        let a = member("n/a", None);
        assert_eq!(slots(&mut scraper, &plan, core::slice::from_ref(&a))[0].reading().cached_since, None);
        let pool = |name, members| ScrapedPool {
            name,
            qualified_name: name,
            members,
            plan: plan.clone(),
            changes: Arc::default(),
        };
        let (b, c) = ([a.clone(), member("n/b", None)], [member("n/c", None)]);
        let slots = scraper.set_pools(vec![pool("p", &b), pool("q", &c)]);
        assert!(slots[0][1].reading().cached_since.is_some(), "b joined p");
        assert_eq!(slots[1][0].reading().cached_since, None, "q is new, as after a restart of the agent");
        // An empty pool that fills.
        scraper.set_pools(vec![pool("p", &[])]);
        let slots = scraper.set_pools(vec![pool("p", &b)]);
        assert!(slots[0].iter().all(|slot| slot.reading().cached_since.is_some()));
    }
}
