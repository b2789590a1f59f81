//! Scraping once for all agents of a pool.
//!
//! In the store each endpoint has a lease, which one agent holds. That agent scrapes the endpoint and adds
//! its readings to the pool's stream, from which the others take them. A lease lasts for 1.75 scrape
//! intervals: when its holder is gone, another agent has it within three intervals. Of the agents that are
//! alive, one is preferred for each endpoint, and takes the lease from any other agent. While the store is
//! away, each agent scrapes everything.

mod group;
mod link;

use core::hash::BuildHasher;
use core::time::Duration;
use std::collections::HashMap;
use std::hash::RandomState;
use std::sync::Arc;

use group::LeaseGroup;
pub(super) use group::SharedScrape;
use link::LeaseLink;
use metrics_agent_support::runtime::{Clock, Tasks};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokio_util::task::AbortOnDropHandle;
use xxhash_rust::xxh64::xxh64;

use super::slot::Slot;
use crate::store::StoreAddress;

/// The leases of all pools.
pub struct Leases {
    address: Arc<StoreAddress>,
    /// A number of this agent's run.
    agent: u64,
    clock: Clock,
    tasks: Tasks,
    metrics: LeaseMetrics,
    /// Groups by the pools' names among the pools of all agents.
    groups: HashMap<String, RunningGroup>,
}

struct RunningGroup {
    group: Arc<LeaseGroup>,
    _task: AbortOnDropHandle<()>,
}

impl Leases {
    /// No leases yet.
    pub fn new(address: StoreAddress, clock: Clock, tasks: Tasks, metrics: LeaseMetrics) -> Self {
        // The standard library seeds its maps at random.
        let agent = RandomState::new().hash_one(clock.now());
        Self { address: Arc::new(address), agent, clock, tasks, metrics, groups: HashMap::new() }
    }

    /// The part of one endpoint of a pool. `scrape` is a hash of the endpoint and of how it is scraped, the
    /// same in every agent.
    pub(super) fn of(
        &mut self,
        pool: &str,
        scrape: u64,
        interval: Duration,
        slot: &Arc<Slot>,
    ) -> SharedScrape {
        let running = self.groups.entry(pool.to_owned()).or_insert_with(|| {
            let group = Arc::new(LeaseGroup::new(self.clock, self.agent));
            let link = LeaseLink {
                pool: pool.to_owned(),
                address: Arc::clone(&self.address),
                agent: self.agent,
                clock: self.clock,
                group: Arc::clone(&group),
                metrics: self.metrics.clone(),
            };
            let task = self.tasks.spawn(format!("leases of pool {pool}"), link.run());
            RunningGroup { group, _task: task }
        });
        SharedScrape::new(&running.group, scrape, interval, slot)
    }

    /// Ends the leases of all other pools.
    pub(super) fn keep(&mut self, is_kept: impl Fn(&str) -> bool) {
        self.groups.retain(|pool, _| is_kept(pool));
    }
}

/// Counters of leases, for all pools together. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct LeaseMetrics {
    held: Gauge,
    read: Counter,
    failures: Counter,
}

impl LeaseMetrics {
    /// Registers the counters.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let help = "Endpoints that this agent scrapes for others";
        registry.register("scrape_leases", help, metrics.held.clone());
        let help = "Readings of other agents, from the store";
        registry.register("shared_readings", help, metrics.read.clone());
        let help = "Connections to the store that failed while readings were shared";
        registry.register("scrape_lease_failures", help, metrics.failures.clone());
        metrics
    }
}

/// A lease as it was last read. Times are on the agent's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum ReadLease {
    /// No agent is known to hold it.
    #[default]
    Free,
    /// This agent holds it until then.
    Own(Duration),
    /// Another agent holds it until then.
    Other(Duration),
}

/// The time for which a lease lasts. Another agent claims it at the first tick after that, so it scrapes less
/// than three intervals after the last renewal.
fn term(interval: Duration) -> Duration {
    interval * 7 / 4
}

impl ReadLease {
    /// Whether this agent has to renew it: less than an interval is left.
    fn is_due(self, now: Duration, interval: Duration) -> bool {
        matches!(self, Self::Own(until) if until < now + interval)
    }

    /// Whether this agent holds it; `None`: no agent is known to.
    fn is_own(self, now: Duration) -> Option<bool> {
        match self {
            Self::Own(until) if now < until => Some(true),
            Self::Other(until) if now < until => Some(false),
            Self::Free | Self::Own(_) | Self::Other(_) => None,
        }
    }
}

/// Maximum time between two entries of an agent in the stream. It adds one also without readings, to show
/// that it is alive.
const SHOWN_EVERY: Duration = Duration::from_millis(500);

/// Age of its last entry from which an agent counts as gone.
const GONE_AFTER: Duration = Duration::from_secs(2);

/// Maximum number of other agents; further agents are ignored.
const MAX_AGENTS: usize = 1000;

/// This agent and the others whose entries it has read. All agents know the same agents within
/// [`GONE_AFTER`].
#[derive(Debug)]
struct Agents {
    own: u64,
    /// When the others showed themselves last.
    others: HashMap<u64, Duration>,
}

