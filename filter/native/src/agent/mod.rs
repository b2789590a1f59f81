//! The way to the metrics agent: snapshots come from it, reports go to it, and changes are exchanged through it with other proxies.
//!
//! The engine's [`Link`] decides which request is due and takes its response. Two [threads](link_thread) for each pool send the requests
//! over connections of their own: one polls and reports, the other exchanges changes, which a poll would keep back. Snapshots are decoded and
//! compiled there, not by workers. A filter configuration, a route or a cluster has a [`PoolHandle`], its part in a pool that is kept up to
//! date.

mod connection;
mod credentials;
mod link_thread;
mod resolver;
mod tls_advice;
mod updated_pool;
pub mod wakes;

use core::hash::BuildHasher;
use core::time::Duration;
use std::hash::RandomState;
use std::io;
use std::sync::{Arc, LazyLock};

use endpoint_picker_engine::agent::{Link, PollTimes, Reporter, SnapshotClient};
use endpoint_picker_engine::form::Form;
use endpoint_picker_engine::sharing::{Identity, Positions, SharingClient};

use self::updated_pool::UpdatedPool;
use crate::config::AgentAccess;
use crate::pool::store::SharedStore;
use crate::pool::{SharedPool, queue_thread, watchers};
use crate::process::clock;
use crate::process::registry::Registry;
use crate::process::thread::Thread;

/// Times of a poll. The wait is short, so that a poll that hangs is soon known as such, and the next agent is asked.
const POLL: PollTimes = PollTimes { wait: Duration::from_millis(250), timeout: Duration::from_millis(1250) };

/// The pools of the process, by their name and the way to their agent.
static POOLS: LazyLock<Registry<(String, AgentAccess), PoolRuntime>> = LazyLock::new(Registry::new);

/// A pool that is kept up to date.
#[derive(Debug)]
struct PoolRuntime {
    name: String,
    pool: Arc<SharedPool>,
    /// They end with the pool.
    _threads: [Thread; 3],
}

impl PoolRuntime {
    /// Starts the threads of a pool.
    fn start(name: &str, access: &AgentAccess, proxy: &str) -> io::Result<Self> {
        let pool = Arc::<SharedPool>::default();
        let mut polls = Link::new(access.addresses.len());
        // Reports of a proxy with another generation replace its earlier reports.
        let generation = u64::try_from(clock::now().as_nanos()).unwrap_or_default();
        let reporter = Reporter::new(name, proxy.to_owned(), Form::Native, generation);
        polls.start_polls(SnapshotClient::new(name, POLL), reporter);
        let mut sync = Link::new(access.addresses.len());
        // The pool is a sender of its own to the other proxies. The standard library seeds its maps at random.
        let identity = Identity { sender: RandomState::new().hash_one(clock::now()), epoch: 1 };
        sync.start_sync(SharingClient::new(name, proxy.to_owned(), identity, Positions::default()));
        let updated = || UpdatedPool::new(name, SharedStore::new(&pool));
        let threads = [
            link_thread::start("epp-agent", polls, updated(), access, wakes::wake_if_due)?,
            link_thread::start("epp-share", sync, updated(), access, || {})?,
            queue_thread::start(SharedStore::new(&pool))?,
        ];
        Ok(Self { name: name.to_owned(), pool, _threads: threads })
    }
}

impl Drop for PoolRuntime {
    fn drop(&mut self) {
        watchers::notify(&self.name);
    }
}

/// The pools that configurations have under this name, the newest first: one for each way to the agent.
pub(crate) fn pools_of_name(name: &str) -> Vec<Arc<SharedPool>> {
    POOLS.find(|(other, _)| other == name).iter().map(|runtime| Arc::clone(&runtime.pool)).collect()
}

/// A filter configuration's part in a pool. Configurations of the same pool and the same way to the agent share one state, also an
/// older one and the one that replaces it.
///
/// When the last part is dropped, the pool's threads end. Stores may outlive it: they keep the state, which then gets no snapshots.
#[derive(Debug)]
pub struct PoolHandle {
    runtime: Arc<PoolRuntime>,
}

impl PoolHandle {
    /// Attaches a filter configuration to its pool. `proxy` is the proxy's name in reports. The error is one of the system: no
    /// thread can be started.
    pub fn new(name: &str, access: &AgentAccess, proxy: &str) -> io::Result<Self> {
        let mut is_new = false;
        let runtime = POOLS.get_or_make((name.to_owned(), access.clone()), || {
            is_new = true;
            PoolRuntime::start(name, access, proxy)
        })?;
        if is_new {
            watchers::notify(name);
        }
        Ok(Self { runtime })
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
