//! Chooses the host of every attempt, on one worker, from pools and hosts that the main thread replaces as a
//! whole.
//!
//! Envoy accepts a host on every worker as soon as the main thread has added it, also before the worker's own
//! list has it.

use core::cell::Cell;
use core::net::SocketAddr;
use std::collections::HashMap;
use std::sync::Arc;

use arc_swap::ArcSwap;
use endpoint_picker_engine::ledger::Ledger;

use super::pick::{PickReference, Retry, filter_state_key};
use crate::abi::{BalancerHandle, Host};
use crate::pool::SharedPool;
use crate::process::clock;

/// One worker's balancer.
#[derive(Debug)]
pub(crate) struct Balancer {
    members: Arc<ArcSwap<ClusterMembers>>,
    key: String,
    /// Where the next turn over all endpoints begins.
    turn: Cell<usize>,
}

impl Balancer {
    pub(super) fn new(pool: &str, members: &Arc<ArcSwap<ClusterMembers>>) -> Self {
        Self { members: Arc::clone(members), key: filter_state_key(pool), turn: Cell::default() }
    }

    /// The host of the next attempt: the next destination of the request's pick that is still ready, and
    /// behind the list, unless a hint forbids it, any endpoint of the pick's pool that is ready and not
    /// avoided. While no such endpoint is a host, any host of the pool. A pick that may leave its pool goes
    /// to one more endpoint of it at most, and then to one of the next pool.
    pub(crate) fn choose(&self, handle: &BalancerHandle<'_>) -> Option<Host> {
        let members = self.members.load();
        let pick = handle.filter_state(&self.key).and_then(PickReference::from_bytes);
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
        let untried =
            |Retry { pools, tried }: Retry| pools.iter().find_map(|pool| members.untried(pool, turn, &tried));
        let chosen = pick.and_then(PickReference::retry).and_then(untried);
        let pool = pick.and_then(PickReference::pool);
        let (address, host) = chosen.or_else(|| members.any(pool.as_deref(), turn))?;
        if let Some(pick) = pick {
            pick.note(address);
        }
        Some(host)
    }
}

/// Pools and hosts from which balancers choose.
#[derive(Debug, Default)]
pub(super) struct ClusterMembers {
    /// The names of the cluster's list, each with its pools, the newest first.
    pools: Vec<(Arc<str>, Vec<Arc<SharedPool>>)>,
    hosts: HashMap<SocketAddr, Host>,
}

impl ClusterMembers {
    /// The pools in use, for each name of the cluster's list the newest first, and all hosts.
    pub(super) fn new(
        pools: Vec<(Arc<str>, Vec<Arc<SharedPool>>)>,
        hosts: HashMap<SocketAddr, Host>,
    ) -> Self {
        Self { pools, hosts }
    }

    /// The host at this address.
    pub(super) fn host_at(&self, address: SocketAddr) -> Option<Host> {
        self.hosts.get(&address).copied()
    }

    /// Whether a pool says that the endpoint at this address is ready.
    pub(super) fn is_ready(&self, address: SocketAddr) -> bool {
        self.pools.iter().flat_map(|(_, pools)| pools).any(|pool| {
            let view = pool.view();
            let index = view.pool().index_at(address);
            index.and_then(|index| view.readings().get(index)).is_some_and(|reading| reading.ready)
        })
    }

    /// The pools of this name; without a name the pools of the first one.
    fn of_name(&self, name: Option<&str>) -> &[Arc<SharedPool>] {
        let mut pools = self.pools.iter();
        let found = pools.find(|(other, _)| name.is_none_or(|name| **other == *name));
        found.map_or(&[], |(_, pools)| pools)
    }

    /// A host for a request without a destination, in turn: of a ready endpoint of the pool of this name,
    /// without avoided endpoints if others are left. If it has no such host, it is any host that is of no
    /// other pool.
    pub(super) fn any(&self, name: Option<&str>, turn: usize) -> Option<(SocketAddr, Host)> {
        let own = self.of_name(name);
        let ready = own.iter().find_map(|pool| {
            let (usable, ready) = ready_endpoints(pool);
            self.host_in_turn(if usable.is_empty() { &ready } else { &usable }, turn)
        });
        ready.or_else(|| {
            let is_own = |pool: &Arc<SharedPool>| own.iter().any(|own| Arc::ptr_eq(own, pool));
            let others = self.pools.iter().flat_map(|(_, pools)| pools).filter(|pool| !is_own(pool));
            let others: Vec<_> = others.map(|pool| pool.view()).collect();
            let is_of_another = |address| others.iter().any(|view| view.pool().index_at(address).is_some());
            let hosts: Vec<_> = self.hosts.iter().filter(|(address, _)| !is_of_another(**address)).collect();
            let start = turn.checked_rem(hosts.len())?;
            hosts.get(start).map(|&(&address, &host)| (address, host))
        })
    }

    /// A host of an endpoint of the pool of this name that is ready and not avoided, and that no attempt has
    /// gone to.
    pub(super) fn untried(
        &self,
        name: &str,
        turn: usize,
        tried: &[SocketAddr],
    ) -> Option<(SocketAddr, Host)> {
        self.of_name(Some(name)).iter().find_map(|pool| {
            let (mut usable, _) = ready_endpoints(pool);
            usable.retain(|address| !tried.contains(address));
            self.host_in_turn(&usable, turn)
        })
    }

    fn host_in_turn(&self, addresses: &[SocketAddr], turn: usize) -> Option<(SocketAddr, Host)> {
        let start = turn.checked_rem(addresses.len())?;
        let mut in_turn = addresses.iter().cycle().skip(start).take(addresses.len());
        // An endpoint is not a host if Envoy has refused it, or if this cluster has not followed the view
        // yet.
        in_turn.find_map(|&address| self.host_at(address).map(|host| (address, host)))
    }
}

/// The addresses of the pool's ready endpoints that are not avoided, and of all its ready endpoints.
fn ready_endpoints(pool: &SharedPool) -> (Vec<SocketAddr>, Vec<SocketAddr>) {
    let view = pool.view();
    let now = clock::now();
    let avoided: Vec<u64> = pool.read(|ledger: &Ledger| ledger.avoided_endpoints(now).collect());
    let ready = view.pool().as_slice().iter().zip(view.readings()).filter(|(_, reading)| reading.ready);
    let ready: Vec<_> = ready.map(|(endpoint, _)| endpoint).collect();
    let usable = ready.iter().filter(|endpoint| !avoided.contains(&endpoint.key()));
    (
        usable.map(|endpoint| endpoint.address()).collect(),
        ready.iter().map(|endpoint| endpoint.address()).collect(),
    )
}
