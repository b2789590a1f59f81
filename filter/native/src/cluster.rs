//! A cluster of the module: its hosts are the pool's endpoints, and every attempt goes where the picker's list says.

mod balancer;
mod pick;

use std::collections::HashMap;
use std::sync::Arc;

use endpoint_picker::pool::Endpoint;
use parking_lot::Mutex;
use serde::Deserialize;

use crate::abi::{BalancerHandle, ClusterHandle, Host};
use crate::attachment::pool_of_name;
use crate::watchers::Watcher;

pub(crate) use balancer::Balancer;
pub(crate) use pick::{Pick, filter_state_key};

/// The event of all wakes.
const WAKE: u64 = 0;

/// The JSON of a cluster's configuration.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct ClusterConfig {
    /// The pool, which a filter configuration keeps up to date.
    pool: String,
}

impl ClusterConfig {
    /// Takes a configuration into use. The error is the reason of a refusal.
    pub(crate) fn new(json: &[u8]) -> Result<Self, String> {
        if !BalancerHandle::reads_filter_state() {
            return Err("a cluster of the picker needs Envoy 1.39 or newer".to_owned());
        }
        serde_json::from_slice(json).map_err(|error| error.to_string())
    }
}

/// A cluster in use.
#[derive(Debug)]
pub(crate) struct Cluster {
    pool: Arc<str>,
    /// Only the main thread locks it.
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// By their `ip:port`.
    hosts: HashMap<String, Host>,
    /// Wakes the cluster when the pool has other endpoints.
    watcher: Option<Watcher>,
}

impl Cluster {
    pub(crate) fn new(config: &ClusterConfig) -> Self {
        Self { pool: config.pool.as_str().into(), state: Mutex::default() }
    }

    /// Gets the first hosts, and further ones when the pool's endpoints change.
    pub(crate) fn init(&self, handle: &mut ClusterHandle<'_>) {
        match handle.scheduler() {
            Some(scheduler) => {
                let wake = move || scheduler.commit(WAKE);
                self.state.lock().watcher = Some(Watcher::new(&self.pool, Box::new(wake)));
            }
            None => log::error!("Envoy has no scheduler for the cluster of pool {}", self.pool),
        }
        self.update(handle);
    }

    /// Adds the pool's new endpoints as hosts, and removes those that have left it.
    pub(crate) fn update(&self, handle: &mut ClusterHandle<'_>) {
        let Some(pool) = pool_of_name(&self.pool) else { return };
        let view = pool.view();
        let pool = view.pool();
        let hosts = &mut self.state.lock().hosts;
        let is_left =
            |address: &str| address.parse().ok().and_then(|address| pool.index_at(address)).is_none();
        let left: Vec<Host> = hosts.extract_if(|address, _| is_left(address)).map(|(_, host)| host).collect();
        let endpoints = pool.endpoints().iter().map(Endpoint::printed_address);
        let new: Vec<&str> = endpoints.filter(|address| !hosts.contains_key(*address)).collect();
        if !new.is_empty() {
            let added = handle.add_hosts(&new);
            if added.len() != new.len() {
                log::error!("Envoy refused new hosts of pool {}", self.pool);
            }
            hosts.extend(new.into_iter().map(str::to_owned).zip(added));
        }
        if !left.is_empty() {
            handle.remove_hosts(&left);
        }
    }

    /// The balancer of one worker.
    pub(crate) fn balancer(&self) -> Balancer {
        Balancer::new(&self.pool)
    }
}
