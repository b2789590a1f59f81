//! The request's place in the queue in front of the pool, and the steps that follow from it.

use core::time::Duration;

use endpoint_picker::decision::rejection::Rejection;
use endpoint_picker::flow_control::Ticket;

use super::{Exchange, Flow, Turn};
use crate::metrics::MetricSink;
use crate::proxy::{Proxy, Result, headers};
use crate::queue::Verdict;
use crate::worker_pool::store::PoolStore;

/// The request's place in the queue. Nothing of its body is kept: it stays with the proxy, and is read again
/// when the request is dispatched.
#[derive(Debug, Default)]
pub(super) struct QueuePlace {
    /// The ticket, from its entry to its end.
    pub(super) ticket: Option<Ticket>,
    /// The time at which its head arrived.
    pub(super) received: Option<Duration>,
    pub(super) step: Step,
    /// The whole body has arrived, before or while it waits.
    pub(super) has_whole_body: bool,
}

/// The progress of a request in the queue.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Step {
    /// The request was not offered to the queue.
    #[default]
    Before,
    /// The request waits.
    Waits { since: Duration },
    /// Its wait is over, after this time.
    Over(Duration),
}

impl QueuePlace {
    /// Whether the request waits.
    pub(super) fn waits(&self) -> bool {
        matches!(self.step, Step::Waits { .. })
    }

    /// The length of the wait; `None`: flow control is off, or the request waits still.
    pub(super) fn waited(&self) -> Option<Duration> {
        match self.step {
            Step::Over(waited) => Some(waited),
            Step::Before | Step::Waits { .. } => None,
        }
    }

    /// Whether the request was not offered to the queue yet.
    pub(super) fn is_before(&self) -> bool {
        self.step == Step::Before
    }

    /// The wait is over, if the request waits.
    pub(super) fn end_wait(&mut self, now: Duration) {
        if let Step::Waits { since } = self.step {
            self.step = Step::Over(now.saturating_sub(since));
        }
    }
}

impl<S: PoolStore, M: MetricSink, P: Proxy> Turn<'_, S, M, P> {
    /// The queue's verdict on a request that waits or is in flight; `None`: there is nothing to do.
    pub(super) fn take_verdict(&mut self) -> Option<Verdict> {
        let ticket = self.exchange.place.ticket?;
        let verdict = self.pool.store.with_queue(|queue| queue.take_verdict(ticket)).flatten()?;
        // After a failure, the failure mode has decided on the request, and a verdict that comes later is
        // void.
        let is_over =
            self.exchange.is_rejected() || (verdict != Verdict::Evicted && !self.exchange.place.waits());
        (!is_over).then_some(verdict)
    }

    /// Follows the queue's verdict. `size` bytes of the body have arrived.
    pub(super) fn follow(&mut self, verdict: Verdict, size: usize) -> Result<Flow> {
        // If the clock cannot be read, the wait counts as zero.
        self.exchange.place.end_wait(self.proxy.now().unwrap_or_default());
        match verdict {
            Verdict::Refused(rejection) => self.refuse(&rejection),
            Verdict::Evicted => {
                let rejection = Rejection::evicted();
                self.pool.metrics.rejected.increment(rejection.code);
                self.reject(&rejection)
            }
            // The snapshot may have changed, and nothing of the body was kept.
            Verdict::Admitted => self.decide_again(size, None),
        }
    }

    /// Rejects a request that the queue refuses.
    pub(super) fn refuse(&mut self, rejection: &Rejection) -> Result<Flow> {
        self.show_wait();
        self.pool.metrics.rejected.increment(rejection.code);
        self.reject(rejection)
    }

    /// Adds the length of the wait to the response, if the client asked for explanations with the secret.
    pub(super) fn show_wait(&mut self) {
        if let Some(waited) = self.exchange.place.waited().filter(|_| self.exchange.head.explains_to_client) {
            self.exchange
                .response
                .headers
                .push((headers::QUEUE_WAIT.to_owned(), waited.as_millis().to_string()));
        }
    }
}

impl Exchange {
    /// The request is over, however it ended, or the queue decides no more about it.
    pub(super) fn leave_queue(&mut self, store: &impl PoolStore) {
        if let Some(ticket) = self.place.ticket.take() {
            let tokens = self.response.served_tokens();
            store.with_queue(|queue| queue.leave(ticket, tokens));
        }
        if self.place.waits() {
            self.place.step = Step::Over(Duration::ZERO);
        }
    }
}
