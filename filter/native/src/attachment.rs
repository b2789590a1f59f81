//! The part of a filter configuration, a route or a cluster in a pool that the whole process shares.

use core::hash::BuildHasher;
use std::hash::RandomState;
use std::io;
use std::sync::{Arc, LazyLock};

use endpoint_picker_engine::sharing::{Identity, Positions, SharingClient};
use parking_lot::Mutex;

use crate::agent::{Sharer, Thread, Updater, poll_thread, share_thread};
use crate::clock;
use crate::config::AgentAccess;
use crate::queue_thread;
use crate::registry::Registry;
use crate::shared::{SharedPool, SharedStore};
use crate::users::{Users, Wake};
use crate::watchers;

/// The pools of the process, by their name and the way to their agent.
static POOLS: LazyLock<Registry<(String, AgentAccess), Running>> = LazyLock::new(Registry::new);

/// A pool that is kept up to date.
#[derive(Debug)]
struct Running {
    name: String,
    pool: Arc<SharedPool>,
    users: Arc<Users>,
    /// The exchange of changes with other proxies.
    sharing: Arc<Mutex<SharingClient>>,
    /// They end with the pool.
    _threads: Vec<Thread>,
}

impl Drop for Running {
    fn drop(&mut self) {
        watchers::notify(&self.name);
    }
}

/// The pools that configurations have under this name, the newest first: one for each way to the agent.
pub(crate) fn pools_of_name(name: &str) -> Vec<Arc<SharedPool>> {
    POOLS.find(|(other, _)| other == name).iter().map(|running| Arc::clone(&running.pool)).collect()
}

/// The exchange of a pool's changes, which is a sender of its own to the other proxies.
fn sharing(pool: &str, proxy: &str) -> SharingClient {
    // The standard library seeds its maps at random.
    let sender = RandomState::new().hash_one(clock::now());
    SharingClient::new(pool, proxy.to_owned(), Identity { sender, epoch: 1 }, Positions::default())
}

/// A filter configuration's part in a pool. Configurations of the same pool and the same way to the agent share one state, also an
/// older one and the one that replaces it.
///
/// When the last part is dropped, the pool's thread ends. Stores may outlive it: they keep the state, which then gets no snapshots.
#[derive(Debug)]
pub struct Attachment {
    running: Arc<Running>,
    number: u64,
}

impl Attachment {
    /// Attaches a filter configuration to its pool. `proxy` is the proxy's name in reports; `wake` is called once a second. The error is
    /// one of the system: no thread can be started.
    pub fn new(name: &str, access: &AgentAccess, proxy: &str, wake: Wake) -> io::Result<Self> {
        let mut is_new = false;
        let running = POOLS.get_or_make((name.to_owned(), access.clone()), || {
            is_new = true;
            let pool = Arc::<SharedPool>::default();
            let users = Arc::<Users>::default();
            let sharing = Arc::new(Mutex::new(sharing(name, proxy)));
            let sharer = Sharer::new(SharedStore::new(&pool), Arc::clone(&sharing));
            // Reports of one proxy with another generation replace those before.
            let generation = u64::try_from(clock::now().as_nanos()).unwrap_or_default();
            let updater = Updater::new(name, SharedStore::new(&pool), proxy.to_owned(), generation);
            let threads = vec![
                poll_thread::start(updater, access, Arc::clone(&users))?,
                share_thread::start(sharer, access)?,
                queue_thread::start(SharedStore::new(&pool))?,
            ];
            Ok::<_, io::Error>(Running { name: name.to_owned(), pool, users, sharing, _threads: threads })
        })?;
        if is_new {
            watchers::notify(name);
        }
        Ok(Self { number: running.users.add(wake), running })
    }

    /// The store of one more worker.
    pub fn new_store(&self) -> SharedStore {
        SharedStore::new(&self.running.pool)
    }

    /// The pool.
    pub fn pool(&self) -> &SharedPool {
        &self.running.pool
    }

    /// The exchange of the pool's changes with other proxies.
    pub(crate) fn sharing(&self) -> Arc<Mutex<SharingClient>> {
        Arc::clone(&self.running.sharing)
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.running.users.remove(self.number);
    }
}
