//! The steps of a request before its decision: the move to another pool, the entry into the queue, and the
//! early rejection.

use core::time::Duration;
use std::sync::Arc;

use endpoint_picker::plugin::Arrival;
use endpoint_picker::request::body::Body;
use endpoint_picker::request::{ModelResolution, Request};
use endpoint_picker::state::SessionDemand;

use super::decider::{Decided, Decider};
use super::head::subset_hint;
use super::queueing::Step;
use crate::metrics::MetricSink;
use crate::proxy::{Proxy, Result};
use crate::queue::Entry;
use crate::worker_pool::store::PoolStore;

impl<S: PoolStore, M: MetricSink, P: Proxy> Decider<'_, S, M, P> {
    /// Has another pool of the list take a request of this priority, if this pool has no room for it. A
    /// subset hint names endpoints of this pool, so its requests stay.
    #[inline]
    pub(super) fn move_on(&mut self, priority: i32) -> Result<Option<Decided>> {
        if self.pool.fallback.is_empty() { Ok(None) } else { self.move_to_other(priority) }
    }

    #[cold]
    #[inline(never)]
    fn move_to_other(&mut self, priority: i32) -> Result<Option<Decided>> {
        if !self.place.is_before() || self.other.is_some() || self.view.policy().refusal.is_some() {
            return Ok(None);
        }
        let other = self.pool.other_pool(self.head.headers(), priority, self.proxy.now()?);
        // Last, because few requests can move, and the hint is read from the proxy's metadata.
        let other = other.filter(|_| !subset_hint(self.proxy).is_hint());
        Ok(other.map(|(to, reason)| Decided::Moves { to, reason }))
    }

    /// Whether the queue has yet to decide about the request. Requests of another picker do not wait.
    fn may_wait(&self) -> bool {
        self.place.is_before()
            && self.other.is_none()
            && self.view.topology().pipeline.flow_control().is_some()
    }

    /// The bytes for which the queue counts the request, of whose body this many have arrived: its whole
    /// length, as far as the proxy holds it. A greater length is only the client's word.
    fn held_length(&self, arrived: usize) -> u64 {
        let max = self.pool.config.limits.max_held_bytes.max(arrived) as u64;
        self.head.content_length().map_or(arrived as u64, |length| length.min(max))
    }

    /// Rejects a request of which only the head has arrived, if the queue would reject it anyway.
    #[inline]
    pub(super) fn turn_away(&mut self) -> Result<Option<Decided>> {
        if self.may_wait() { self.turn_away_if_full() } else { Ok(None) }
    }

    #[cold]
    #[inline(never)]
    fn turn_away_if_full(&mut self) -> Result<Option<Decided>> {
        let view = self.view;
        let now = self.proxy.now()?;
        self.place.received = Some(now);
        let Some(priority) = view.policy().early_priority(self.head.headers()) else { return Ok(None) };
        let bytes = self.held_length(0);
        if self.pool.store.with_queue(|queue| queue.refuses(priority, bytes)) != Some(true) {
            return Ok(None);
        }
        if let Some(moves) = self.move_on(priority)? {
            return Ok(Some(moves));
        }
        let headers = self.head.headers();
        // Its other headers are read only if the queue would refuse it.
        let arrival = view.topology().pipeline.arrival(headers, priority, bytes, now);
        let refusal = self.pool.store.with_queue(|queue| queue.turn_away(&arrival, now));
        Ok(refusal.flatten().map(Decided::Refused))
    }

    /// Has the request wait for its turn. `bytes` of its body have arrived. `None`: it is decided now.
    #[inline]
    pub(super) fn enter_queue(
        &mut self,
        body: &Body<'_>,
        resolution: ModelResolution<'_>,
        bytes: usize,
    ) -> Result<Option<Decided>> {
        if self.may_wait() { self.enter(body, resolution, bytes) } else { Ok(None) }
    }

    #[cold]
    #[inline(never)]
    fn enter(
        &mut self,
        body: &Body<'_>,
        resolution: ModelResolution<'_>,
        bytes: usize,
    ) -> Result<Option<Decided>> {
        let now = self.proxy.now()?;
        let bytes = self.held_length(bytes);
        let received = self.place.received.unwrap_or(now);
        let headers = self.head.headers();
        let pipeline = &self.view.topology().pipeline;
        let arrival = pipeline.arrival(headers, resolution.priority, bytes, received);
        let demand =
            if pipeline.limits_sessions() { self.session_demand(body, resolution, now) } else { None };
        let arrival = Arrival { demand, ..arrival };
        let (store, proxy) = (&self.pool.store, self.proxy);
        let entry = store.with_current_queue(now, |queue| queue.enter(&arrival, now, || proxy.resume()));
        let (ticket, step, decided) = match entry.transpose()? {
            None | Some(Entry::Open) => return Ok(None),
            Some(Entry::Admitted(ticket)) => (Some(ticket), Step::Over(Duration::ZERO), None),
            Some(Entry::Waits(ticket)) => (Some(ticket), Step::Waits { since: now }, Some(Decided::Waits)),
            Some(Entry::Refused(rejection)) => {
                (None, Step::Over(Duration::ZERO), Some(Decided::Refused(rejection)))
            }
        };
        (self.place.ticket, self.place.step) = (ticket, step);
        Ok(decided)
    }

    /// Tokens that the request's session brings into the caches; `None`: none that count.
    fn session_demand(
        &self,
        body: &Body<'_>,
        resolution: ModelResolution<'_>,
        now: Duration,
    ) -> Option<SessionDemand> {
        let request = Request::new(body, resolution, self.head.headers(), subset_hint(self.proxy));
        self.pool.store.read(|ledger| {
            // The ledger may have the endpoints of a newer snapshot already.
            let has_same = Arc::ptr_eq(ledger.pool(), self.view.pool());
            let input = ledger.input(self.view.readings(), self.view.arrived());
            let pipeline = &self.view.topology().pipeline;
            has_same.then(|| pipeline.session_demand(&request, &input, now)).flatten()
        })
    }
}
