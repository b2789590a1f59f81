//! The queue in front of a pool: with flow control, a request waits in it until the pool has capacity for it.
//!
//! The rules are those of [`flow_control`](endpoint_picker::flow_control). A [`Queue`] is for all workers of
//! a proxy: a [store](crate::worker_pool::store::PoolStore) with a queue keeps it behind a lock of its own,
//! which is taken before the lock of the ledger. A request's body stays with the proxy while it waits.

mod capacity;
mod report;

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use endpoint_picker::decision::rejection::{Code, Rejection};
use endpoint_picker::fallback::Room;
use endpoint_picker::flow_control::{Event, Machine, Outcome, Ticket, Tokens};
use endpoint_picker::plugin::Arrival;
use hashbrown::{HashMap, HashSet};

use self::capacity::QueueCapacity;
use crate::ledger::Ledger;
use crate::pool_view::PoolView;
use crate::proxy::{Result, Resume};

/// The result of a request's entry into the queue.
#[derive(Debug, PartialEq, Eq)]
pub enum Entry {
    /// Flow control is off.
    Open,
    /// It is dispatched. It is in flight until it [leaves](Queue::leave).
    Admitted(Ticket),
    /// It waits until it is resumed.
    Waits(Ticket),
    /// It is rejected.
    Refused(Rejection),
}

/// The reason why a request is resumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It is dispatched.
    Admitted,
    /// It is rejected.
    Refused(Rejection),
    /// It was dispatched, and is aborted to make room for another one.
    Evicted,
}

/// The queue of one pool.
#[derive(Default)]
pub struct Queue {
    /// `None` while flow control is off.
    machine: Option<Machine>,
    /// The pool by the view that the machine follows.
    capacity: QueueCapacity,
    /// The requests that can be resumed.
    entrants: HashMap<Ticket, Entrant>,
    /// Requests that are dispatched and whose endpoint is not chosen yet, so that no load shows them.
    pending: HashSet<Ticket>,
    /// The last ticket.
    tickets: u64,
    /// Requests that were evicted in flight.
    evicted: u64,
}

impl fmt::Debug for Queue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Queue").field("waiting", &self.waiting()).finish_non_exhaustive()
    }
}

impl Queue {
    /// Follows a change of the endpoints, the readings or the policy.
    pub fn follow(&mut self, view: &Arc<PoolView>, now: Duration) {
        if self.capacity.follow(view) {
            let config = view.topology().pipeline.flow_control().cloned();
            let config = config.map(|config| config.with_priorities(view.policy().priorities()));
            match (&mut self.machine, config) {
                (Some(machine), Some(config)) => machine.configure(config, now),
                (None, Some(config)) => self.machine = Some(Machine::new(config)),
                (_, None) => self.open(),
            }
        }
    }

    /// Measures how saturated the pool is. To be called before [`Self::enter`] and [`Self::tick`].
    pub fn measure(&mut self, ledger: &Ledger, now: Duration) {
        let Some(machine) = &mut self.machine else { return };
        if let Some(saturation) = self.capacity.measure(ledger, self.pending.len() as u64, now) {
            machine.capacity(saturation.effective, self.capacity.has_endpoints(), now);
        }
        machine.caches(self.capacity.cache_room(ledger, now));
    }

    /// The pool's room for a request of this priority. To be called after [`Self::follow`].
    pub fn room(&mut self, ledger: &Ledger, priority: i32, now: Duration) -> Room {
        self.measure(ledger, now);
        if !self.capacity.has_unavoided_endpoints(ledger, now) {
            return Room::NoEndpoints;
        }
        let is_saturated = match &mut self.machine {
            Some(machine) => machine.would_wait(priority),
            None => self.capacity.measure(ledger, 0, now).is_some_and(|saturation| saturation.is_saturated()),
        };
        if is_saturated { Room::Saturated } else { Room::Free }
    }

    /// Flow control is off: all requests that wait are dispatched.
    fn open(&mut self) {
        self.machine = None;
        self.entrants
            .values_mut()
            .filter(|entrant| entrant.waits())
            .for_each(|entrant| entrant.resume(Verdict::Admitted));
    }

