//! The waiting requests of all bands.

use core::num::NonZeroU32;

use slab::Slab;

use super::nanos::Nanos;
use super::outcome::Ticket;
use super::status::TenantSlot;
use crate::plugin::Arrival;
use crate::state::SessionDemand;

/// The place of a waiting request, counted from 1. Four bytes, because each request is in several indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Slot(NonZeroU32);

impl Slot {
    pub(super) const FIRST: Self = Self(NonZeroU32::MIN);

    fn new(key: usize) -> Option<Self> {
        u32::try_from(key.checked_add(1)?).ok().and_then(NonZeroU32::new).map(Self)
    }

    fn key(self) -> usize {
        self.0.get() as usize - 1
    }
}

/// A waiting request.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) ticket: Ticket,
    /// Its number in the order of arrival.
    pub(super) sequence: u64,
    pub(super) bytes: u64,
    pub(super) enqueued: Nanos,
    pub(super) received: Nanos,
    /// The client's aim for the time to the first token; `MAX`: none.
    pub(super) ttft_slo: Nanos,
    /// When its stream ends; `MAX`: unknown.
    pub(super) deadline: Nanos,
    pub(super) priority: i32,
    /// The number of its flow in the band.
    pub(super) flow: u32,
    pub(super) tenant: TenantSlot,
    /// The [demand](Self::demand) of its session, in parts that need no padding.
    session_tokens: Option<NonZeroU32>,
    is_known_session: bool,
    /// Whether it waits until its session has room in the caches.
    pub(super) is_held: bool,
}

impl Waiting {
    /// A request that is in no flow yet.
    pub(super) fn new(
        ticket: Ticket,
        sequence: u64,
        arrival: &Arrival<'_>,
        tenant: TenantSlot,
        now: Nanos,
    ) -> Self {
        Self {
            ticket,
            sequence,
            bytes: arrival.bytes,
            enqueued: now,
            received: arrival.received.into(),
            ttft_slo: arrival.ttft_slo.map_or(Nanos::MAX, Nanos::from),
            deadline: arrival.deadline.map_or(Nanos::MAX, Nanos::from),
            priority: arrival.priority,
            flow: 0,
            tenant,
            session_tokens: arrival.demand.map(|demand| demand.tokens),
            is_known_session: arrival.demand.is_some_and(|demand| demand.is_known),
            is_held: false,
        }
    }

    /// The request as it arrived.
    pub(super) fn arrival<'a>(&self, fairness_id: &'a str) -> Arrival<'a> {
        Arrival {
            fairness_id,
            priority: self.priority,
            bytes: self.bytes,
            received: self.received.get(),
            ttft_slo: (self.ttft_slo != Nanos::MAX).then(|| self.ttft_slo.get()),
            deadline: (self.deadline != Nanos::MAX).then(|| self.deadline.get()),
            demand: self.demand(),
        }
    }

    /// Tokens that its session brings into the caches; `None`: none that count.
    pub(super) fn demand(&self) -> Option<SessionDemand> {
        let is_known = self.is_known_session;
        self.session_tokens.map(|tokens| SessionDemand { tokens, is_known })
    }
}

/// All waiting requests, in the order of arrival.
#[derive(Debug, Default)]
pub(super) struct WaitingList {
    slots: Slab<Linked>,
    oldest: Option<Slot>,
    newest: Option<Slot>,
    bytes: u64,
}

#[derive(Debug)]
struct Linked {
    waiting: Waiting,
    older: Option<Slot>,
    newer: Option<Slot>,
}

impl WaitingList {
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The lengths of all bodies.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Whether all numbers of requests are in use.
    pub(super) fn is_full(&self) -> bool {
        Slot::new(self.slots.vacant_key()).is_none()
    }

    /// Appends a request; `None` when the list is [full](Self::is_full).
    pub(super) fn push(&mut self, waiting: Waiting) -> Option<Slot> {
        let slot = Slot::new(self.slots.vacant_key())?;
        self.bytes = self.bytes.saturating_add(waiting.bytes);
        self.slots.insert(Linked { waiting, older: self.newest, newer: None });
        match self.newest.replace(slot).and_then(|older| self.slots.get_mut(older.key())) {
            Some(older) => older.newer = Some(slot),
            None => self.oldest = Some(slot),
        }
        Some(slot)
    }

    pub(super) fn remove(&mut self, slot: Slot) -> Option<Waiting> {
        let Linked { waiting, older, newer } = self.slots.try_remove(slot.key())?;
        self.bytes = self.bytes.saturating_sub(waiting.bytes);
        match older.and_then(|older| self.slots.get_mut(older.key())) {
            Some(linked) => linked.newer = newer,
            None => self.oldest = newer,
        }
        match newer.and_then(|newer| self.slots.get_mut(newer.key())) {
            Some(linked) => linked.older = older,
            None => self.newest = older,
        }
        Some(waiting)
    }

    pub(super) fn get(&self, slot: Slot) -> Option<&Waiting> {
        self.slots.get(slot.key()).map(|linked| &linked.waiting)
    }

    pub(super) fn get_mut(&mut self, slot: Slot) -> Option<&mut Waiting> {
        self.slots.get_mut(slot.key()).map(|linked| &mut linked.waiting)
    }

    /// The request that has waited longest.
    pub(super) fn oldest(&self) -> Option<(Slot, &Waiting)> {
        let slot = self.oldest?;
        Some((slot, self.get(slot)?))
    }
}
