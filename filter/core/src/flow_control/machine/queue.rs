//! Beginnings and ends of waits, and adopting a configuration while requests wait.

use core::cmp::Reverse;
use core::time::Duration;
use std::sync::Arc;

use super::{Config, Machine, TicketState};
use crate::flow_control::band::Band;
use crate::flow_control::flows::Programs;
use crate::flow_control::nanos::Nanos;
use crate::flow_control::outcome::{Event, Outcome, Ticket};
use crate::flow_control::status::TenantSlot;
use crate::flow_control::waiting::{Slot, Waiting};
use crate::flow_control::{BandConfig, FALLBACK_PRIORITY};
use crate::plugin::{DEFAULT_FLOW, Fairness};

impl Machine {
    /// The index of a priority's band.
    pub(super) fn band(&self, priority: i32) -> Option<usize> {
        // The comparison is reversed, because the highest priority is first.
        let find = |priority: i32| self.priorities.binary_search_by(|other| priority.cmp(other)).ok();
        find(priority).or_else(|| find(FALLBACK_PRIORITY))
    }

    /// The place of the figures of a tenant, of which a request arrives now.
    pub(super) fn join_tenant(&mut self, priority: i32, id: &str) -> TenantSlot {
        let band = self.band(priority).and_then(|band| self.priorities.get(band));
        self.tenants.join(band.copied().unwrap_or(FALLBACK_PRIORITY), id, self.now)
    }

    /// Puts a request into the queue; limits have been checked.
    pub(super) fn insert(&mut self, mut waiting: Waiting, id: &str) {
        waiting.is_held = waiting.demand().is_some_and(|demand| self.sessions.holds(demand));
        let Some(band) = self.band(waiting.priority).and_then(|band| self.bands.get_mut(band)) else {
            return;
        };
        waiting.flow = band.join(&waiting, id, &mut self.programs, self.now);
        let (ticket, deadline) = (waiting.ticket, waiting.deadline);
        let Some(slot) = self.waiting.push(waiting) else { return };
        if let Some(waiting) = self.waiting.get(slot) {
            band.insert(waiting, slot);
            self.sessions.insert(waiting);
            self.tenants.begin(waiting.tenant, waiting.bytes);
            if band.flow_id(waiting).is_none() && !self.programs.is_empty() {
                self.flow_ids.insert(slot, Arc::from(id));
            }
        }
        self.tickets.insert(ticket, TicketState::Waiting(slot));
        if deadline != Nanos::MAX {
            self.deadlines.insert((deadline, slot));
        }
    }

    /// The fairness id of a waiting request, where flows or programs count.
    pub(super) fn flow_id(&self, slot: Slot) -> Option<&Arc<str>> {
        let waiting = self.waiting.get(slot)?;
        let band = self.band(waiting.priority).and_then(|band| self.bands.get(band))?;
        band.flow_id(waiting).or_else(|| self.flow_ids.get(&slot))
    }

    /// Takes a request out of the queue.
    pub(super) fn remove(&mut self, slot: Slot) -> Option<Waiting> {
        let waiting = self.waiting.remove(slot)?;
        self.sessions.remove(&waiting, slot);
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
        if outcome != Outcome::Dispatched {
            self.sessions.settle(waiting.ticket);
        }
        let waited = self.now.since(waiting.enqueued);
        self.count(waiting.priority, waiting.tenant, outcome, waited);
        if outcome == Outcome::Dispatched
            && let Some(band) = self.band(waiting.priority).and_then(|band| self.bands.get_mut(band))
        {
            band.count_dispatch(waiting.enqueued, self.now);
        }
        Some((waiting.ticket, waited))
    }

    pub(super) fn reject(&mut self, ticket: Ticket, priority: i32, tenant: TenantSlot, outcome: Outcome) {
        self.tickets.insert(ticket, TicketState::Rejected(outcome));
        self.rejected.push_back(ticket);
        self.count(priority, tenant, outcome, Duration::ZERO);
    }

    pub(super) fn next_rejected(&mut self) -> Option<Event> {
        while let Some(ticket) = self.rejected.pop_front() {
            // A ticket that was cancelled is only removed from the map.
            if let Some(&TicketState::Rejected(outcome)) = self.tickets.get(&ticket) {
                self.tickets.remove(&ticket);
                return Some(Event::Reject { ticket, outcome });
            }
        }
        None
    }

    /// Expires one request. Requests that share a time to live are due in the order of their arrival, so that
    /// only the oldest is looked at; the time restarts when the pool gets its first endpoint or loses its
    /// last. A request whose stream ends is due too.
    pub(super) fn next_expired(&mut self) -> Option<Event> {
        let outcome = if self.pool.has_endpoints { Outcome::EvictedTtl } else { Outcome::EvictedNoEndpoints };
        let ended = || self.deadlines.first().filter(|(deadline, _)| *deadline <= self.now);
        let slot = self.oldest_over().or_else(|| ended().map(|(_, slot)| *slot))?;
        let (ticket, waited) = self.end(slot, outcome)?;
        Some(Event::Expire { ticket, outcome, waited })
    }

