//! The queue in front of a pool.

mod dispatch;
mod queue;
mod sessions;

use core::time::Duration;
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use dispatch::Pace;
use hashbrown::HashMap;
pub use sessions::CacheRoom;
use sessions::HeldSessions;

use super::Config;
use super::band::Band;
use super::eviction::{InFlight, Reclamation};
use super::flows::{Programs, Tokens};
use super::nanos::Nanos;
use super::outcome::{Event, Outcome, Ticket};
use super::status::{BandStatus, TenantStatus, Tenants};
use super::waiting::{Slot, Waiting, WaitingList};
use crate::plugin::Arrival;

/// The queue in front of a pool: requests wait in it until the pool has capacity for them.
///
/// The caller gives every event and its time, [`offer`](Self::offer)s requests, and [`poll`](Self::poll)s
/// after each call, until there are no more events, and again at [`wake_at`](Self::wake_at). A ticket ends
/// its wait once: by an event, or by [`cancel`](Self::cancel). After a dispatch it is in flight until
/// [`finish`](Self::finish). Equal calls give equal events.
///
/// A time before the time of an earlier call counts as the latter. Each call takes O(log n) for n waiting
/// requests, and O(b) for b bands; [`configure`](Self::configure) takes O(n log n).
#[derive(Debug)]
pub struct Machine {
    config: Config,
    /// The highest priority first.
    bands: Vec<Band>,
    priorities: Vec<i32>,
    /// Whether bands have different times to live.
    has_own_ends: bool,
    waiting: WaitingList,
    tickets: HashMap<Ticket, TicketState>,
    /// Tickets whose rejection has not been returned.
    rejected: VecDeque<Ticket>,
    /// Ends of streams.
    deadlines: BTreeSet<(Nanos, Slot)>,
    /// Fairness ids of requests in bands without flows, where programs are counted.
    flow_ids: HashMap<Slot, Arc<str>>,
    tenants: Tenants,
    /// State of the fairness policies that keep state.
    programs: Vec<Programs>,
    /// Sessions that wait for room in the caches.
    sessions: HeldSessions,
    in_flight: InFlight,
    reclamation: Option<Reclamation>,
    /// Tickets whose eviction has not been returned.
    evicted: VecDeque<Ticket>,
    pool: PoolState,
    pace: Pace,
    /// Ceilings of the bands, in this cycle.
    ceilings: Vec<f64>,
    /// Counter of the usage limit policy.
    counter: u64,
    /// Arrivals so far.
    sequence: u64,
    now: Nanos,
}

#[derive(Clone, Copy, Debug)]
enum TicketState {
    Waiting(Slot),
    Rejected(Outcome),
}

#[derive(Clone, Copy, Debug)]
struct PoolState {
    saturation: f64,
    has_endpoints: bool,
    /// The time since which it has endpoints, or has none.
    since: Nanos,
}

impl Machine {
    /// An empty queue, in front of a pool without endpoints.
    pub fn new(config: Config) -> Self {
        let mut machine = Self {
            config: config.clone(),
            bands: Vec::new(),
            priorities: Vec::new(),
            has_own_ends: false,
            waiting: WaitingList::default(),
            tickets: HashMap::new(),
            rejected: VecDeque::new(),
            deadlines: BTreeSet::new(),
            flow_ids: HashMap::new(),
            tenants: Tenants::default(),
            programs: Vec::new(),
            sessions: HeldSessions::default(),
            in_flight: InFlight::default(),
            reclamation: None,
            evicted: VecDeque::new(),
            // Saturated until the first call of `capacity`.
            pool: PoolState { saturation: 1.0, has_endpoints: false, since: Nanos(0) },
            pace: Pace::default(),
            ceilings: Vec::new(),
            counter: 0,
            sequence: 0,
            now: Nanos(0),
        };
        machine.apply(config);
        machine
    }

    /// Takes a request that asks to be dispatched. A ticket that is waiting already is ignored.
    pub fn offer(&mut self, ticket: Ticket, arrival: &Arrival<'_>, now: Duration) {
        self.advance(now);
        if self.tickets.contains_key(&ticket) {
            return;
        }
        self.pace.add_arrival();
        let id = arrival.bounded_id();
        let tenant = self.join_tenant(arrival.priority, id);
        if let Some(outcome) = self.refusal(arrival.priority, arrival.bytes) {
            return self.reject(ticket, arrival.priority, tenant, outcome);
        }
        self.sequence += 1;
        self.insert(Waiting::new(ticket, self.sequence, arrival, tenant, self.now), id);
    }

    /// How a request of this priority and length would be rejected, if it were offered now; `None`: it would
    /// wait.
    pub fn refusal(&self, priority: i32, bytes: u64) -> Option<Outcome> {
        let (requests, all_bytes) = (self.waiting.len() as u64, self.waiting.bytes().saturating_add(bytes));
        let has_room = self.config.max_bytes.is_none_or(|max| all_bytes <= max)
            && self.config.max_requests.is_none_or(|max| requests < max)
            && !self.waiting.is_full()
            && self
                .band(priority)
                .and_then(|band| self.bands.get(band))
                .is_some_and(|band| band.has_room(bytes));
        let outcome =
            if self.pool.has_endpoints { Outcome::RejectedCapacity } else { Outcome::RejectedNoEndpoints };
        (!has_room).then_some(outcome)
    }

