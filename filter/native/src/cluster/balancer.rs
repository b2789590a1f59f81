//! Chooses the host of every attempt, on one worker, from pools and hosts that the main thread replaces as a whole.
//!
//! Envoy accepts a host on every worker as soon as the main thread has added it, also before the worker's own list has it.

use core::cell::Cell;
use core::net::SocketAddr;
use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use endpoint_picker_engine::ledger::Ledger;

use super::pick::{Reference, filter_state_key};
use crate::abi::{BalancerHandle, Host};
use crate::pool::SharedPool;
use crate::process::clock;

/// One worker's balancer.
#[derive(Debug)]
pub(crate) struct Balancer {
    members: Arc<ArcSwap<Members>>,
    key: String,
    /// Where the next turn over all endpoints begins.
    turn: Cell<usize>,
}

impl Balancer {
    pub(super) fn new(pool: &str, members: &Arc<ArcSwap<Members>>) -> Self {
        Self { members: Arc::clone(members), key: filter_state_key(pool), turn: Cell::default() }
    }

    /// The host of the next attempt: the next destination of the request's pick that is still ready, and behind the list, unless a hint
    /// forbids it, any endpoint that is ready and not avoided. While no such endpoint is a host, any host.
    pub(crate) fn choose(&self, handle: &BalancerHandle<'_>) -> Option<Host> {
        let members = self.members.load();
        let pick = handle.filter_state(&self.key).and_then(Reference::from_bytes);
        if let Some(pick) = pick {
            while let Some((address, is_first)) = pick.take() {
                // The decision has just seen the first destination ready; an attempt at a later one may come
                // seconds after.
                if (is_first || members.is_ready(address))
                    && let Some(host) = members.host_at(address)
                {
                    pick.note(address);
                    return Some(host);
                }
            }
            if !pick.may_leave() {
                return None;
            }
        }
        let turn = self.turn.get();
        self.turn.set(turn.wrapping_add(1));
        let (address, host) = members.any(turn)?;
        if let Some(pick) = pick {
            pick.note(address);
        }
        Some(host)
    }
}

/// Pools and hosts from which balancers choose.
#[derive(Debug, Default)]
pub(super) struct Members {
    /// The newest first.
    pools: Vec<Arc<SharedPool>>,
    hosts: HashMap<SocketAddr, Host>,
}

impl Members {
    /// The pools in use, the newest first, and all hosts.
    pub(super) fn new(pools: Vec<Arc<SharedPool>>, hosts: HashMap<SocketAddr, Host>) -> Self {
        Self { pools, hosts }
    }

    /// The host at this address.
    pub(super) fn host_at(&self, address: SocketAddr) -> Option<Host> {
        self.hosts.get(&address).copied()
    }

    /// Whether a pool says that the endpoint at this address is ready.
    pub(super) fn is_ready(&self, address: SocketAddr) -> bool {
        self.pools.iter().any(|pool| {
            let view = pool.view();
            let index = view.pool().index_at(address);
            index.and_then(|index| view.readings().get(index)).is_some_and(|reading| reading.ready)
        })
    }

    /// A host for a request without a destination, in turn: of the newest pool's ready endpoints, without
    /// avoided endpoints if others are left. A pool without such a host is skipped; if all are, it is any
    /// host.
    pub(super) fn any(&self, turn: usize) -> Option<(SocketAddr, Host)> {
        let ready = self.pools.iter().find_map(|pool| self.ready_host(pool, turn));
        ready.or_else(|| {
            let place = turn.checked_rem(self.hosts.len())?;
            self.hosts.iter().nth(place).map(|(&address, &host)| (address, host))
        })
    }

    fn ready_host(&self, pool: &SharedPool, turn: usize) -> Option<(SocketAddr, Host)> {
        let view = pool.view();
        let now = clock::now();
        let avoided: Vec<u64> = pool.read(|ledger: &Ledger| ledger.avoided_endpoints(now).collect());
        let ready = view.pool().as_slice().iter().zip(view.readings()).filter(|(_, reading)| reading.ready);
        let ready: Vec<_> = ready.map(|(endpoint, _)| endpoint).collect();
        let usable: Vec<_> =
            ready.iter().copied().filter(|endpoint| !avoided.contains(&endpoint.key())).collect();
        let candidates = if usable.is_empty() { ready } else { usable };
        let start = turn.checked_rem(candidates.len())?;
        let mut in_turn = candidates.iter().cycle().skip(start).take(candidates.len());
        // An endpoint is not a host if Envoy has refused it, or if this cluster has not followed the view
        // yet.
        in_turn.find_map(|endpoint| {
            let address = endpoint.address();
            self.host_at(address).map(|host| (address, host))
        })
    }
}
