//! Chooses the host of every attempt, on one worker.

use core::cell::Cell;
use std::sync::Arc;

use arc_swap::ArcSwap;

use super::members::Members;
use super::pick::{Reference, filter_state_key};
use crate::abi::{BalancerHandle, Host};

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
                // The first one has just been decided.
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