impl Agents {
    fn new(own: u64) -> Self {
        Self { own, others: HashMap::new() }
    }

    fn is_own(&self, agent: u64) -> bool {
        agent == self.own
    }

    /// An agent has shown itself. Returns whether it is new.
    fn note(&mut self, agent: u64, at: Duration) -> bool {
        if let Some(last) = self.others.get_mut(&agent) {
            *last = at.max(*last);
            return false;
        }
        let is_noted = !self.is_own(agent) && self.others.len() < MAX_AGENTS;
        if is_noted {
            self.others.insert(agent, at);
        }
        is_noted
    }

    /// Leaves out agents that are gone. Returns whether there were any.
    fn drop_gone(&mut self, now: Duration) -> bool {
        let before = self.others.len();
        self.others.retain(|_, at| now.saturating_sub(*at) < GONE_AFTER);
        self.others.len() < before
    }

    /// The agent that should scrape an endpoint: the agent with the largest hash of the scrape and its number
    /// (rendezvous hashing). So all get about the same number of endpoints, and an agent that comes or goes
    /// moves only its own share.
    fn preferred(&self, scrape: u64) -> u64 {
        let rank = |agent: &u64| (xxh64(&scrape.to_le_bytes(), *agent), *agent);
        self.others.keys().copied().chain([self.own]).max_by_key(rank).unwrap_or(self.own)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_ends_within_three_intervals_and_is_renewed_before() {
        let (interval, now) = (Duration::from_millis(100), Duration::from_secs(9));
        let until = now + term(interval);
        assert!(term(interval) + interval < 3 * interval);
        for (lease, is_own) in [(ReadLease::Own(until), true), (ReadLease::Other(until), false)] {
            assert_eq!(lease.is_own(now), Some(is_own));
            assert_eq!(lease.is_own(until), None);
        }
        assert_eq!(ReadLease::Free.is_own(now), None);
        assert!(!ReadLease::Own(until).is_due(now, interval));
        assert!(ReadLease::Own(until).is_due(now + interval, interval));
        assert!(!ReadLease::Other(until).is_due(until, interval));
    }

    const NOW: Duration = Duration::from_secs(9);

    /// Knowledge of each of these agents, when all have shown themselves to all.
    fn agents(numbers: &[u64]) -> Vec<Agents> {
        let agent = |&own| {
            let mut agents = Agents::new(own);
            for &number in numbers {
                assert_eq!(agents.note(number, NOW), number != own);
            }
            agents
        };
        numbers.iter().map(agent).collect()
    }

    /// The agent that should scrape each endpoint, by what all of them know.
    fn preferred(agents: &[Agents], endpoints: u64) -> Vec<u64> {
        let of = |endpoint: u64| {
            let scrape = xxh64(&endpoint.to_le_bytes(), 0);
            let preferred = agents[0].preferred(scrape);
            assert!(agents.iter().all(|agents| agents.preferred(scrape) == preferred));
            preferred
        };
        (0..endpoints).map(of).collect()
    }

    #[test]
    fn each_of_several_agents_should_scrape_about_as_many_endpoints() {
        for count in [1, 2, 4, 8_usize] {
            let numbers: Vec<u64> = (0..count as u64).map(|n| xxh64(b"agent", n)).collect();
            let preferred = preferred(&agents(&numbers), 100);
            let even = 100.0 / count as f64;
            for agent in numbers {
                let endpoints = preferred.iter().filter(|&&preferred| preferred == agent).count();
                let share = endpoints as f64 / even;
                assert!((0.5..1.5).contains(&share), "{endpoints} of 100 endpoints, {count} agents");
            }
        }
    }

    #[test]
    fn an_agent_that_goes_moves_only_its_own_endpoints() {
        let before = preferred(&agents(&[11, 12, 13, 14]), 100);
        let after = preferred(&agents(&[11, 12, 13]), 100);
        for (before, after) in before.into_iter().zip(after) {
            assert!(before == after || before == 14);
        }
    }

    #[test]
    fn an_agent_counts_until_it_has_not_shown_itself_for_two_seconds() {
        let mut agents = Agents::new(1);
        assert!(agents.note(2, NOW) && !agents.note(2, NOW + SHOWN_EVERY) && !agents.note(2, NOW));
        assert!(!(0..100).all(|scrape| agents.preferred(scrape) == 1));
        assert!(!agents.drop_gone(NOW + GONE_AFTER), "it has shown itself since");
        assert!(agents.drop_gone(NOW + SHOWN_EVERY + GONE_AFTER));
        assert!((0..100).all(|scrape| agents.preferred(scrape) == 1));
        assert!(!agents.drop_gone(NOW + SHOWN_EVERY + GONE_AFTER));
    }

    #[test]
    fn numbers_that_a_store_makes_up_take_no_more_memory_than_a_thousand_agents() {
        let mut agents = Agents::new(0);
        let noted = (1..5_000).filter(|&agent| agents.note(agent, NOW)).count();
        assert_eq!((noted, agents.others.len()), (1_000, 1_000));
    }
}
