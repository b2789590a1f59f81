//! The pools of the process, and the way to their agents: snapshots come from an agent, reports go to it, and
//! changes are exchanged through it with other proxies.
//!
//! The engine's [`Link`] decides which request is due and takes its response. For all pools with the same way
//! to the agent, three [threads](link_thread) send the requests over connections of their own: one polls and
//! reports, one polls for cached prefixes, and one exchanges changes, which a poll would keep back. The
//! requests of several pools travel in [batches](batch). Snapshots are decoded and compiled there, not by
//! workers. A filter configuration, a route or a cluster has a [`PoolHandle`], its part in a pool that is
//! kept up to date. Pools without an agent have one thread, which adopts their views and wakes the filters.
//! [`models`] are polled by a thread of their own where requests are routed by their bodies.

mod batch;
mod connection;
mod credentials;
mod link_thread;
pub(crate) mod models;
mod prompt_texts;
mod resolver;
mod tls_advice;
mod updated_pool;
pub mod wakes;

use core::hash::BuildHasher;
use core::sync::atomic::{AtomicU64, Ordering};
use core::time::Duration;
use std::hash::RandomState;
use std::io;
use std::sync::{Arc, LazyLock};

use endpoint_picker_engine::agent::{PollTimes, PrefixClient, Reporter, SnapshotClient};
use endpoint_picker_engine::form::Form;
use endpoint_picker_engine::link::Link;
use endpoint_picker_engine::record::RecordClient;
use endpoint_picker_engine::sharing::{Identity, Positions, SharingClient};
use endpoint_picker_engine::static_pool::StaticPool;

use self::link_thread::LinkThread;
use self::updated_pool::UpdatedPool;
use crate::config::AgentAccess;
use crate::pool::queue_thread::QueueTicks;
use crate::pool::store::SharedStore;
use crate::pool::{SharedPool, watchers};
use crate::process::clock;
use crate::process::registry::ProcessRegistry;

/// Times of a poll. The wait is short, so that a poll that hangs is soon known as such, and the next agent is
/// asked.
const POLL: PollTimes = PollTimes { wait: Duration::from_millis(250), timeout: Duration::from_millis(1250) };

/// Maximum pause of the threads that poll for snapshots, which wake the filters, and exchange changes, which
/// drop the loads of proxies that have vanished.
const MAX_PAUSE: Duration = Duration::from_millis(250);

/// Maximum pause of the thread that polls for cached prefixes: it has nothing else to do.
const MAX_PREFIX_PAUSE: Duration = Duration::from_secs(1);

/// The pools of the process, by their name and the way to their agent, if they have one.
static POOLS: LazyLock<ProcessRegistry<(String, Option<AgentAccess>), PoolRuntime>> =
    LazyLock::new(ProcessRegistry::new);

/// The threads of the process, by the way to the agent of their pools.
static THREADS: LazyLock<ProcessRegistry<Option<AgentAccess>, PoolThreads>> =
    LazyLock::new(ProcessRegistry::new);

/// The threads of all pools with the same way to the agent, or of all without an agent.
#[derive(Debug)]
struct PoolThreads {
    /// Polls and reports. Without an agent it only adopts views.
    polls: LinkThread,
    /// The threads that pools with an agent have besides.
    others: Option<AgentThreads>,
    last_number: AtomicU64,
}

#[derive(Debug)]
struct AgentThreads {
    /// Polls for cached prefixes.
    prefixes: LinkThread,
    /// Exchanges changes.
    sync: LinkThread,
}

impl PoolThreads {
    fn start(access: Option<&AgentAccess>) -> io::Result<Self> {
        let name = if access.is_some() { "epp-agent" } else { "epp-pools" };
        Ok(Self {
            polls: LinkThread::start(name, access, MAX_PAUSE, wakes::wake_if_due)?,
            others: access.map(AgentThreads::start).transpose()?,
            last_number: AtomicU64::new(0),
        })
    }
}

impl AgentThreads {
    fn start(access: &AgentAccess) -> io::Result<Self> {
        Ok(Self {
            prefixes: LinkThread::start("epp-prefixes", Some(access), MAX_PREFIX_PAUSE, || {})?,
            sync: LinkThread::start("epp-share", Some(access), MAX_PAUSE, || {})?,
        })
    }
}

