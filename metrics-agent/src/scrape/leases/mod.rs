//! Scraping once for all agents of a pool.
//!
//! In the store each endpoint has a lease, which one agent holds. That agent scrapes the endpoint and adds its readings to the pool's stream,
//! from which the others take them. A lease lasts for [`Lease::term`](lease::Lease): when its holder is gone, another agent has it
//! within three intervals. Of the agents that are alive, one is [preferred](agents) for each endpoint, and takes the lease from any other.
//! While the store is away, each agent scrapes everything.

mod agents;
mod group;
mod lease;
mod link;
mod metrics;
mod round;

use core::hash::BuildHasher;
use core::time::Duration;
use std::collections::HashMap;
use std::hash::RandomState;
use std::sync::Arc;

use tokio_util::task::AbortOnDropHandle;

use group::Group;
pub(super) use group::SharedScrape;
use link::Link;
pub use metrics::LeaseMetrics;

use super::slot::Slot;
use crate::runtime::clock::Clock;
use crate::runtime::tasks::Tasks;
use crate::store::StoreAddress;

/// The leases of all pools.
pub struct Leases {
    address: Arc<StoreAddress>,
    /// A number of this agent's run.
    agent: u64,
    clock: Clock,
    tasks: Tasks,
    metrics: LeaseMetrics,
    /// By the pools' names among those of all agents.
    groups: HashMap<String, RunningGroup>,
}

struct RunningGroup {
    group: Arc<Group>,
    _task: AbortOnDropHandle<()>,
}

impl Leases {
    /// No leases yet.
    pub fn new(address: StoreAddress, clock: Clock, tasks: Tasks, metrics: LeaseMetrics) -> Self {
        // The standard library seeds its maps at random.
        let agent = RandomState::new().hash_one(clock.now());
        Self { address: Arc::new(address), agent, clock, tasks, metrics, groups: HashMap::new() }
    }

    /// The part of one endpoint of a pool. `scrape` is a hash of the endpoint and of how it is scraped, the same in every agent.
    pub(super) fn of(
        &mut self,
        pool: &str,
        scrape: u64,
        interval: Duration,
        slot: &Arc<Slot>,
    ) -> SharedScrape {
        let running = self.groups.entry(pool.to_owned()).or_insert_with(|| {
            let group = Arc::new(Group::new(self.clock, self.agent));
            let link = Link {
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