    /// Whether a request of this priority and length would be rejected, if it were offered now.
    pub fn refuses(&self, priority: i32, bytes: u64) -> bool {
        self.machine.as_ref().is_some_and(|machine| machine.refusal(priority, bytes).is_some())
    }

    /// The response to a request of which only the head has arrived, if it would be rejected anyway.
    pub fn turn_away(&mut self, arrival: &Arrival<'_>, now: Duration) -> Option<Rejection> {
        let machine = self.machine.as_mut()?;
        let outcome = machine.turn_away(arrival, now)?;
        rejection(machine, outcome, arrival.priority, now)
    }

    /// Offers a request. `resume` returns the function that resumes it; it is called only if the request may
    /// need it.
    pub fn enter(
        &mut self,
        arrival: &Arrival<'_>,
        now: Duration,
        resume: impl FnOnce() -> Result<Resume>,
    ) -> Result<Entry> {
        let Some(machine) = &mut self.machine else { return Ok(Entry::Open) };
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        machine.offer(ticket, arrival, now);
        let (entry, state) = match self.poll(Some((ticket, arrival.priority)), now) {
            Some(Verdict::Refused(rejection)) => return Ok(Entry::Refused(rejection)),
            Some(Verdict::Evicted) => {
                self.leave(ticket, None);
                return Ok(Entry::Refused(Rejection::evicted()));
            }
            // A dispatched request that cannot be evicted is never resumed, so the queue keeps no way to do
            // so.
            Some(Verdict::Admitted) if !self.may_evict(arrival.priority) => {
                return Ok(Entry::Admitted(ticket));
            }
            Some(Verdict::Admitted) => (Entry::Admitted(ticket), EntrantState::InFlight),
            None => (Entry::Waits(ticket), EntrantState::Waiting),
        };
        // Asked last, because most requests need no way to be resumed and it costs a call to the proxy.
        match resume() {
            Ok(resume) => {
                self.entrants.insert(ticket, Entrant::new(resume, arrival.priority, state));
                Ok(entry)
            }
            Err(error) => {
                self.leave(ticket, None);
                Err(error)
            }
        }
    }

    /// Whether requests of this priority may be aborted in flight.
    fn may_evict(&self, priority: i32) -> bool {
        priority < 0 && self.machine.as_ref().is_some_and(|machine| machine.config().eviction.is_some())
    }

    /// Dispatches a request if there is capacity, and rejects requests that have waited for too long.
    pub fn tick(&mut self, now: Duration) {
        self.poll(None, now);
    }

    /// Takes events up to the first dispatch, and resumes their requests. Only one request is dispatched,
    /// because the saturation has to be measured before the next. `own` is a ticket with its priority that
    /// cannot be resumed yet; returns its verdict.
    fn poll(&mut self, own: Option<(Ticket, i32)>, now: Duration) -> Option<Verdict> {
        let Self { machine: Some(machine), entrants, pending, evicted, .. } = self else { return None };
        let mut of_own = None;
        let mut has_dispatched = false;
        while !has_dispatched && let Some(event) = machine.poll(now) {
            let (Event::Dispatch { ticket, .. }
            | Event::Reject { ticket, .. }
            | Event::Expire { ticket, .. }
            | Event::Evict { ticket }) = event;
            let own = own.filter(|(own, _)| *own == ticket);
            let entrant = entrants.get_mut(&ticket);
            let priority =
                own.map(|(_, priority)| priority).or(entrant.as_ref().map(|entrant| entrant.priority()));
            let verdict = match event {
                Event::Dispatch { .. } => {
                    has_dispatched = true;
                    pending.insert(ticket);
                    Some(Verdict::Admitted)
                }
                Event::Reject { outcome, .. } | Event::Expire { outcome, .. } => {
                    rejection(machine, outcome, priority.unwrap_or(0), now).map(Verdict::Refused)
                }
                Event::Evict { .. } => {
                    *evicted += 1;
                    Some(Verdict::Evicted)
                }
            };
            match (own, entrant, verdict) {
                (Some(_), _, verdict) => of_own = verdict,
                (None, Some(entrant), Some(verdict)) => entrant.resume(verdict),
                // The request has left, or its outcome needs no response.
                (None, _, _) => {}
            }
        }
        of_own
    }