/// A pool that is kept up to date.
#[derive(Debug)]
struct PoolRuntime {
    name: String,
    pool: Arc<SharedPool>,
    /// The number of its links.
    number: u64,
    threads: Arc<PoolThreads>,
    _queue_ticks: QueueTicks,
}

impl PoolRuntime {
    /// Begins to keep a pool up to date.
    fn start(name: &str, access: Option<&AgentAccess>, proxy: &str) -> io::Result<Self> {
        let threads = THREADS.get_or_make(access.cloned(), || PoolThreads::start(access))?;
        let pool = Arc::<SharedPool>::default();
        let queue_ticks = QueueTicks::start(&pool)?;
        let agents = access.map_or(0, |access| access.addresses.len());
        let number = threads.last_number.fetch_add(1, Ordering::Relaxed) + 1;
        let updated = || UpdatedPool::new(name, SharedStore::new(&pool));
        let mut polls = Link::new(agents);
        if let Some(AgentThreads { prefixes, sync }) = &threads.others {
            // Reports of a proxy with another generation replace its earlier reports.
            let generation = u64::try_from(clock::now().as_nanos()).unwrap_or_default();
            let reporter = Reporter::new(name, proxy.to_owned(), Form::Native, generation);
            polls.start_polls(SnapshotClient::new(name, POLL), reporter, RecordClient::new(name));
            let mut prefix_polls = Link::new(agents);
            prefix_polls.start_prefixes(PrefixClient::new(name, POLL));
            prefixes.add(number, prefix_polls, updated());
            let mut syncs = Link::new(agents);
            // The pool is a sender of its own to the other proxies. The standard library seeds its maps at
            // random.
            let identity = Identity { sender: RandomState::new().hash_one(clock::now()), epoch: 1 };
            syncs.start_sync(SharingClient::new(name, proxy.to_owned(), identity, Positions::default()));
            sync.add(number, syncs, updated());
        }
        threads.polls.add(number, polls, updated());
        Ok(Self { name: name.to_owned(), number, threads, _queue_ticks: queue_ticks, pool })
    }
}

impl Drop for PoolRuntime {
    fn drop(&mut self) {
        let PoolThreads { polls, others, .. } = &*self.threads;
        polls.remove(self.number);
        for thread in others.iter().flat_map(|others| [&others.prefixes, &others.sync]) {
            thread.remove(self.number);
        }
        watchers::notify(&self.name);
    }
}

/// The pools that configurations have under this name, the newest first: one for each way to the agent.
pub(crate) fn pools_of_name(name: &str) -> Vec<Arc<SharedPool>> {
    POOLS.find(|(other, _)| other == name).iter().map(|runtime| Arc::clone(&runtime.pool)).collect()
}

/// A filter configuration's part in a pool. Configurations of the same pool and the same way to the agent
/// share one state, also an older one and the one that replaces it.
///
/// When the last part is dropped, the pool's requests to the agent end, and the threads with the last pool of
/// the agent. Stores may outlive it: they keep the state, which then gets no snapshots.
#[derive(Debug)]
pub struct PoolHandle {
    runtime: Arc<PoolRuntime>,
}

impl PoolHandle {
    /// Attaches a filter configuration to its pool; without a way to the agent, the pool has endpoints when
    /// it is [set](Self::set). `proxy` is the proxy's name in reports. The error is one of the system: no
    /// thread can be started.
    pub fn new(name: &str, access: Option<&AgentAccess>, proxy: &str) -> io::Result<Self> {
        let mut is_new = false;
        let runtime = POOLS.get_or_make((name.to_owned(), access.cloned()), || {
            is_new = true;
            PoolRuntime::start(name, access, proxy)
        })?;
        if is_new {
            watchers::notify(name);
        }
        Ok(Self { runtime })
    }

    /// Decides by the endpoints and the rules of this configuration from now on, in all configurations of the
    /// pool: an update has them before the older one ends. The state of endpoints that stay is kept.
    pub fn set(&self, pool: &StaticPool) {
        let PoolRuntime { number, threads, .. } = &*self.runtime;
        threads.polls.with_pool(*number, |updated| updated.set(pool, clock::now()));
    }

    /// The store of one more worker.
    pub fn new_store(&self) -> SharedStore {
        SharedStore::new(&self.runtime.pool)
    }

    /// The pool.
    pub fn pool(&self) -> &SharedPool {
        &self.runtime.pool
    }
}
