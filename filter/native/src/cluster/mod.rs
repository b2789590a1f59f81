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
use crate::config::{AgentAccess, AgentFields, FallbackList, checked_fallback};
use crate::pool::SharedPool;
use crate::pool::watchers::{self, Wake, Watcher};
use crate::process::clock;
use crate::process::proxy_name::proxy_name;
use crate::process::subscribers::Subscription;
use crate::process::thread::Thread;

pub(crate) use balancer::Balancer;
use balancer::ClusterMembers;
use hosts::Hosts;

/// The event of all wakes.
const WAKE: u64 = 0;

/// The maximum time for which Envoy waits for the pool's first snapshot before it uses the cluster.
const INIT_WAIT: Duration = Duration::from_secs(2);

/// The same after an agent of another format has responded: agents are being upgraded or rolled back, and a
/// proxy that starts before they all are waits for one of its own format.
const UPGRADE_WAIT: Duration = Duration::from_secs(60);

/// A cluster's configuration, checked.
#[derive(Clone, Debug)]
pub(crate) struct ClusterConfig {
    /// The pool, under the name that the filter's configuration has for it.
    pool: String,
    /// The other pools that may take its requests.
    fallback: FallbackList,
    /// The way to the agent, if the cluster keeps the pool up to date too.
    agent: Option<AgentAccess>,
}

/// The JSON of a cluster's configuration.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClusterFields {
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
        let ClusterFields { pool, fallback, agent } =
            serde_json::from_slice(json).map_err(|error| error.to_string())?;
        let agent = agent.map(AgentFields::checked).transpose().map_err(|error| error.to_string())?;
        let fallback = checked_fallback(&pool, fallback).map_err(|error| error.to_string())?;
        Ok(Self { pool, fallback, agent })
    }
}

/// A cluster in use.
#[derive(Debug)]
pub(crate) struct Cluster {
    pool: Arc<str>,
    /// The other pools that may take its requests.
    fallback: FallbackList,
    agent: Option<AgentAccess>,
    members: Arc<ArcSwap<ClusterMembers>>,
    /// Only the main thread locks it.
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    hosts: Hosts,
    /// The cluster's pool, and the other pools that are or were on its list. They stay, because requests may
    /// be on their way to them.
    pools: Vec<ListedPool>,
    /// When the cluster's initialization began; `None` after its end.
    init_since: Option<Duration>,
    /// `None` if Envoy has no scheduler: then the first update is the only one.
    wake: Option<Wake>,
    timer: Option<Timer>,
}

/// A pool whose endpoints are hosts.
struct ListedPool {
    name: Arc<str>,
    /// Its last known endpoints.
    endpoints: Vec<SocketAddr>,
    watcher: Option<Subscription<Watcher>>,
    _handle: Option<PoolHandle>,
}

impl fmt::Debug for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("State").field("hosts", &self.hosts).finish_non_exhaustive()
    }
}

impl Cluster {
    pub(crate) fn new(config: &ClusterConfig) -> Self {
        let ClusterConfig { pool, fallback, agent } = config.clone();
        Self { pool: pool.into(), fallback, agent, members: Arc::default(), state: Mutex::default() }
    }

    /// Begins to follow the pool. The initialization ends with the pool's first snapshot, or after
    /// [`INIT_WAIT`] or [`UPGRADE_WAIT`].
    pub(crate) fn init(&self, handle: &mut ClusterHandle<'_>) {
        let wake = handle.scheduler().map(|scheduler| -> Wake { Arc::new(move || scheduler.commit(WAKE)) });
        let mut state = self.state.lock();
        state.init_since = Some(clock::now());
        if wake.is_none() {
            log::error!("Envoy has no scheduler for the cluster of pool {}", self.pool);
        }
        state.wake = wake;
        self.follow(&mut state, &self.pool);
        drop(state);
        self.update(handle);
    }

    /// Follows the pool of this name, if it is new. Uses it as a filter configuration does, so that it is
    /// there before the first listener and stays behind the last one.
    fn follow(&self, state: &mut State, name: &str) {
        if state.pools.iter().any(|pool| *pool.name == *name) {
            return;
        }
        let name: Arc<str> = name.into();
        let watcher = state.wake.as_ref().map(|wake| Watcher::subscribe(&name, Arc::clone(wake)));
        let attached = self.agent.as_ref().map(|agent| PoolHandle::new(&name, Some(agent), &proxy_name()));
        let handle = attached
            .transpose()
            .map_err(|error| log::error!("no thread for the agent: {error}"))
            .unwrap_or_default();
        state.pools.push(ListedPool { name, endpoints: Vec::new(), watcher, _handle: handle });
    }

