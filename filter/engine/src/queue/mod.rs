//! The queue in front of a pool: with flow control, a request waits in it until the pool has capacity for it.
//!
//! The rules are those of [`flow_control`](endpoint_picker::flow_control). A [`Queue`] is for all workers of a proxy: a
//! [store](crate::pool_store::PoolStore) that has one keeps it behind a lock of its own, which is taken before that of the ledger.
//! A request's body stays with the proxy while it waits.

mod entrant;
mod report;

use core::fmt;
use core::time::Duration;
use std::borrow::Cow;
use std::sync::Arc;

use endpoint_picker::flow_control::{
    Arrival, Event, Machine, Outcome, StageSaturation, Stages, Ticket, Tokens,
};
use endpoint_picker::load::Load;
use endpoint_picker::rejection::{Code, Rejection};
use endpoint_picker::view::View;
use hashbrown::{HashMap, HashSet};

use self::entrant::{Entrant, State};
use crate::ledger::Ledger;
use crate::pool_view::PoolView;
use crate::proxy::{Result, Resume};

/// The queue of one pool.
#[derive(Default)]
pub struct Queue {
    /// `None` while flow control is off.
    machine: Option<Machine>,
    /// The view that the machine follows.
    view: Option<Arc<PoolView>>,
    /// The endpoints of that view.
    stages: Stages,
    /// As it was measured last.
    saturation: Option<StageSaturation>,
    /// The requests that can be resumed.
    entrants: HashMap<Ticket, Entrant>,
    /// Requests that go on and whose endpoint is not chosen yet, so that no load shows them.
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

/// What becomes of a request that asks to go on.
#[derive(Debug, PartialEq, Eq)]
pub enum Entry {
    /// Flow control is off.
    Open,
    /// It goes on. It is in flight until it [leaves](Queue::leave).
    Admitted(Ticket),
    /// It waits until it is resumed.
    Waits(Ticket),
    /// It is answered.
    Refused(Refusal),
}

/// Why a request is resumed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on.
    Admitted,
    /// It is answered.
    Refused(Refusal),
    /// It went on, and is aborted to make room for another one.
    Evicted,
}

/// The answer to a request that does not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Status, reason and message.
    pub rejection: Rejection,
    /// When the client may come again; `None`: not known.
    pub retry_after: Option<Duration>,
}

impl Queue {
    /// Follows a change of the endpoints, the readings or the policy.
    pub fn follow(&mut self, view: &Arc<PoolView>, now: Duration) {
        if self.view.as_ref().is_some_and(|older| Arc::ptr_eq(older, view)) {
            return;
        }
        let older = self.view.replace(Arc::clone(view));
        let topology = view.topology();
        if older.is_none_or(|older| !Arc::ptr_eq(older.topology(), topology)) {
            let config = topology.pipeline.flow_control().cloned();
            let config = config.map(|config| config.with_priorities(view.policy().priorities()));
            match (&mut self.machine, config) {
                (Some(machine), Some(config)) => machine.configure(config, now),
                (None, Some(config)) => self.machine = Some(Machine::new(config)),
                (_, None) => self.open(),
            }
        }
        self.stages = topology.pipeline.endpoints_by_stage(&view.without_ledger(&[]));
    }

    /// Measures how saturated the pool is. To be called before [`Self::enter`] and [`Self::tick`].
    pub fn measure(&mut self, ledger: &Ledger, now: Duration) {
        let (Some(machine), Some(view)) = (&mut self.machine, &self.view) else { return };
        // The ledger may have the endpoints of a newer snapshot already.
        if Arc::ptr_eq(ledger.pool(), view.pool()) {
            let pool = ledger.view(view.readings(), view.arrived());
            let loads = with_pending(ledger.loads(), self.pending.len() as u64);
            let pool = View { in_flight: &loads, ..pool };
            let saturation = view.topology().pipeline.saturation(&self.stages, &pool, now);
            machine.capacity(saturation.effective, !self.stages.is_empty(), now);
            self.saturation = Some(saturation);
        }
    }

    /// Flow control is off: all that wait go on.
    fn open(&mut self) {
        self.machine = None;
        self.entrants
            .values_mut()
            .filter(|entrant| entrant.waits())
            .for_each(|entrant| entrant.resume(Verdict::Admitted));
    }

    /// The answer to a request of this priority and length of which only the head has arrived, if it would be rejected anyway.
    pub fn turn_away(&mut self, priority: i32, bytes: u64, now: Duration) -> Option<Refusal> {
        let machine = self.machine.as_mut()?;
        let outcome = machine.turn_away(priority, bytes, now)?;
        refusal(machine, outcome, priority, now)
    }

