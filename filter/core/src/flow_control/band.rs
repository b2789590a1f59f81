//! One band: the waiting requests of one priority.

use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::BandConfig;
use super::drain::Drain;
use super::flows::{Flows, Programs};
use super::nanos::Nanos;
use super::outcome::Outcome;
use super::status::{BandStatus, Waits};
use super::waiting::{Slot, Waiting, WaitingList};
use crate::plugin::DEFAULT_FLOW;

/// The waiting requests of one priority.
#[derive(Debug)]
pub(super) struct Band {
    pub(super) priority: i32,
    pub(super) config: BandConfig,
    /// Requests that are dispatched when it is their turn.
    ready: Line,
    /// Requests whose sessions wait for room in the caches.
    held: Line,
    bytes: u64,
    /// Maximum wait while the pool has endpoints; `MAX`: unlimited.
    ttl: Nanos,
    /// The requests in the order of arrival, where bands have different times to live; `None`: the order of
    /// all bands is enough.
    arrivals: Option<BTreeSet<(u64, Slot)>>,
    drain: Drain,
    /// Waits that have ended, in the order of [`Outcome::ALL`].
    ends: [Waits; Outcome::ALL.len()],
}

/// Waiting requests, flow by flow, and each in the order of its policy.
#[derive(Debug)]
struct Line {
    queue: BTreeSet<(QueuePosition, Slot)>,
    flows: Flows,
}

/// A request's position in its line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct QueuePosition {
    flow: u32,
    /// Held sessions with earlier turns are dispatched before new ones.
    is_new_session: bool,
    rank: (Nanos, Nanos),
    sequence: u64,
}

impl Line {
    fn new(config: &BandConfig, programs: Option<usize>) -> Self {
        Self { queue: BTreeSet::new(), flows: Flows::new(&config.fairness, programs) }
    }

    /// The request that goes next.
    fn next(&mut self, programs: &[Programs], now: Nanos) -> Option<Slot> {
        let flow = self.flows.pick(programs, now)?;
        self.head(flow)
    }

    fn head(&self, flow: u32) -> Option<Slot> {
        let rank = (Nanos(0), Nanos(0));
        let before = QueuePosition { flow, is_new_session: false, rank, sequence: 0 };
        let (place, slot) = self.queue.range((before, Slot::FIRST)..).next()?;
        (place.flow == flow).then_some(*slot)
    }
}

impl Band {
    /// `has_own_end`: other bands have another time to live. `programs` is the index of the fairness policy's
    /// state, if it has one.
    pub(super) fn new(priority: i32, config: BandConfig, has_own_end: bool, programs: Option<usize>) -> Self {
        let (ready, held) = (Line::new(&config, programs), Line::new(&config, programs));
        let (drain, ends) = (Drain::default(), [Waits::default(); Outcome::ALL.len()]);
        let (ttl, arrivals) =
            (config.request_ttl.map_or(Nanos::MAX, Nanos::from), has_own_end.then(BTreeSet::new));
        Self { priority, config, ready, held, bytes: 0, ttl, arrivals, drain, ends }
    }

    /// Continues the counts of the band that it replaces.
    pub(super) fn continue_from(&mut self, older: &Self) {
        (self.drain, self.ends) = (older.drain, older.ends);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a request waits for its turn only.
    pub(super) fn is_ready(&self) -> bool {
        !self.ready.queue.is_empty()
    }

    fn len(&self) -> usize {
        self.ready.queue.len() + self.held.queue.len()
    }

    /// Whether one more request with a body of this length may wait.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        self.bytes.saturating_add(bytes) <= self.config.max_bytes
            && (self.len() as u64) < self.config.max_requests
    }

    fn line(&self, waiting: &Waiting) -> &Line {
        if waiting.is_held { &self.held } else { &self.ready }
    }

    fn line_mut(&mut self, waiting: &Waiting) -> &mut Line {
        if waiting.is_held { &mut self.held } else { &mut self.ready }
    }

