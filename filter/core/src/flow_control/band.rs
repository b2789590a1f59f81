//! One band: the waiting requests of one priority.

use core::time::Duration;
use std::collections::BTreeSet;
use std::sync::Arc;

use super::BandConfig;
use super::drain::Drain;
use super::flows::{Flows, Programs};
use super::outcome::Outcome;
use super::status::{BandStatus, Waits};
use super::waiting::{Nanos, Slot, Waiting, WaitingList};
use crate::plugin::DEFAULT_FLOW;

/// The waiting requests of one priority.
#[derive(Debug)]
pub(super) struct Band {
    pub(super) priority: i32,
    pub(super) config: BandConfig,
    /// Flow by flow, and each in the order of its policy.
    queue: BTreeSet<(QueuePosition, Slot)>,
    flows: Flows,
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

/// A request's position in its band.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct QueuePosition {
    flow: u32,
    rank: (Nanos, Nanos),
    sequence: u64,
}

impl Band {
    /// `has_own_end`: other bands have another time to live. `programs` is the index of the fairness policy's
    /// state, if it has one.
    pub(super) fn new(priority: i32, config: BandConfig, has_own_end: bool, programs: Option<usize>) -> Self {
        let (queue, flows) = (BTreeSet::new(), Flows::new(&config.fairness, programs));
        let (drain, ends) = (Drain::default(), [Waits::default(); Outcome::ALL.len()]);
        let (ttl, arrivals) =
            (config.request_ttl.map_or(Nanos::MAX, Nanos::from), has_own_end.then(BTreeSet::new));
        Self { priority, config, queue, flows, bytes: 0, ttl, arrivals, drain, ends }
    }

    /// Continues the counts of the band that it replaces.
    pub(super) fn continue_from(&mut self, older: &Self) {
        (self.drain, self.ends) = (older.drain, older.ends);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// Whether one more request with a body of this length may wait.
    pub(super) fn has_room(&self, bytes: u64) -> bool {
        self.bytes.saturating_add(bytes) <= self.config.max_bytes
            && (self.queue.len() as u64) < self.config.max_requests
    }

    /// The number of a flow, for a request that is [inserted](Self::insert) next.
    pub(super) fn join(&mut self, id: &str, programs: &mut [Programs], now: Nanos) -> u32 {
        self.flows.join(id, programs, now)
    }

    /// The id of a flow; `None` where all count as one.
    pub(super) fn flow_id(&self, flow: u32) -> Option<&Arc<str>> {
        self.flows.id(flow)
    }

    pub(super) fn insert(&mut self, waiting: &Waiting, slot: Slot) {
        self.queue.insert((self.position(waiting), slot));
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.insert((waiting.sequence, slot));
        }
        self.bytes = self.bytes.saturating_add(waiting.bytes);
        if self.head(waiting.flow) == Some(slot) {
            self.flows.set_head(waiting.flow, waiting.enqueued);
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
        self.queue.remove(&(self.position(waiting), slot));
        if let Some(arrivals) = &mut self.arrivals {
            arrivals.remove(&(waiting.sequence, slot));
        }
        self.bytes = self.bytes.saturating_sub(waiting.bytes);
        match self.head(waiting.flow).and_then(|head| list.get(head)) {
            Some(head) => self.flows.set_head(waiting.flow, head.enqueued),
            None => self.flows.leave(waiting.flow, programs, now),
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
        let flow = self.flows.pick(programs, now)?;
        self.head(flow)
    }

    /// A program has attained more service.
    pub(super) fn serve(&mut self, programs: usize, id: &str, service: f64) {
        self.flows.serve(programs, id, service);
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
        self.drain.retry_after(self.queue.len() as u64, now)
    }

    pub(super) fn status(&self) -> BandStatus {
        BandStatus {
            priority: self.priority,
            requests: self.queue.len() as u64,
            bytes: self.bytes,
            max_requests: self.config.max_requests,
            max_bytes: self.config.max_bytes,
            ends: self.ends,
        }
    }

    fn position(&self, waiting: &Waiting) -> QueuePosition {
        let end = waiting.enqueued.saturating_add(self.ttl).min(waiting.deadline);
        let expires = (end != Nanos::MAX).then(|| end.get());
        let rank = self
            .config
            .ordering
            .rank(&waiting.arrival(self.flow_id(waiting.flow).map_or(DEFAULT_FLOW, |id| id)), expires);
        QueuePosition {
            flow: waiting.flow,
            rank: (rank.time.into(), rank.tie.into()),
            sequence: waiting.sequence,
        }
    }

    fn head(&self, flow: u32) -> Option<Slot> {
        let before = QueuePosition { flow, rank: (Nanos(0), Nanos(0)), sequence: 0 };
        let (place, slot) = self.queue.range((before, Slot::FIRST)..).next()?;
        (place.flow == flow).then_some(*slot)
    }
}
