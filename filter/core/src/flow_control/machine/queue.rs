//! Beginnings and ends of waits.

use core::time::Duration;
use std::sync::Arc;

use super::{Machine, State};
use crate::flow_control::arrival::Ticket;
use crate::flow_control::config::FALLBACK_PRIORITY;
use crate::flow_control::outcome::{Event, Outcome};
use crate::flow_control::time::Nanos;
use crate::flow_control::waiting::{Slot, Waiting};

/// Longest fairness id in bytes; longer ones are cut. Clients choose them.
const MAX_ID: usize = 256;

impl Machine {
    /// The index of a priority's band.
    pub(super) fn band(&self, priority: i32) -> Option<usize> {
        let find = |priority: i32| self.priorities.binary_search_by(|other| priority.cmp(other)).ok();
        find(priority).or_else(|| find(FALLBACK_PRIORITY))
    }

    /// Puts a request into the queue, without a look at limits.
    pub(super) fn insert(&mut self, mut waiting: Waiting, id: &str) {
        let Some(band) = self.band(waiting.priority).and_then(|band| self.bands.get_mut(band)) else {
            return;
        };
        let id = bounded(id);
        waiting.flow = band.join(id, &mut self.programs, self.now);
        let (ticket, deadline) = (waiting.ticket, waiting.deadline);
        let Some(slot) = self.waiting.push(waiting) else { return };
        if let Some(waiting) = self.waiting.get(slot) {
            band.insert(waiting, slot);
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
        self.deadlines.remove(&(waiting.deadline, slot));
        self.flow_ids.remove(&slot);
        let band = self.band(waiting.priority).and_then(|band| self.bands.get_mut(band))?;
        band.remove(&waiting, slot, &self.waiting, &mut self.programs, self.now);
        Some(waiting)
    }

    /// Ends the wait of a request. Returns its ticket and how long it waited.
    pub(super) fn end(&mut self, slot: Slot, outcome: Outcome) -> Option<(Ticket, Duration)> {
        let waiting = self.remove(slot)?;
        let waited = self.now.since(waiting.enqueued);
        self.count(waiting.priority, outcome, waited);
        if outcome == Outcome::Dispatched
            && let Some(band) = self.band(waiting.priority).and_then(|band| self.bands.get_mut(band))
        {
            band.drained(waiting.enqueued, self.now);
        }
        Some((waiting.ticket, waited))
    }

    pub(super) fn reject(&mut self, ticket: Ticket, priority: i32, outcome: Outcome) {
        self.tickets.insert(ticket, State::Rejected(outcome));
        self.rejected.push_back(ticket);
        self.count(priority, outcome, Duration::ZERO);
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

    pub(super) fn count(&mut self, priority: i32, outcome: Outcome, waited: Duration) {
        if let Some(band) = self.band(priority).and_then(|band| self.bands.get_mut(band)) {
            band.count(outcome, waited);
        }
    }
}

/// The beginning of an id that is too long.
fn bounded(id: &str) -> &str {
    let end = (0..=MAX_ID.min(id.len())).rev().find(|&end| id.is_char_boundary(end));
    id.get(..end.unwrap_or(0)).unwrap_or_default()
}
