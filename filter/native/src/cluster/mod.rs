//! A cluster of the module: its hosts are the pool's endpoints, and every attempt goes to the next
//! destination of the picker's list.

pub(crate) mod balancer;
mod hosts;
pub(crate) mod pick;

use core::fmt;
use core::net::SocketAddr;
use core::time::Duration;
use std::io;
use std::sync::Arc;

use arc_swap::ArcSwap;
use endpoint_picker::pool::Endpoint;
use parking_lot::Mutex;
use serde::Deserialize;

use crate::abi::{BalancerHandle, ClusterHandle};
use crate::agent::{PoolHandle, pools_of_name};
use crate::config::{AgentAccess, AgentFields, checked_fallback};
use crate::pool::SharedPool;
use crate::pool::watchers::{self, Wake, Watcher};
use crate::process::clock;
use crate::process::proxy_name::proxy_name;
use crate::process::subscribers::Subscription;
use crate::process::thread::Thread;

pub(crate) use balancer::Balancer;
use balancer::Members;
use hosts::Hosts;

/// The event of all wakes.
const WAKE: u64 = 0;

/// The maximum time for which Envoy waits for the pool's first snapshot before it uses the cluster.
const INIT_WAIT: Duration = Duration::from_secs(2);

/// A cluster's configuration, checked.
#[derive(Clone, Debug)]
pub(crate) struct ClusterConfig {
    /// The pool, under the name that the filter's configuration has for it.
    pool: String,
    /// The other pools that may take its requests, in their order.
    fallback: Vec<String>,
    /// The way to the agent, if the cluster keeps the pool up to date too.
    agent: Option<AgentAccess>,
}

/// The JSON of a cluster's configuration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    pool: String,
    fallback: Option<Vec<String>>,
    agent: Option<AgentFields>,
}

impl ClusterConfig {
    /// Takes a configuration into use. The error is the reason of a refusal.
    pub(crate) fn new(json: &[u8]) -> Result<Self, String> {
        if !BalancerHandle::reads_filter_state() {
            return Err("a cluster of the picker needs Envoy 1.39 or newer".to_owned());
        }
        let Fields { pool, fallback, agent } =
            serde_json::from_slice(json).map_err(|error| error.to_string())?;
        let agent = agent.map(AgentFields::checked).transpose().map_err(|error| error.to_string())?;
        let fallback = checked_fallback(&pool, fallback).map_err(|error| error.to_string())?;
        Ok(Self { pool, fallback, agent })
    }
}

/// A cluster in use.
#[derive(Debug)]
pub(crate) struct Cluster {
    /// The pool, and the other pools that may take its requests.
    pools: Vec<Arc<str>>,
    agent: Option<AgentAccess>,
    members: Arc<ArcSwap<Members>>,
    /// Only the main thread locks it.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    hosts: Hosts,
    /// The last known endpoints of each pool, in the order of the cluster's list.
    endpoints: Vec<Vec<SocketAddr>>,
    /// When the cluster's initialization ends without a snapshot; `None` after its end.
    init_until: Option<Duration>,
    /// `None` if Envoy has no scheduler: then the first update is the only one.
    wake: Option<Wake>,
    watchers: Vec<Subscription<Watcher>>,
    timer: Option<Timer>,
    handles: Vec<PoolHandle>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

impl Cluster {
    pub(crate) fn new(config: &ClusterConfig) -> Self {
        let ClusterConfig { pool, fallback, agent } = config.clone();
        let pools: Vec<Arc<str>> = core::iter::once(pool).chain(fallback).map(Arc::from).collect();
        let state = State { endpoints: vec![Vec::new(); pools.len()], ..State::default() };
        Self { pools, agent, members: Arc::default(), state: Mutex::new(state) }
    }

    /// Begins to follow the pool. The initialization ends with the pool's first snapshot, or after [`INIT_WAIT`].
    pub(crate) fn init(&self, handle: &mut ClusterHandle<'_>) {
        let wake = handle.scheduler().map(|scheduler| -> Wake { Arc::new(move || scheduler.commit(WAKE)) });
        let mut state = self.state.lock();
        state.init_until = Some(clock::now() + INIT_WAIT);
        match wake {
            Some(wake) => {
                let watcher = |pool| Watcher::subscribe(pool, Arc::clone(&wake));
                state.watchers = self.pools.iter().map(watcher).collect();
                state.wake = Some(wake);
            }
            None => log::error!("Envoy has no scheduler for the cluster of pool {}", self.pool()),
        }
        state.handles = self.attach();
        drop(state);
        self.update(handle);
    }

    /// The name of the first pool.
    fn pool(&self) -> &str {
        self.pools.first().map_or("", |pool| pool)
    }

