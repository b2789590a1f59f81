//! Changes that the proxies of a pool share.
//!
//! Each proxy sends what its requests have changed, and reads what the requests of other proxies have
//! changed. The agent keeps recent messages in a [`PoolFeed`] and does not decode them; with a [`store`],
//! agents exchange them too. Requests do not wait for it: a proxy continues with the changes that it has.

pub mod feed;
pub mod store;

use core::hash::BuildHasher;
use core::time::Duration;
use std::collections::HashMap;
use std::hash::RandomState;
use std::sync::Arc;

use bytes::Bytes;
pub use feed::MAX_MESSAGE_BYTES;
use feed::{FeedLimits, PoolFeed, ReaderStatus};
use metrics_agent_support::runtime::{Clock, Tasks};
use parking_lot::Mutex;
use store::{
    Outgoing, OutgoingMessage, Progress, READ_WAIT, StoreMetrics, StreamLink, WaitingMessages, stream_key,
};
use tokio_util::task::AbortOnDropHandle;

use crate::publish::Pools;
use crate::store::StoreAddress;

/// Which proxies share their changes.
#[derive(Clone, Debug)]
pub enum Share {
    /// None: each has only its own requests in view.
    Off,
    /// The proxies of this agent.
    Agent,
    /// The proxies of all agents with this store.
    Store(StoreAddress),
}

/// The feeds by the pools' [qualified names](metrics_agent_catalogue::PoolPlan::qualified_name): two pools of
/// one name in two namespaces have feeds of their own, also in agents that read files.
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

/// Changes that the proxies of one pool share.
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
    progress: Arc<Progress>,
    _task: AbortOnDropHandle<()>,
}

/// How far behind the proxies and the agent are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SharedPoolStatus {
    /// The proxies of this agent.
    pub readers: Vec<ReaderStatus>,
    /// The agent itself, with a store.
    pub store: Option<LinkStatus>,
}

/// How far behind its store an agent is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkStatus {
    /// Whether messages are exchanged with the store.
    pub is_connected: bool,
    /// The time for which messages of other agents may have waited to be read.
    pub unread_for: Duration,
    /// Messages of its proxies that the store has not taken.
    pub unwritten: usize,
    /// The time for which the oldest of them has waited.
    pub unwritten_for: Duration,
}

impl Feeds {
    /// No feeds yet; `None` if proxies do not share. The feeds of removed pools are dropped.
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

    /// Changes that the proxies of a pool share; the agent serves the pool under this name.
    pub fn of(&self, name: &str, qualified_name: &str) -> Arc<SharedPool> {
        let mut feeds = self.feeds.lock();
        if let Some(shared) = feeds.get(qualified_name) {
            return Arc::clone(shared);
        }
        // Drops feeds of removed pools, and the feed of a pool that had this name in another namespace.
        feeds.retain(|_, shared| shared.name != name && self.pools.publisher(&shared.name).is_some());
        let feed = Arc::new(PoolFeed::new(self.clock, self.limits));
        let link = self.store.as_ref().map(|store| store.link(self.clock, qualified_name, &feed));
        let shared = Arc::new(SharedPool { name: name.to_owned(), feed, link });
        feeds.insert(qualified_name.to_owned(), Arc::clone(&shared));
        shared
    }

    /// How far behind the proxies of a pool are, and the agent, by the pool's name at this agent.
    pub fn status(&self, name: &str) -> SharedPoolStatus {
        let shared = self.feeds.lock().values().find(|shared| shared.name == name).map(Arc::clone);
        shared.map_or_else(SharedPoolStatus::default, |shared| shared.status())
    }
}

impl Store {
    fn link(&self, clock: Clock, pool: &str, feed: &Arc<PoolFeed>) -> RunningLink {
        let outgoing = Arc::new(Outgoing::new(self.metrics.dropped.clone()));
        let progress = Arc::new(Progress::new(clock.now(), READ_WAIT));
        let link = StreamLink {
            key: stream_key(pool),
            address: Arc::clone(&self.address),
            agent: self.agent,
            clock,
            feed: Arc::clone(feed),
            outgoing: Arc::clone(&outgoing),
            progress: Arc::clone(&progress),
            metrics: self.metrics.clone(),
        };
        let task = self.tasks.spawn(format!("store of pool {pool}"), link.run());
        RunningLink { clock, outgoing, progress, _task: task }
    }
}

impl SharedPool {
    /// Adds a message of a proxy of this agent, which was made this long ago.
    pub fn publish(&self, sender: u64, age: Duration, changes: &[u8]) {
        // A slice of the request would keep all that its connection read at once, headers included.
        let changes = Bytes::copy_from_slice(changes);
        if let Some(link) = &self.link {
            let arrived = link.clock.now();
            link.outgoing.push(OutgoingMessage { sender, arrived, age, changes: changes.clone() });
        }
        // Not refused: the API accepts no larger message.
        let _ = self.feed.push(sender, age, changes);
    }

    fn status(&self) -> SharedPoolStatus {
        SharedPoolStatus { readers: self.feed.readers(), store: self.link.as_ref().map(RunningLink::status) }
    }
}

impl RunningLink {
    fn status(&self) -> LinkStatus {
        let now = self.clock.now();
        let WaitingMessages { messages, longest } = self.outgoing.waiting(now);
        LinkStatus {
            is_connected: self.progress.is_connected(),
            unread_for: self.progress.behind(now),
            unwritten: messages,
            unwritten_for: longest,
        }
    }
}