    /// The number of the flow of a request that is [inserted](Self::insert) next.
    pub(super) fn join(&mut self, waiting: &Waiting, id: &str, programs: &mut [Programs], now: Nanos) -> u32 {
        self.line_mut(waiting).flows.join(id, programs, now)
    }

    /// The id of a request's flow; `None` where all count as one.
    pub(super) fn flow_id(&self, waiting: &Waiting) -> Option<&Arc<str>> {
        self.line(waiting).flows.id(waiting.flow)
    }

    pub(super) fn insert(&mut self, waiting: &Waiting, slot: Slot) {
        let position = self.position(waiting);
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.insert((waiting.sequence, slot));
        }
        self.bytes = self.bytes.saturating_add(waiting.bytes);
        let line = self.line_mut(waiting);
        line.queue.insert((position, slot));
        if line.head(waiting.flow) == Some(slot) {
            line.flows.set_head(waiting.flow, waiting.enqueued);
        }
    }

    /// Removes a request that is not in `list` any more.
    pub(super) fn remove(
        &mut self,
        waiting: &Waiting,
        slot: Slot,
        list: &WaitingList,
        programs: &mut [Programs],
        now: Nanos,
    ) {
        let position = self.position(waiting);
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.remove(&(waiting.sequence, slot));
        }
        self.bytes = self.bytes.saturating_sub(waiting.bytes);
        let line = self.line_mut(waiting);
        line.queue.remove(&(position, slot));
        match line.head(waiting.flow).and_then(|head| list.get(head)) {
            Some(head) => line.flows.set_head(waiting.flow, head.enqueued),
            None => line.flows.leave(waiting.flow, programs, now),
        }
    }

    /// The request that has waited longest, if the band has a time to live of its own.
    pub(super) fn oldest(&self) -> Option<Slot> {
        self.arrivals.as_ref()?.first().map(|(_, slot)| *slot)
    }

    /// Maximum wait while the pool has endpoints; `MAX`: unlimited.
    pub(super) fn ttl(&self) -> Nanos {
        self.ttl
    }

    /// The request that goes next.
    pub(super) fn next(&mut self, programs: &[Programs], now: Nanos) -> Option<Slot> {
        self.ready.next(programs, now)
    }

    /// The request whose session comes into the caches next.
    pub(super) fn next_held(&mut self, programs: &[Programs], now: Nanos) -> Option<Slot> {
        self.held.next(programs, now)
    }

    /// A program has attained more service.
    pub(super) fn serve(&mut self, programs: usize, id: &str, service: f64) {
        self.ready.flows.serve(programs, id, service);
        self.held.flows.serve(programs, id, service);
    }

    pub(super) fn count(&mut self, outcome: Outcome, waited: Duration) {
        Waits::count(&mut self.ends, outcome, waited);
    }

    /// A request that had waited since `enqueued` is dispatched.
    pub(super) fn count_dispatch(&mut self, enqueued: Nanos, now: Nanos) {
        self.drain.dispatch(enqueued, now);
    }

    /// `Retry-After` for a client that is rejected now; `None`: not known yet.
    pub(super) fn retry_after(&mut self, now: Nanos) -> Option<Duration> {
        self.drain.retry_after(self.len() as u64, now)
    }

    pub(super) fn status(&self) -> BandStatus {
        BandStatus {
            priority: self.priority,
            requests: self.len() as u64,
            bytes: self.bytes,
            max_requests: self.config.max_requests,
            max_bytes: self.config.max_bytes,
            ends: self.ends,
        }
    }

    fn position(&self, waiting: &Waiting) -> QueuePosition {
        let end = waiting.enqueued.saturating_add(self.ttl).min(waiting.deadline);
        let expires = (end != Nanos::MAX).then(|| end.get());
        let id = self.flow_id(waiting).map_or(DEFAULT_FLOW, |id| id);
        let rank = self.config.ordering.rank(&waiting.arrival(id), expires);
        QueuePosition {
            flow: waiting.flow,
            is_new_session: waiting.is_held && waiting.demand().is_some_and(|demand| !demand.is_known),
            rank: (rank.time.into(), rank.tie.into()),
            sequence: waiting.sequence,
        }
    }
}
