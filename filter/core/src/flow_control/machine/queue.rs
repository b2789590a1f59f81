//! Beginnings and ends of waits.

use core::time::Duration;
use std::sync::Arc;

use super::{Machine, State};
use crate::flow_control::config::FALLBACK_PRIORITY;
use crate::flow_control::outcome::Ticket;
use crate::flow_control::outcome::{Event, Outcome};
use crate::flow_control::tenants::Place;
use crate::flow_control::time::Nanos;
use crate::flow_control::waiting::{Slot, Waiting};

impl Machine {
    /// The index of a priority's band.
    pub(super) fn band(&self, priority: i32) -> Option<usize> {
        let find = |priority: i32| self.priorities.binary_search_by(|other| priority.cmp(other)).ok();
        find(priority).or_else(|| find(FALLBACK_PRIORITY))
    }

    /// The place of the figures of a tenant, of which a request arrives now.
    pub(super) fn join_tenant(&mut self, priority: i32, id: &str) -> Place {
        let band = self.band(priority).and_then(|band| self.priorities.get(band));
        self.tenants.join(band.copied().unwrap_or(FALLBACK_PRIORITY), id, self.now)
    }

    /// Puts a request into the queue, without a look at limits.
    pub(super) fn insert(&mut self, mut waiting: Waiting, id: &str) {
        let Some(band) = self.band(waiting.priority).and_then(|band| self.bands.get_mut(band)) else {
            return;
        };
        waiting.flow = band.join(id, &mut self.programs, self.now);
        let (ticket, deadline) = (waiting.ticket, waiting.deadline);
        let Some(slot) = self.waiting.push(waiting) else { return };
        if let Some(waiting) = self.waiting.get(slot) {
            band.insert(waiting, slot);
            self.tenants.begin(waiting.tenant, waiting.bytes);
            if band.flow_id(waiting.flow).is_none() && !self.programs.is_empty() {
                self.flow_ids.insert(slot, Arc::from(id));
            }
        }
        self.tickets.insert(ticket, State::Waiting(slot));
        if deadline != Nanos::MAX {
            self.deadlines.insert((deadline, slot));
        }
    }

    /// The fairness id of a waiting request, where flows or programs count.
    pub(super) fn flow_id(&self, slot: Slot) -> Option<&Arc<str>> {
        let waiting = self.waiting.get(slot)?;
        let band = self.band(waiting.priority).and_then(|band| self.bands.get(band))?;
        band.flow_id(waiting.flow).or_else(|| self.flow_ids.get(&slot))
    }

    /// Takes a request out of the queue.
    pub(super) fn remove(&mut self, slot: Slot) -> Option<Waiting> {
        let waiting = self.waiting.remove(slot)?;
        self.tickets.remove(&waiting.ticket);
        if waiting.deadline != Nanos::MAX {
            self.deadlines.remove(&(waiting.deadline, slot));
        }
        if !self.flow_ids.is_empty() {
            self.flow_ids.remove(&slot);
        }
        self.tenants.end(waiting.tenant, waiting.bytes, self.now);
        let band = self.band(waiting.priority).and_then(|band| self.bands.get_mut(band))?;
        band.remove(&waiting, slot, &self.waiting, &mut self.programs, self.now);
        Some(waiting)
    }

    /// Ends the wait of a request. Returns its ticket and how long it waited.
    pub(super) fn end(&mut self, slot: Slot, outcome: Outcome) -> Option<(Ticket, Duration)> {
        let waiting = self.remove(slot)?;
        let waited = self.now.since(waiting.enqueued);
        self.count(waiting.priority, waiting.tenant, outcome, waited);
        if outcome == Outcome::Dispatched
            && let Some(band) = self.band(waiting.priority).and_then(|band| self.bands.get_mut(band))
        {
            band.drained(waiting.enqueued, self.now);
        }
        Some((waiting.ticket, waited))
    }

    pub(super) fn reject(&mut self, ticket: Ticket, priority: i32, tenant: Place, outcome: Outcome) {
        self.tickets.insert(ticket, State::Rejected(outcome));
        self.rejected.push_back(ticket);
        self.count(priority, tenant, outcome, Duration::ZERO);
    }

    pub(super) fn next_rejected(&mut self) -> Option<Event> {
        while let Some(ticket) = self.rejected.pop_front() {
            if let Some(&State::Rejected(outcome)) = self.tickets.get(&ticket) {
                self.tickets.remove(&ticket);
                return Some(Event::Reject { ticket, outcome });
            }
        }
        None
    }

    /// Ends the wait of a request whose time is over: of the oldest, as all have one time to live, which begins again when the pool
    /// gets its first endpoint or loses its last one; or of one whose stream ends.
    pub(super) fn next_expired(&mut self) -> Option<Event> {
        let (ttl, outcome) = if self.pool.has_endpoints {
            (self.config.request_ttl, Outcome::EvictedTtl)
        } else {
            (self.config.no_endpoint_request_ttl, Outcome::EvictedNoEndpoints)
        };
        let is_over = |enqueued: Nanos| {
            let begin = enqueued.max(self.pool.since);
            ttl.is_some_and(|ttl| begin.saturating_add(ttl.into()) <= self.now)
        };
        let oldest = self.waiting.oldest().filter(|(_, waiting)| is_over(waiting.enqueued));
        let ended = || self.deadlines.first().filter(|(deadline, _)| *deadline <= self.now);
        let slot = oldest.map(|(slot, _)| slot).or_else(|| ended().map(|(_, slot)| *slot))?;
        let (ticket, waited) = self.end(slot, outcome)?;
        Some(Event::Expire { ticket, outcome, waited })
    }

    pub(super) fn count(&mut self, priority: i32, tenant: Place, outcome: Outcome, waited: Duration) {
        self.tenants.count(tenant, outcome, waited);
        if let Some(band) = self.band(priority).and_then(|band| self.bands.get_mut(band)) {
            band.count(outcome, waited);
        }
    }
}
