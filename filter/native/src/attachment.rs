//! A filter configuration's part in a pool that the whole process shares.

use std::io;
use std::sync::{Arc, LazyLock};

use endpoint_picker_engine::agent::{AgentAnswer, AgentRequest, CallError, CallId};
use endpoint_picker_engine::proxy::ProxyError;

use crate::agent::{Callouts, Thread, Updater, poll_thread, ticker};
use crate::clock;
use crate::config::AgentAccess;
use crate::registry::Registry;
use crate::shared::{SharedPool, SharedStore};
use crate::users::{Users, Wake};

/// The pools of the process, by their name and the way to their agent.
static POOLS: LazyLock<Registry<(String, AgentAccess), Running>> = LazyLock::new(Registry::new);

/// A pool that is kept up to date.
#[derive(Debug)]
struct Running {
    pool: Arc<SharedPool>,
    users: Arc<Users>,
    /// Ends with the pool.
    _thread: Thread,
}

/// The pool of this name, if a filter configuration uses one.
pub(crate) fn pool_of_name(name: &str) -> Option<Arc<SharedPool>> {
    POOLS.find(|(other, _)| other == name).map(|running| Arc::clone(&running.pool))
}

/// A filter configuration's part in a pool. Configurations of the same pool and the same way to the agent share one state, also an
/// older one and the one that replaces it.
///
/// When the last part is dropped, the pool's thread ends. Stores may outlive it: they keep the state, which then gets no snapshots.
#[derive(Debug)]
pub struct Attachment {
    running: Arc<Running>,
    number: u64,
    /// `None` if a thread sends the requests.
    callouts: Option<Callouts>,
}

impl Attachment {
    /// Attaches a filter configuration to its pool. `proxy` is the proxy's name in reports; `wake` has Envoy's main thread call
    /// [`Self::tick`] soon. The error is one of the system: no thread can be started.
    pub fn new(name: &str, access: &AgentAccess, proxy: &str, wake: Wake) -> io::Result<Self> {
        let updater = |pool: &Arc<SharedPool>| {
            // Reports of one proxy with another generation replace those before.
            let generation = u64::try_from(clock::now().as_nanos()).unwrap_or_default();
            Updater::new(name, SharedStore::new(pool), proxy.to_owned(), generation)
        };
        let running = POOLS.get_or_make((name.to_owned(), access.clone()), || {
            let pool = Arc::<SharedPool>::default();
            let users = Arc::<Users>::default();
            let thread = match access {
                AgentAccess::Direct(access) => poll_thread::start(updater(&pool), access, Arc::clone(&users)),
                AgentAccess::Cluster(_) => ticker::start(Arc::clone(&users)),
            };
            Ok::<_, io::Error>(Running { pool, users, _thread: thread? })
        })?;
        let callouts = match access {
            AgentAccess::Direct(_) => None,
            AgentAccess::Cluster(cluster) => Some(Callouts::new(cluster, updater(&running.pool))),
        };
        Ok(Self { number: running.users.add(wake), running, callouts })
    }

    /// The store of one more worker.
    pub fn new_store(&self) -> SharedStore {
        SharedStore::new(&self.running.pool)
    }

    /// The pool.
    pub fn pool(&self) -> &SharedPool {
        &self.running.pool
    }

    /// Whether this configuration acts for all of the same pool: it sets the gauges that are the same for all workers.
    pub fn is_first(&self) -> bool {
        self.running.users.is_first(self.number)
    }

    /// Sends the requests to the agent that are due, if this configuration acts and Envoy sends them. `call` starts a call of Envoy to a
    /// cluster and returns its number.
    pub fn tick(&mut self, call: impl FnMut(&str, &AgentRequest) -> Result<CallId, ProxyError>) {
        let is_first = self.is_first();
        if let Some(callouts) = self.callouts.as_mut().filter(|_| is_first) {
            callouts.tick(clock::now(), call);
        }
    }

    /// Takes the answer to a call that [`Self::tick`] started.
    pub fn take_answer(&mut self, call: CallId, answer: Result<AgentAnswer, CallError>) {
        if let Some(callouts) = &mut self.callouts {
            callouts.take_answer(call, answer, clock::now());
        }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        self.running.users.remove(self.number);
    }
}