    /// Follows the pools of the cluster's names: there are several of one name while the way to the agent
    /// changes.
    pub(crate) fn update(&self, handle: &mut ClusterHandle<'_>) {
        // Read before the pools: a change that comes after this line wakes the cluster once more.
        let change = watchers::last_change();
        let now = clock::now();
        let mut state = self.state.lock();
        let own = pools_of_name(&self.pool);
        let view = own.first().map(|pool| pool.view()).unwrap_or_default();
        for name in self.fallback.list(&view.policy().fallback) {
            self.follow(&mut state, name);
        }
        let pools: Vec<_> =
            state.pools.iter().map(|pool| (Arc::clone(&pool.name), pools_of_name(&pool.name))).collect();
        let has_snapshot = state.describe(&pools);
        let State { hosts, pools: listed, .. } = &mut *state;
        let endpoints = listed.iter().flat_map(|pool| &pool.endpoints).copied();
        let refused = hosts.follow(handle, endpoints, now);
        if let Some(first) = refused.first() {
            let count = refused.len();
            log::error!("Envoy refuses {count} endpoints of pool {} as hosts, such as {first}", self.pool);
        }
        self.members.store(Arc::new(ClusterMembers::new(pools, state.hosts.listed())));
        state.hosts.remove_left(handle, now);
        for watcher in state.pools.iter().filter_map(|pool| pool.watcher.as_ref()) {
            watcher.update(|watcher| watcher.follow(change));
        }
        let is_upgrade = own.iter().any(|pool| pool.has_met_other_format());
        let is_initialized = state.ends_init(has_snapshot, is_upgrade, now);
        // Unlocked, because Envoy makes balancers inside `complete_init`.
        drop(state);
        if is_initialized {
            if !has_snapshot {
                log::warn!(
                    "pool {} has no snapshot yet, and its cluster no hosts until one arrives: no configuration of the filter has \
                     this pool, or its agent does not answer or is of another version",
                    self.pool
                );
            }
            handle.complete_init();
        }
    }

    /// The balancer of one worker.
    pub(crate) fn balancer(&self) -> Balancer {
        Balancer::new(&self.pool, &self.members)
    }
}

impl State {
    /// Notes the endpoints of these pools, in the order of the listed ones. Without a snapshot nothing is
    /// known of a pool, so its earlier endpoints stay. Returns whether the first pool has a snapshot.
    fn describe(&mut self, pools: &[(Arc<str>, Vec<Arc<SharedPool>>)]) -> bool {
        let mut has_snapshot = None;
        for (listed, (_, pools)) in self.pools.iter_mut().zip(pools) {
            let described: Vec<_> = pools.iter().flat_map(|pool| pool.described()).collect();
            has_snapshot.get_or_insert_with(|| pools.iter().any(|pool| pool.view().versions().is_some()));
            if !described.is_empty() {
                let endpoints = described.iter().flat_map(|pool| pool.as_slice());
                listed.endpoints = endpoints.map(Endpoint::address).collect();
            }
        }
        has_snapshot.unwrap_or(false)
    }

    /// Whether the initialization ends now. `is_upgrade`: an agent of another format has responded. Sets the
    /// timer.
    fn ends_init(&mut self, has_snapshot: bool, is_upgrade: bool, now: Duration) -> bool {
        let Some(since) = self.init_since else {
            self.set_timer(None, now);
            return false;
        };
        let wait = if is_upgrade { UPGRADE_WAIT } else { INIT_WAIT };
        let until = since + wait;
        let is_waiting = !has_snapshot && now < until;
        self.set_timer(is_waiting.then_some(until), now);
        // Without a timer nothing would end the initialization later.
        if is_waiting && self.timer.is_some() {
            return false;
        }
        self.init_since = None;
        true
    }

    /// Has the next update come when something is due, at the latest at `init_until`.
    fn set_timer(&mut self, init_until: Option<Duration>, now: Duration) {
        let due = self.hosts.due().into_iter().chain(init_until).min();
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

/// A timer, because clusters of modules have none on Envoy's main thread. Wakes its owner once, unless it is
/// dropped before.
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

#[cfg(all(test, not(feature = "loom")))]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(100);

    fn initializing() -> State {
        State { init_since: Some(START), wake: Some(Arc::new(|| {})), ..State::default() }
    }

    #[test]
    fn a_snapshot_ends_the_initialization_once() {
        let mut state = initializing();
        assert!(!state.ends_init(false, false, START));
        assert!(state.ends_init(true, false, START));
        assert!(!state.ends_init(true, false, START));
        assert!(state.timer.is_none());
    }

    #[test]
    fn envoy_waits_longer_for_a_snapshot_while_agents_have_another_format() {
        let moment = Duration::from_millis(1);
        for (is_upgrade, wait) in [(false, INIT_WAIT), (true, UPGRADE_WAIT)] {
            let mut state = initializing();
            assert!(!state.ends_init(false, is_upgrade, START + wait.saturating_sub(moment)));
            assert_eq!(state.timer.as_ref().map(Timer::due), Some(START + wait));
            assert!(state.ends_init(false, is_upgrade, START + wait));
        }
        // The format is found out after the timer was set.
        let mut state = initializing();
        assert!(!state.ends_init(false, false, START));
        assert!(!state.ends_init(false, true, START + INIT_WAIT));
        assert_eq!(state.timer.as_ref().map(Timer::due), Some(START + UPGRADE_WAIT));
    }

    #[test]
    fn without_a_timer_the_initialization_ends_at_once() {
        let mut state = State { wake: None, ..initializing() };
        assert!(state.ends_init(false, true, START));
    }
}