    /// The reason why a request was resumed; `None`: nothing has changed for it since the last call.
    pub fn take_verdict(&mut self, ticket: Ticket) -> Option<Verdict> {
        let entrant = self.entrants.get_mut(&ticket)?;
        let verdict = entrant.take_verdict()?;
        let priority = entrant.priority();
        // Only a dispatched request that may be evicted can be resumed again.
        if verdict != Verdict::Admitted || !self.may_evict(priority) {
            self.entrants.remove(&ticket);
        }
        Some(verdict)
    }

    /// The endpoint of a dispatched request is chosen, and its load counts.
    pub fn decided(&mut self, ticket: Ticket) {
        self.pending.remove(&ticket);
        if let Some(machine) = &mut self.machine {
            machine.decided(ticket);
        }
    }

    /// A request is over, however it ended, and is never resumed after this. `tokens` were served to it, as
    /// far as they are known.
    pub fn leave(&mut self, ticket: Ticket, tokens: Option<Tokens>) {
        // Envoy gives no time here. Zero is before the last call, so the machine keeps the time of that call.
        const LAST: Duration = Duration::ZERO;
        self.entrants.remove(&ticket);
        self.pending.remove(&ticket);
        if let Some(machine) = &mut self.machine {
            // The request either waits or is in flight, so one of the two calls has no effect.
            machine.cancel(ticket, LAST);
            machine.finish(ticket, tokens, LAST);
        }
    }

    /// The time at which [`Self::tick`] is due; `None`: nothing waits.
    pub fn wake_at(&self) -> Option<Duration> {
        self.machine.as_ref().and_then(Machine::wake_at)
    }

    /// The number of waiting requests.
    pub fn waiting(&self) -> u64 {
        self.machine.iter().flat_map(Machine::bands).map(|band| band.requests).sum()
    }

    /// The number of dispatched requests that have not left.
    pub fn in_flight(&self) -> usize {
        self.machine.as_ref().map_or(0, Machine::in_flight)
    }

    /// Requests that have not left and can be resumed.
    pub fn resumable(&self) -> usize {
        self.entrants.len()
    }
}

/// A request that can be resumed.
struct Entrant {
    resume: Resume,
    priority: i32,
    state: EntrantState,
}

/// The progress of a request that can be resumed.
#[derive(Debug)]
enum EntrantState {
    Waiting,
    /// It is resumed, and has not taken the verdict yet.
    Resumed(Verdict),
    /// It was dispatched, and may be evicted.
    InFlight,
}

impl Entrant {
    fn new(resume: Resume, priority: i32, state: EntrantState) -> Self {
        Self { resume, priority, state }
    }

    fn priority(&self) -> i32 {
        self.priority
    }

    fn waits(&self) -> bool {
        matches!(self.state, EntrantState::Waiting)
    }

    /// Resumes the request, which takes the verdict then.
    fn resume(&mut self, verdict: Verdict) {
        self.state = EntrantState::Resumed(verdict);
        (self.resume)();
    }

    /// The verdict, once. After it the request is in flight.
    fn take_verdict(&mut self) -> Option<Verdict> {
        match core::mem::replace(&mut self.state, EntrantState::InFlight) {
            EntrantState::Resumed(verdict) => Some(verdict),
            state @ (EntrantState::Waiting | EntrantState::InFlight) => {
                self.state = state;
                None
            }
        }
    }
}

/// The response to a request that is not dispatched. Without endpoints, the rate of dispatch so far predicts
/// nothing, so the time to retry follows from the reason.
fn rejection(machine: &mut Machine, outcome: Outcome, priority: i32, now: Duration) -> Option<Rejection> {
    let rejection = outcome.rejection()?;
    let is_known = rejection.code == Code::ResourceExhausted;
    let retry_after = is_known.then(|| machine.retry_after(priority, now)).flatten();
    Some(Rejection { retry_after: retry_after.or(rejection.retry_after), ..rejection })
}
