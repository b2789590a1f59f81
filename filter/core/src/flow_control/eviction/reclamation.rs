//! When and how many requests in flight are evicted.

use core::time::Duration;

use crate::flow_control::config::Eviction;
use crate::flow_control::outcome::Ticket;
use crate::flow_control::time::Nanos;

/// Most requests that one decision evicts: the mean load of a request is only an estimate of the victim's.
const MOST_AT_ONCE: usize = 2;

/// After this time an evicted request counts as ended, so that one stream that hangs does not stop evictions.
const CONFIRMATION_TIMEOUT: Duration = Duration::from_secs(10);

/// Evictions whose effect the saturation does not show yet. While there are any, no other is decided.
#[derive(Debug, Default)]
pub(in crate::flow_control) struct Reclamation {
    grace: Nanos,
    /// Evicted requests that have not ended, at most [`MOST_AT_ONCE`].
    outstanding: Vec<(Ticket, Credit, Nanos)>,
    /// What ended requests have freed, and until when that may not show.
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
        let most = MOST_AT_ONCE.min(evictable);
        // A band is blocked at its ceiling too, where the deficit is 0: then one has to go.
        (1..most).find(|&requests| requests as f64 * credit >= target).unwrap_or(most)
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