    /// A request asks to go on. `resume` makes the way to resume it, if it needs one; the error is that one's.
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
            Some(Verdict::Refused(refusal)) => return Ok(Entry::Refused(refusal)),
            Some(Verdict::Evicted) => {
                self.leave(ticket, None);
                return Ok(Entry::Refused(Refusal { rejection: Rejection::evicted(), retry_after: None }));
            }
            Some(Verdict::Admitted) if !self.may_evict(arrival.priority) => {
                return Ok(Entry::Admitted(ticket));
            }
            Some(Verdict::Admitted) => (Entry::Admitted(ticket), State::InFlight),
            None => (Entry::Waits(ticket), State::Waiting),
        };
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

    /// Lets a request go on if there is capacity, and answers those that have waited for too long.
    pub fn tick(&mut self, now: Duration) {
        self.poll(None, now);
    }

    /// Takes events up to the first request that goes on, and resumes their requests: the saturation is measured again before another one
    /// does. Returns the event of `own`, a ticket and its priority, which cannot be resumed yet.
    fn poll(&mut self, own: Option<(Ticket, i32)>, now: Duration) -> Option<Verdict> {
        let Self { machine: Some(machine), entrants, pending, evicted, .. } = self else { return None };
        let mut of_own = None;
        let mut goes_on = false;
        while !goes_on && let Some(event) = machine.poll(now) {
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
                    goes_on = true;
                    pending.insert(ticket);
                    Some(Verdict::Admitted)
                }
                Event::Reject { outcome, .. } | Event::Expire { outcome, .. } => {
                    refusal(machine, outcome, priority.unwrap_or(0), now).map(Verdict::Refused)
                }
                Event::Evict { .. } => {
                    *evicted += 1;
                    Some(Verdict::Evicted)
                }
            };
            match (own, entrant, verdict) {
                (Some(_), _, verdict) => of_own = verdict,
                (None, Some(entrant), Some(verdict)) => entrant.resume(verdict),
                (None, _, _) => {}
            }
        }
        of_own
    }

    /// Why a request was resumed; `None`: nothing has changed for it since the last call.
    pub fn take_verdict(&mut self, ticket: Ticket) -> Option<Verdict> {
        let entrant = self.entrants.get_mut(&ticket)?;
        let verdict = entrant.take_verdict()?;
        let priority = entrant.priority();
        if verdict != Verdict::Admitted || !self.may_evict(priority) {
            self.entrants.remove(&ticket);
        }
        Some(verdict)
    }

    /// The endpoint of a request that goes on is chosen, and its load counts.
    pub fn decided(&mut self, ticket: Ticket) {
        self.pending.remove(&ticket);
    }

    /// A request is over, however it ended, and is never resumed after this. `tokens` are those that it was served, as far as they are known.
    pub fn leave(&mut self, ticket: Ticket, tokens: Option<Tokens>) {
        // The end of a stream has no time of its own: it counts as that of the last call, which is the newest that the machine has.
        const LAST: Duration = Duration::ZERO;
        self.entrants.remove(&ticket);
        self.pending.remove(&ticket);
        if let Some(machine) = &mut self.machine {
            machine.cancel(ticket, LAST);
            machine.finish(ticket, tokens, LAST);
        }
    }

    /// When [`Self::tick`] is due; `None`: nothing waits.
    pub fn wake_at(&self) -> Option<Duration> {
        self.machine.as_ref().and_then(Machine::wake_at)
    }

    /// The number of waiting requests.
    pub fn waiting(&self) -> u64 {
        self.machine.iter().flat_map(Machine::bands).map(|band| band.requests).sum()
    }

    /// The number of requests that went on and have not left.
    pub fn in_flight(&self) -> usize {
        self.machine.as_ref().map_or(0, Machine::in_flight)
    }

    /// Requests that have not left and can be resumed.
    pub fn resumable(&self) -> usize {
        self.entrants.len()
    }
}

/// The load in flight with requests whose endpoint is not chosen yet. A detector takes the mean over the endpoints, so it does not matter
/// where they count.
fn with_pending(loads: &[Load], pending: u64) -> Cow<'_, [Load]> {
    let mut loads = Cow::Borrowed(loads);
    if pending > 0
        && let Some(first) = loads.to_mut().first_mut()
    {
        first.requests = first.requests.saturating_add(pending);
    }
    loads
}

/// The answer to a request that does not go on. While the pool has no endpoints, the pace so far is not that of the future, and the client gets
/// no time to come again.
fn refusal(machine: &mut Machine, outcome: Outcome, priority: i32, now: Duration) -> Option<Refusal> {
    let rejection = outcome.rejection()?;
    let is_known = rejection.code == Code::ResourceExhausted;
    let retry_after = is_known.then(|| machine.retry_after(priority, now)).flatten();
    Some(Refusal { rejection, retry_after })
}
