//! Chooses the host of every attempt, on one worker.

use core::cell::{Cell, RefCell};
use std::sync::{Arc, Weak};

use endpoint_picker_engine::ledger::Ledger;

use super::pick::{Reference, filter_state_key};
use crate::abi::{BalancerHandle, Host};
use crate::attachment::pool_of_name;
use crate::clock;
use crate::shared::SharedPool;

/// One worker's balancer.
#[derive(Debug)]
pub(crate) struct Balancer {
    name: Arc<str>,
    key: String,
    pool: RefCell<Weak<SharedPool>>,
    /// Where the next turn over all endpoints begins.
    turn: Cell<usize>,
}

impl Balancer {
    pub(super) fn new(pool: &Arc<str>) -> Self {
        Self {
            name: Arc::clone(pool),
            key: filter_state_key(pool),
            pool: RefCell::default(),
            turn: Cell::default(),
        }
    }

    /// The host of the next attempt: the next destination of the request's pick that is still ready, and behind the list, unless a hint
    /// forbids it, any endpoint that is ready and not avoided.
    pub(crate) fn choose(&self, handle: &BalancerHandle<'_>) -> Option<Host> {
        let pick = handle.filter_state(&self.key).and_then(Reference::from_bytes);
        if let Some(pick) = pick {
            while let Some((address, is_first)) = pick.take() {
                // The first one has just been decided.
                if (is_first || self.is_ready(&address))
                    && let Some(host) = handle.host_at(&address)
                {
                    pick.note(&address);
                    return Some(host);
                }
            }
            if !pick.may_leave() {
                return None;
            }
        }
        let (address, host) = self.any(handle)?;
        if let Some(pick) = pick {
            pick.note(&address);
        }
        Some(host)
    }

    fn pool(&self) -> Option<Arc<SharedPool>> {
        let pool = &mut *self.pool.borrow_mut();
        pool.upgrade().or_else(|| {
            let found = pool_of_name(&self.name)?;
            *pool = Arc::downgrade(&found);
            Some(found)
        })
    }

    fn is_ready(&self, address: &str) -> bool {
        let Some(view) = self.pool().map(|pool| pool.view()) else { return true };
        let index = address.parse().ok().and_then(|address| view.pool().index_at(address));
        index.and_then(|index| view.readings().get(index)).is_some_and(|reading| reading.ready)
    }

    /// The next endpoint in turn that is ready and not avoided, or if there is none, that is ready.
    fn any(&self, handle: &BalancerHandle<'_>) -> Option<(String, Host)> {
        let pool = self.pool()?;
        let view = pool.view();
        let now = clock::now();
        let avoided: Vec<u64> = pool.read(|ledger: &Ledger| ledger.avoided_endpoints(now).collect());
        let ready = view.pool().endpoints().iter().zip(view.readings()).filter(|(_, reading)| reading.ready);
        let ready: Vec<_> = ready.map(|(endpoint, _)| endpoint).collect();
        let usable: Vec<_> =
            ready.iter().copied().filter(|endpoint| !avoided.contains(&endpoint.key())).collect();
        let candidates = if usable.is_empty() { ready } else { usable };
        let turn = self.turn.get();
        self.turn.set(turn.wrapping_add(1));
        let start = turn.checked_rem(candidates.len()).unwrap_or(0);
        let in_turn = candidates.iter().cycle().skip(start).take(candidates.len());
        in_turn
            .map(|endpoint| endpoint.printed_address())
            .find_map(|address| handle.host_at(address).map(|host| (address.to_owned(), host)))
    }
}