    /// A request that has waited for its time to live.
    fn oldest_over(&self) -> Option<Slot> {
        let is_over = |slot: &Slot, ttl: Nanos| {
            let begin = self.waiting.get(*slot).map(|waiting| waiting.enqueued.max(self.pool.since));
            ttl != Nanos::MAX && begin.is_some_and(|begin| begin.saturating_add(ttl) <= self.now)
        };
        if self.pool.has_endpoints && self.has_own_ends {
            let mut oldest = self.bands.iter().filter_map(|band| Some((band.oldest()?, band.ttl())));
            return oldest.find(|(slot, ttl)| is_over(slot, *ttl)).map(|(slot, _)| slot);
        }
        let ttl = if self.pool.has_endpoints {
            self.bands.first().map_or(Nanos::MAX, Band::ttl)
        } else {
            self.config.no_endpoint_request_ttl.map_or(Nanos::MAX, Nanos::from)
        };
        self.waiting.oldest().map(|(slot, _)| slot).filter(|slot| is_over(slot, ttl))
    }

    pub(super) fn count(&mut self, priority: i32, tenant: TenantSlot, outcome: Outcome, waited: Duration) {
        self.tenants.count(tenant, outcome, waited);
        if let Some(band) = self.band(priority).and_then(|band| self.bands.get_mut(band)) {
            band.count(outcome, waited);
        }
    }
}

impl Machine {
    /// Adopts another configuration. Waiting requests are put into its order, and none is dropped. A band
    /// that is not configured any more remains while requests wait in it. Where flows and programs did not
    /// count until now, those of tenants without [figures of their own](Self::tenants) are of one flow.
    pub fn configure(&mut self, config: Config, now: Duration) {
        self.advance(now);
        let in_use = self.bands.iter().filter(|band| !band.is_empty()).map(|band| band.priority);
        let config = config.with_priorities(in_use.collect::<Vec<_>>());
        let mut waiting = Vec::with_capacity(self.waiting.len());
        // Taken out and put back oldest first, so that the order of arrival stays.
        while let Some((slot, _)) = self.waiting.oldest() {
            // Read before the removal, which forgets the id of an empty flow.
            let id = self.flow_id(slot).cloned();
            let Some(request) = self.remove(slot) else { continue };
            self.sessions.settle(request.ticket);
            let id = id.or_else(|| self.tenants.id(request.tenant).cloned());
            waiting.push((request, id.unwrap_or_else(|| Arc::from(DEFAULT_FLOW))));
        }
        self.apply(config);
        for (mut request, id) in waiting {
            request.tenant = self.join_tenant(request.priority, &id);
            self.insert(request, &id);
        }
    }

    /// Replaces the configuration of a queue in which nothing waits.
    pub(super) fn apply(&mut self, config: Config) {
        let mut config = config.with_priorities([]);
        config.bands.sort_by_key(|(priority, _)| Reverse(*priority));
        let ttl = |band: &(i32, BandConfig)| band.1.request_ttl;
        let has_own_ends = config.bands.iter().map(ttl).any(|own| config.bands.first().map(ttl) != Some(own));
        let mut programs = Vec::new();
        let mut bands: Vec<Band> = Vec::with_capacity(config.bands.len());
        for (priority, band) in &config.bands {
            let index = self.programs_of(band, config.service_decays_in_use, &mut programs);
            let mut new = Band::new(*priority, band.clone(), has_own_ends, index);
            if let Some(older) = self.bands.iter().find(|older| older.priority == *priority) {
                new.continue_from(older);
            }
            bands.push(new);
        }
        self.priorities = bands.iter().map(|band| band.priority).collect();
        (self.bands, self.programs, self.has_own_ends) = (bands, programs, has_own_ends);
        self.tenants.retain_bands(|priority| self.priorities.contains(&priority));
        self.reclamation = config.eviction.map(|eviction| {
            let mut reclamation = self.reclamation.take().unwrap_or_default();
            reclamation.adopt(eviction);
            reclamation
        });
        self.config = config;
    }

    /// The index in `programs` of the state of a band's policy, which is added if it is not there.
    fn programs_of(
        &mut self,
        band: &BandConfig,
        decays_in_use: bool,
        programs: &mut Vec<Programs>,
    ) -> Option<usize> {
        let Fairness::ProgramAware(policy) = &band.fairness else { return None };
        let is_same = |programs: &Programs| programs.name == band.fairness_name;
        if let Some(place) = programs.iter().position(is_same) {
            return Some(place);
        }
        let mut state = if let Some(place) = self.programs.iter().position(is_same) {
            // The old bands' indices become wrong, but `apply` drops these bands.
            self.programs.swap_remove(place)
        } else {
            let mut state = Programs::new(Arc::clone(&band.fairness_name), Arc::clone(policy));
            // A policy that is new has not seen the requests in flight, whose ends it will see.
            self.in_flight.programs().for_each(|id| state.dispatch(id, self.now));
            state
        };
        state.adopt(Arc::clone(policy), decays_in_use);
        programs.push(state);
        Some(programs.len() - 1)
    }
}
