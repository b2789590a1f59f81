//! Eviction: the requests in flight, and how many of them make room for waiting requests of a higher
//! priority.

use core::cmp::Reverse;
use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;

use hashbrown::HashMap;

use crate::flow_control::Eviction;
use crate::flow_control::nanos::Nanos;
use crate::flow_control::outcome::Ticket;

/// Requests in flight, and those among them that may be evicted.
#[derive(Debug, Default)]
pub(in crate::flow_control) struct InFlight {
    by_ticket: HashMap<Ticket, Running>,
    /// Sheddable requests: the lowest priority first, and of one priority the newest.
    victims: BTreeSet<(i32, Reverse<u64>, Ticket)>,
    evicted: usize,
    /// Requests so far.
    sequence: u64,
}

/// A request in flight.
#[derive(Clone, Debug)]
pub(in crate::flow_control) struct Running {
    priority: i32,
    sequence: u64,
    is_evicted: bool,
    /// Its fairness id, where a policy counts what programs are served.
    pub(in crate::flow_control) program: Option<Arc<str>>,
}

impl InFlight {
    pub(in crate::flow_control) fn begin(
        &mut self,
        ticket: Ticket,
        priority: i32,
        program: Option<Arc<str>>,
    ) {
        self.sequence += 1;
        let sequence = self.sequence;
        self.by_ticket.insert(ticket, Running { priority, sequence, is_evicted: false, program });
        if priority < 0 {
            self.victims.insert((priority, Reverse(sequence), ticket));
        }
    }

    pub(in crate::flow_control) fn end(&mut self, ticket: Ticket) -> Option<Running> {
        let running = self.by_ticket.remove(&ticket)?;
        self.victims.remove(&(running.priority, Reverse(running.sequence), ticket));
        self.evicted -= usize::from(running.is_evicted);
        Some(running)
    }

    /// The programs of the requests.
    pub(in crate::flow_control) fn programs(&self) -> impl Iterator<Item = &Arc<str>> {
        self.by_ticket.values().filter_map(|running| running.program.as_ref())
    }

    pub(in crate::flow_control) fn contains(&self, ticket: Ticket) -> bool {
        self.by_ticket.contains_key(&ticket)
    }

    /// Requests in flight without evicted ones that have not ended yet.
    pub(in crate::flow_control) fn len(&self) -> usize {
        self.by_ticket.len() - self.evicted
    }

    /// Requests that may be evicted.
    pub(in crate::flow_control) fn evictable(&self) -> usize {
        self.victims.len()
    }

    /// The priority of the request that would be evicted first.
    pub(in crate::flow_control) fn victim_priority(&self) -> Option<i32> {
        self.victims.first().map(|(priority, ..)| *priority)
    }

    /// Marks the next victim, if its priority is below `bound`.
    pub(in crate::flow_control) fn evict(&mut self, bound: i32) -> Option<Ticket> {
        self.victims.first().filter(|(priority, ..)| *priority < bound)?;
        let (_, _, ticket) = self.victims.pop_first()?;
        self.by_ticket.get_mut(&ticket)?.is_evicted = true;
        self.evicted += 1;
        Some(ticket)
    }
}

/// Maximum number of requests that a decision evicts: it estimates a victim's load by the mean load of a
/// request, which may be too low.
const MAX_AT_ONCE: usize = 2;

/// The time after which an evicted request counts as ended, so that a stream that hangs does not stop
/// evictions.
const CONFIRMATION_TIMEOUT: Duration = Duration::from_secs(10);

/// Evictions whose effect the saturation does not show yet. While there are any, no other request is evicted.
#[derive(Debug, Default)]
pub(in crate::flow_control) struct Reclamation {
    grace: Nanos,
    /// Evicted requests that have not ended, at most [`MAX_AT_ONCE`].
    outstanding: Vec<(Ticket, Credit, Nanos)>,
    /// Load that ended requests have freed, and the time up to which the saturation may not show it.
    cooling: Vec<(Credit, Nanos)>,
}

/// A share of the saturation.
#[derive(Clone, Copy, Debug)]
struct Credit(f64);

impl Reclamation {
    /// Adopts a configuration.
    pub(in crate::flow_control) fn adopt(&mut self, eviction: Eviction) {
        self.grace = eviction.grace.into();
    }

    /// Whether a decision may be made: the saturation shows the effect of all earlier ones.
    pub(in crate::flow_control) fn is_open(&mut self, now: Nanos) -> bool {
        let timeout = Nanos::from(CONFIRMATION_TIMEOUT);
        let is_overdue = |(_, _, issued): &(Ticket, Credit, Nanos)| issued.saturating_add(timeout) <= now;
        while let Some(at) = self.outstanding.iter().position(is_overdue) {
            let (_, credit, _) = self.outstanding.swap_remove(at);
            self.cool(credit, now);
        }
        self.cooling.retain(|(_, until)| now < *until);
        self.outstanding.is_empty() && self.cooling.is_empty()
    }

    /// How many requests to evict, so that the saturation falls below the ceiling of a band that is blocked.
    pub(in crate::flow_control) fn size(
        &self,
        saturation: f64,
        ceiling: f64,
        in_flight: usize,
        evictable: usize,
    ) -> usize {
        let Some(Credit(credit)) = Self::credit(saturation, in_flight) else { return 0 };
        let outstanding = self.outstanding.iter().map(|(_, credit, _)| credit);
        let pending: f64 =
            outstanding.chain(self.cooling.iter().map(|(credit, _)| credit)).map(|it| it.0).sum();
        let target = saturation - ceiling - pending;
        if target < 0.0 || (target == 0.0 && pending > 0.0) {
            return 0;
        }
        let max = MAX_AT_ONCE.min(evictable);
        // A band is blocked at its ceiling too, where the deficit is 0: then one has to go.
        (1..max).find(|&requests| requests as f64 * credit >= target).unwrap_or(max)
    }

    /// A request was evicted.
    pub(in crate::flow_control) fn issue(
        &mut self,
        ticket: Ticket,
        saturation: f64,
        in_flight: usize,
        now: Nanos,
    ) {
        if let Some(credit) = Self::credit(saturation, in_flight) {
            self.outstanding.push((ticket, credit, now));
        }
    }

    /// A request has ended; no effect unless it was evicted.
    pub(in crate::flow_control) fn confirm(&mut self, ticket: Ticket, now: Nanos) {
        if let Some(at) = self.outstanding.iter().position(|(evicted, ..)| *evicted == ticket) {
            let (_, credit, _) = self.outstanding.swap_remove(at);
            self.cool(credit, now);
        }
    }

    fn cool(&mut self, credit: Credit, now: Nanos) {
        self.cooling.push((credit, now.saturating_add(self.grace)));
    }

    /// The mean share of a request in flight.
    fn credit(saturation: f64, in_flight: usize) -> Option<Credit> {
        let credit = saturation / in_flight as f64;
        (credit > 0.0 && credit.is_finite()).then_some(Credit(credit))
    }
}
