//! The request's entry into the queue.

use core::time::Duration;

use endpoint_picker::plugin::Arrival;
use endpoint_picker::request::ModelResolution;

use super::deciding::{Decided, Decider};
use super::queue_place::Step;
use crate::metrics::MetricSink;
use crate::proxy::{Proxy, Result};
use crate::queue::Entry;
use crate::worker_pool::store::PoolStore;

impl<S: PoolStore, M: MetricSink, P: Proxy> Decider<'_, S, M, P> {
    /// Answers a request of which only the head has arrived, if the queue would turn it away anyway.
    pub(super) fn turn_away(&mut self) -> Result<Option<Decided>> {
        let view = self.view;
        if !self.place.is_before() || view.topology().pipeline.flow_control().is_none() {
            return Ok(None);
        }
        let now = self.proxy.now()?;
        self.place.received = Some(now);
        let Some(priority) = view.policy().early_priority(self.head.headers()) else { return Ok(None) };
        let bytes = self.head.content_length().unwrap_or(0);
        let headers = self.head.headers();
        let refusal = self.pool.store.with_queue(|queue| {
            // Its other headers are read only if the queue would refuse it.
            let is_refused = queue.refuses(priority, bytes);
            is_refused.then(|| queue.turn_away(&Arrival::new(headers, priority, bytes, now), now)).flatten()
        });
        Ok(refusal.flatten().map(Decided::Refused))
    }

    /// Has the request wait for its turn. `bytes` are those of its body that have arrived. `None`: it goes on now.
    pub(super) fn enter_queue(
        &mut self,
        resolution: ModelResolution<'_>,
        bytes: usize,
    ) -> Result<Option<Decided>> {
        let is_on = self.view.topology().pipeline.flow_control().is_some();
        if !self.place.is_before() || !is_on {
            return Ok(None);
        }
        let now = self.proxy.now()?;
        let bytes = self.head.content_length().unwrap_or(bytes as u64);
        let received = self.place.received.unwrap_or(now);
        let arrival = Arrival::new(self.head.headers(), resolution.priority, bytes, received);
        let (store, proxy) = (&self.pool.store, self.proxy);
        let entry = store.with_current_queue(now, |queue| queue.enter(&arrival, now, || proxy.resume()));
        let (ticket, step, decided) = match entry.transpose()? {
            None | Some(Entry::Open) => return Ok(None),
            Some(Entry::Admitted(ticket)) => (Some(ticket), Step::Over(Duration::ZERO), None),
            Some(Entry::Waits(ticket)) => (Some(ticket), Step::Waits { since: now }, Some(Decided::Waits)),
            Some(Entry::Refused(refusal)) => {
                (None, Step::Over(Duration::ZERO), Some(Decided::Refused(refusal)))
            }
        };
        (self.place.ticket, self.place.step) = (ticket, step);
        Ok(decided)
    }
}
