//! Pools and hosts from which the balancers of a cluster choose. The main thread replaces them as a whole.
//!
//! Envoy accepts a host on every worker as soon as the main thread has added it, also before the worker's own list has it.

use std::collections::HashMap;
use std::sync::Arc;

use endpoint_picker_engine::ledger::Ledger;

use crate::abi::Host;
use crate::clock;
use crate::shared::SharedPool;

/// A host and its `ip:port`.
pub(super) type Addressed = (Arc<str>, Host);

/// Pools and hosts from which balancers choose.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// The newest first.
    pools: Vec<Arc<SharedPool>>,
    hosts: Vec<Addressed>,
    by_address: HashMap<Arc<str>, Host>,
}

impl Members {
    /// The pools in use, the newest first, and all hosts.
    pub(super) fn new(pools: Vec<Arc<SharedPool>>, hosts: Vec<Addressed>) -> Self {
        let by_address = hosts.iter().cloned().collect();
        Self { pools, hosts, by_address }
    }

    /// The host at this `ip:port`.
    pub(super) fn host_at(&self, address: &str) -> Option<Host> {
        self.by_address.get(address).copied()
    }

    /// Whether a pool says that the endpoint at this `ip:port` is ready.
    pub(super) fn is_ready(&self, address: &str) -> bool {
        let Ok(address) = address.parse() else { return false };
        self.pools.iter().any(|pool| {
            let view = pool.view();
            let index = view.pool().index_at(address);
            index.and_then(|index| view.readings().get(index)).is_some_and(|reading| reading.ready)
        })
    }

    /// A host for a request without a destination, of those in the place `turn`: an endpoint of the newest pool that has one, ready and not
    /// avoided; if there is none, ready; and if no pool has any, any host.
    pub(super) fn any(&self, turn: usize) -> Option<Addressed> {
        let ready = self.pools.iter().find_map(|pool| self.ready_host(pool, turn));
        ready.or_else(|| in_turn(&self.hosts, turn).next().cloned())
    }

    fn ready_host(&self, pool: &SharedPool, turn: usize) -> Option<Addressed> {
        let view = pool.view();
        let now = clock::now();
        let avoided: Vec<u64> = pool.read(|ledger: &Ledger| ledger.avoided_endpoints(now).collect());
        let ready = view.pool().endpoints().iter().zip(view.readings()).filter(|(_, reading)| reading.ready);
        let ready: Vec<_> = ready.map(|(endpoint, _)| endpoint).collect();
        let usable: Vec<_> =
            ready.iter().copied().filter(|endpoint| !avoided.contains(&endpoint.key())).collect();
        let candidates = if usable.is_empty() { ready } else { usable };
        in_turn(&candidates, turn).find_map(|endpoint| {
            let found = self.by_address.get_key_value(endpoint.printed_address());
            found.map(|(address, host)| (Arc::clone(address), *host))
        })
    }
}

/// All items, from the one in this place on.
fn in_turn<T>(items: &[T], turn: usize) -> impl Iterator<Item = &T> {
    let start = turn.checked_rem(items.len()).unwrap_or(0);
    items.iter().cycle().skip(start).take(items.len())
}
