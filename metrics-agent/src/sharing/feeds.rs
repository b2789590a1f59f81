//! The feeds of all pools, and their links to a store.

use core::hash::BuildHasher;
use core::time::Duration;
use std::collections::HashMap;
use std::hash::RandomState;
use std::sync::Arc;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio_util::task::AbortOnDropHandle;

use super::feed::{FeedLimits, PoolFeed};
use super::store::link::{Link, stream_key};
use super::store::{Outgoing, OutgoingMessage, StoreAddress, StoreMetrics};
use crate::publish::pools::Pools;
use crate::runtime::clock::Clock;
use crate::runtime::tasks::Tasks;

/// Which proxies share their changes.
#[derive(Clone, Debug)]
pub enum Share {
    /// None: each has only its own requests in view.
    Off,
    /// Those of this agent.
    Agent,
    /// Those of all agents with this store.
    Store(StoreAddress),
}

/// The feeds by the pools' [qualified names](crate::catalogue::PoolPlan::qualified_name): two pools of one name in two namespaces have
/// feeds of their own, also in agents that read files.
#[derive(Debug)]
pub struct Feeds {
    clock: Clock,
    limits: FeedLimits,
    pools: Arc<Pools>,
    store: Option<Store>,
    feeds: Mutex<HashMap<String, Arc<SharedPool>>>,
}

#[derive(Debug)]
struct Store {
    address: Arc<StoreAddress>,
    /// A number of this agent's run.
    agent: u64,
    tasks: Tasks,
    metrics: StoreMetrics,
}

/// What the proxies of one pool share.
#[derive(Debug)]
pub struct SharedPool {
    /// The pool's name in requests to this agent.
    name: String,
    /// The recent messages.
    pub feed: Arc<PoolFeed>,
    link: Option<RunningLink>,
}

#[derive(Debug)]
struct RunningLink {
    clock: Clock,
    outgoing: Arc<Outgoing>,
    metrics: StoreMetrics,
    _task: AbortOnDropHandle<()>,
}

impl Feeds {
    /// No feeds yet; `None` if proxies do not share. Those of pools that are removed are dropped.
    pub fn start(
        share: Share,
        clock: Clock,
        pools: &Arc<Pools>,
        tasks: &Tasks,
        metrics: &StoreMetrics,
    ) -> Option<Arc<Self>> {
        let store = match share {
            Share::Off => return None,
            Share::Agent => None,
            Share::Store(address) => Some(Store {
                address: Arc::new(address),
                // The standard library seeds its maps at random.
                agent: RandomState::new().hash_one(clock.now()),
                tasks: tasks.clone(),
                metrics: metrics.clone(),
            }),
        };
        let pools = Arc::clone(pools);
        Some(Arc::new(Self { clock, limits: FeedLimits::default(), pools, store, feeds: Mutex::default() }))
    }

    /// What the proxies of a pool share that the agent serves under this name.
    pub fn of(&self, name: &str, qualified_name: &str) -> Arc<SharedPool> {
        let mut feeds = self.feeds.lock();
        if let Some(shared) = feeds.get(qualified_name) {
            return Arc::clone(shared);
        }
        // A pool of the same name has moved to another namespace.
        feeds.retain(|_, shared| shared.name != name && self.pools.publisher(&shared.name).is_some());
        let feed = Arc::new(PoolFeed::new(self.clock, self.limits));
        let link = self.store.as_ref().map(|store| store.link(self.clock, qualified_name, &feed));
        let shared = Arc::new(SharedPool { name: name.to_owned(), feed, link });
        feeds.insert(qualified_name.to_owned(), Arc::clone(&shared));
        shared
    }
}

impl Store {
    fn link(&self, clock: Clock, pool: &str, feed: &Arc<PoolFeed>) -> RunningLink {
        let outgoing = Arc::<Outgoing>::default();
        let link = Link {
            key: stream_key(pool),
            address: Arc::clone(&self.address),
            agent: self.agent,
            clock,
            feed: Arc::clone(feed),
            outgoing: Arc::clone(&outgoing),
            metrics: self.metrics.clone(),
        };
        let task = self.tasks.spawn(format!("store of pool {pool}"), link.run());
        RunningLink { clock, outgoing, metrics: self.metrics.clone(), _task: task }
    }
}

impl SharedPool {
    /// Adds a message of a proxy of this agent, which was made this long ago.
    pub fn publish(&self, sender: u64, age: Duration, changes: Bytes) {
        if let Some(link) = &self.link {
            let message =
                OutgoingMessage { sender, arrived: link.clock.now(), age, changes: changes.clone() };
            link.metrics.dropped.inc_by(link.outgoing.push(message));
        }
        self.feed.push(sender, age, changes);
    }
}
