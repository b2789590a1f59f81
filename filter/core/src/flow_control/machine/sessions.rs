//! The sessions that wait for room in the caches.

use hashbrown::HashMap;

use super::Machine;
use crate::flow_control::outcome::Ticket;
use crate::flow_control::waiting::{Slot, Waiting};
use crate::plugin::DEFAULT_FLOW;
use crate::state::SessionDemand;

/// The room for sessions in a cache, or in the caches of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheRoom {
    /// Tokens for which there is room besides the sessions in work. Of a pool: in the cache with the most.
    pub free: u64,
    /// Tokens for which there is room without them. Of a pool: in the largest cache.
    pub whole: u64,
}

impl CacheRoom {
    /// Whether a session of this many tokens fits. One that is larger than the cache is alone there.
    pub(crate) fn fits(self, tokens: u64) -> bool {
        tokens.min(self.whole) <= self.free
    }
}

/// The sessions that wait for room in the caches.
#[derive(Debug, Default)]
pub(super) struct HeldSessions {
    /// As it was measured last; `None`: not known, and no session waits.
    room: Option<CacheRoom>,
    /// Requests that wait for room.
    held: usize,
    /// The request that gets room next. It is chosen once, so that none with a smaller demand overtakes it.
    next: Option<Slot>,
    /// Tokens of admitted sessions that do not count as in work yet, by their requests.
    admitted: HashMap<Ticket, u64>,
}

impl HeldSessions {
    pub(super) fn measured(&mut self, room: Option<CacheRoom>) {
        self.room = room;
    }

    /// Whether a request that arrives with this demand waits for room.
    pub(super) fn holds(&self, demand: SessionDemand) -> bool {
        self.room.is_some() && (self.held > 0 || !self.has_room(demand))
    }

    fn has_room(&self, demand: SessionDemand) -> bool {
        let admitted: u64 = self.admitted.values().sum();
        let left = |room: CacheRoom| CacheRoom { free: room.free.saturating_sub(admitted), ..room };
        self.room.is_none_or(|room| left(room).fits(demand.tokens.get().into()))
    }

    pub(super) fn insert(&mut self, waiting: &Waiting) {
        if waiting.is_held {
            self.held += 1;
        } else if let Some(demand) = waiting.demand() {
            self.admitted.insert(waiting.ticket, demand.tokens.get().into());
        }
    }

    pub(super) fn remove(&mut self, waiting: &Waiting, slot: Slot) {
        if waiting.is_held {
            self.held -= 1;
            self.next.take_if(|next| *next == slot);
        }
    }

    /// The session of a request is in work, or does not come.
    pub(super) fn settle(&mut self, ticket: Ticket) {
        self.admitted.remove(&ticket);
    }
}

impl Machine {
    /// Admits the held sessions for which the caches have room.
    pub(super) fn admit_sessions(&mut self) {
        while let Some(slot) = self.next_admitted() {
            self.admit(slot);
        }
    }

    fn next_admitted(&mut self) -> Option<Slot> {
        if self.sessions.held == 0 {
            return None;
        }
        if self.sessions.next.is_none() {
            let mut bands = self.bands.iter_mut();
            self.sessions.next = bands.find_map(|band| band.next_held(&self.programs, self.now));
        }
        let next = self.sessions.next?;
        let demand = self.waiting.get(next)?.demand()?;
        self.sessions.has_room(demand).then_some(next)
    }

    /// Moves a request to those that are dispatched when it is their turn.
    fn admit(&mut self, slot: Slot) {
        let id = self.flow_id(slot).cloned();
        let Some(held) = self.waiting.get(slot).cloned() else { return };
        self.sessions.remove(&held, slot);
        let Some(band) = self.band(held.priority).and_then(|band| self.bands.get_mut(band)) else { return };
        band.remove(&held, slot, &self.waiting, &mut self.programs, self.now);
        let Some(waiting) = self.waiting.get_mut(slot) else { return };
        waiting.is_held = false;
        let id = id.as_deref().unwrap_or(DEFAULT_FLOW);
        waiting.flow = band.join(waiting, id, &mut self.programs, self.now);
        band.insert(waiting, slot);
        self.sessions.insert(waiting);
    }
}