    /// Whether a request of this priority would not be dispatched at once if it were offered now.
    pub fn would_wait(&mut self, priority: i32) -> bool {
        let Some(band) = self.band(priority) else { return true };
        let saturation = self.pool.saturation;
        // A copy, because the policy counts dispatch cycles.
        let mut counter = self.counter;
        let policy = &self.config.usage_limit;
        policy.ceilings(saturation, &self.priorities, &mut counter, &mut self.ceilings);
        let mut until_own = self.bands.iter().zip(&self.ceilings).take(band + 1);
        !self.pool.has_endpoints || until_own.any(|(band, &ceiling)| saturation >= ceiling || band.is_ready())
    }

    /// Rejects and counts a request before it is offered, and returns how; `None`: it would wait.
    pub fn turn_away(&mut self, arrival: &Arrival<'_>, now: Duration) -> Option<Outcome> {
        self.advance(now);
        let outcome = self.refusal(arrival.priority, arrival.bytes)?;
        let tenant = self.join_tenant(arrival.priority, arrival.bounded_id());
        self.count(arrival.priority, tenant, outcome, Duration::ZERO);
        Some(outcome)
    }

    /// The client of a request that waits has gone. Events of the request that have not been returned are
    /// dropped.
    pub fn cancel(&mut self, ticket: Ticket, now: Duration) {
        self.advance(now);
        match self.tickets.get(&ticket) {
            Some(&TicketState::Waiting(slot)) => {
                self.end(slot, Outcome::EvictedContextCancelled);
            }
            Some(TicketState::Rejected(_)) => {
                self.tickets.remove(&ticket);
            }
            None => {}
        }
    }

    /// The stream of a request in flight has ended, with these tokens, as far as they are known.
    pub fn finish(&mut self, ticket: Ticket, tokens: Option<Tokens>, now: Duration) {
        self.advance(now);
        self.sessions.settle(ticket);
        let Some(running) = self.in_flight.end(ticket) else { return };
        if let Some(reclamation) = &mut self.reclamation {
            reclamation.confirm(ticket, self.now);
        }
        let Some(id) = running.program else { return };
        for (place, programs) in self.programs.iter_mut().enumerate() {
            if let Some(tokens) = tokens {
                programs.serve(&id, tokens, self.now);
                let order = programs.order(&id);
                self.bands.iter_mut().for_each(|band| band.serve(place, &id, order));
            }
            programs.finish(&id, self.now);
        }
    }

    /// The state of the pool: how saturated it is, from 0, and whether it has endpoints.
    pub fn capacity(&mut self, saturation: f64, has_endpoints: bool, now: Duration) {
        self.advance(now);
        let is_change = has_endpoints != self.pool.has_endpoints;
        let since = if is_change { self.now } else { self.pool.since };
        // Comparisons with NaN are false, which would dispatch requests.
        let saturation = if saturation.is_nan() { f64::INFINITY } else { saturation };
        self.pool = PoolState { saturation, has_endpoints, since };
    }

    /// The room for sessions in the caches of the pool; `None`: not known, and no session waits.
    pub fn caches(&mut self, room: Option<CacheRoom>) {
        self.sessions.measured(room);
    }

    /// The endpoint of a dispatched request is chosen, and its session counts as in work.
    pub fn decided(&mut self, ticket: Ticket) {
        self.sessions.settle(ticket);
    }

    /// The next event; `None`: there are no more at this time.
    pub fn poll(&mut self, now: Duration) -> Option<Event> {
        self.advance(now);
        if let Some(event) = self.next_rejected().or_else(|| self.next_expired()) {
            return Some(event);
        }
        self.admit_sessions();
        // A cycle may dispatch nothing: it may evict instead, and other arrivals may have cycles left.
        loop {
            if let Some(ticket) = self.evicted.pop_front() {
                // It may have ended between the choice and this call.
                if self.in_flight.contains(ticket) {
                    return Some(Event::Evict { ticket });
                }
            } else if !self.pace.starts_cycle(self.now) {
                return None;
            } else if let Some(event) = self.cycle() {
                return Some(event);
            }
        }
    }

    /// When to poll again, if nothing happens before; `None`: nothing waits.
    pub fn wake_at(&self) -> Option<Duration> {
        (self.waiting.len() > 0).then(|| self.pace.next_cycle())
    }

    /// `Retry-After` for a rejected client of this priority: the estimated time until the requests ahead of
    /// it are dispatched, at the band's recent rate. Clients that are rejected together get times one after
    /// another. `None`: the rate is not known yet.
    pub fn retry_after(&mut self, priority: i32, now: Duration) -> Option<Duration> {
        self.advance(now);
        let band = self.band(priority).and_then(|band| self.bands.get_mut(band))?;
        band.retry_after(self.now)
    }

    /// The rules.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// The bands, the highest priority first.
    pub fn bands(&self) -> impl ExactSizeIterator<Item = BandStatus> {
        self.bands.iter().map(Band::status)
    }

    /// The tenants of a band, in no order: those with figures of their own, and
    /// [the others together](super::OTHER_TENANTS).
    pub fn tenants(&self, priority: i32) -> impl Iterator<Item = TenantStatus<'_>> {
        self.tenants.of_band(priority)
    }

    /// Requests in flight, without evicted ones.
    pub fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    fn advance(&mut self, now: Duration) {
        self.now = self.now.max(now.into());
    }
}