    /// Uses the pools as a filter configuration does, so that they are there before the first listener and stay behind the last one.
    fn attach(&self) -> Vec<PoolHandle> {
        let Some(agent) = &self.agent else { return Vec::new() };
        let proxy = proxy_name();
        let attached = self.pools.iter().map(|pool| PoolHandle::new(pool, agent, &proxy));
        attached.collect::<io::Result<_>>().unwrap_or_else(|error| {
            log::error!("no thread for the agent: {error}");
            Vec::new()
        })
    }

    /// Follows the pools of these names: there are several of one name while the way to the agent changes.
    pub(crate) fn update(&self, handle: &mut ClusterHandle<'_>) {
        // Read before the pools: a change that comes after this line wakes the cluster once more.
        let change = watchers::last_change();
        let now = clock::now();
        let mut state = self.state.lock();
        let pools: Vec<_> = self.pools.iter().map(|name| (Arc::clone(name), pools_of_name(name))).collect();
        let has_snapshot = state.describe(&pools);
        let State { hosts, endpoints, .. } = &mut *state;
        let refused = hosts.follow(handle, endpoints.iter().flatten().copied(), now);
        if let Some(first) = refused.first() {
            let count = refused.len();
            log::error!("Envoy refuses {count} endpoints of pool {} as hosts, such as {first}", self.pool());
        }
        self.members.store(Arc::new(Members::new(pools, state.hosts.listed())));
        state.hosts.remove_left(handle, now);
        for watcher in &state.watchers {
            watcher.update(|watcher| watcher.follow(change));
        }
        let is_initialized = state.ends_init(has_snapshot, now);
        // Unlocked, because Envoy makes balancers inside `complete_init`.
        drop(state);
        if is_initialized {
            if !has_snapshot {
                log::warn!(
                    "pool {} has no snapshot yet, and its cluster no hosts until one arrives: no configuration of the filter has \
                     this pool, or its agent does not answer",
                    self.pool()
                );
            }
            handle.complete_init();
        }
    }

    /// The balancer of one worker.
    pub(crate) fn balancer(&self) -> Balancer {
        Balancer::new(self.pool(), &self.members)
    }
}

impl State {
    /// Notes the endpoints of these pools, by the cluster's list. Without a snapshot nothing is known of a pool, so its earlier ones
    /// stay. Returns whether the first pool has a snapshot.
    fn describe(&mut self, pools: &[(Arc<str>, Vec<Arc<SharedPool>>)]) -> bool {
        let mut has_snapshot = false;
        for (place, (endpoints, (_, pools))) in self.endpoints.iter_mut().zip(pools).enumerate() {
            let described: Vec<_> = pools.iter().flat_map(|pool| pool.described()).collect();
            if !described.is_empty() {
                has_snapshot |= place == 0;
                *endpoints =
                    described.iter().flat_map(|pool| pool.as_slice()).map(Endpoint::address).collect();
            }
        }
        has_snapshot
    }

    /// Whether the initialization ends now. Sets the timer.
    fn ends_init(&mut self, has_snapshot: bool, now: Duration) -> bool {
        let is_waiting = self.init_until.is_some();
        if has_snapshot || self.init_until.is_some_and(|until| until <= now) {
            self.init_until = None;
        }
        self.set_timer(now);
        if self.timer.is_none() {
            // No timer is running, so nothing would end the initialization later.
            self.init_until = None;
        }
        is_waiting && self.init_until.is_none()
    }

    /// Has the next update come when something is due.
    fn set_timer(&mut self, now: Duration) {
        let due = self.hosts.due().into_iter().chain(self.init_until).min();
        if due == self.timer.as_ref().map(Timer::due) {
            return;
        }
        let started = due.zip(self.wake.as_ref()).map(|(due, wake)| Timer::start(due, now, Arc::clone(wake)));
        self.timer = started.transpose().unwrap_or_else(|error| {
            log::error!("no thread for a timer: {error}");
            None
        });
    }
}

/// A timer, because clusters of modules have none on Envoy's main thread. Wakes its owner once, unless it is dropped before.
#[derive(Debug)]
struct Timer {
    due: Duration,
    _thread: Thread,
}

impl Timer {
    /// A timer that is due at a time, on [`clock`].
    fn start(due: Duration, now: Duration, wake: Wake) -> io::Result<Self> {
        let thread = Thread::start("epp-timer", move |stop| {
            stop.wait(due.saturating_sub(now));
            if !stop.is_stopped() {
                wake();
            }
        });
        Ok(Self { due, _thread: thread? })
    }

    /// When it is due.
    fn due(&self) -> Duration {
        self.due
    }
}
