//! What follows from the queue for a request that waits or went on.

use core::time::Duration;

use endpoint_picker::decision::rejection::Rejection;

use super::queue_place::Step;
use super::steps::{Exchange, Flow};
use crate::metrics::MetricSink;
use crate::proxy::headers;
use crate::proxy::{Proxy, Result};
use crate::queue::{Refusal, Verdict};
use crate::worker_pool::WorkerPool;
use crate::worker_pool::store::PoolStore;

impl Exchange {
    /// The queue has resumed the request. `size` are the bytes of its body that have arrived. `None`: there is nothing to do.
    pub fn resumed<S: PoolStore, M: MetricSink>(
        &mut self,
        pool: &mut WorkerPool<S, M>,
        proxy: &mut impl Proxy,
        size: usize,
    ) -> Option<Flow> {
        let ticket = self.place.ticket?;
        let verdict = pool.store.with_queue(|queue| queue.take_verdict(ticket)).flatten()?;
        // After a failure, the failure mode has decided for a request that waited.
        if self.is_answered() || (verdict != Verdict::Evicted && !self.place.waits()) {
            return None;
        }
        let result = self.follow(verdict, pool, proxy, size);
        Some(self.settle(pool, proxy, result))
    }

    fn follow<S: PoolStore, M: MetricSink>(
        &mut self,
        verdict: Verdict,
        pool: &mut WorkerPool<S, M>,
        proxy: &mut impl Proxy,
        size: usize,
    ) -> Result<Flow> {
        // Without a clock the wait counts as none.
        self.place.end_wait(proxy.now().unwrap_or_default());
        match verdict {
            Verdict::Refused(refusal) => self.refuse(pool, proxy, refusal),
            Verdict::Evicted => {
                let rejection = Rejection::evicted();
                pool.metrics.count_rejected(rejection.code);
                self.reject(proxy, &rejection)
            }
            Verdict::Admitted => {
                let flow = self.decide_by_head(pool, proxy, true)?;
                if !self.is_held() {
                    Ok(flow)
                } else if self.place.has_whole_body {
                    self.decide_by_whole_body(pool, proxy)
                } else {
                    self.decide_by_beginning(pool, proxy, size)
                }
            }
        }
    }

    /// Answers a request that the queue turns away.
    pub(super) fn refuse<S, M: MetricSink>(
        &mut self,
        pool: &mut WorkerPool<S, M>,
        proxy: &mut impl Proxy,
        refusal: Refusal,
    ) -> Result<Flow> {
        let Refusal { rejection, retry_after } = refusal;
        if let Some(after) = retry_after {
            // Whole seconds, rounded up: a client that comes too early is turned away again.
            let seconds = after.as_nanos().div_ceil(1_000_000_000).max(1);
            self.response.headers.push((headers::RETRY_AFTER.to_owned(), seconds.to_string()));
        }
        self.show_wait();
        pool.metrics.count_rejected(rejection.code);
        self.reject(proxy, &rejection)
    }

    /// Adds the length of the wait to the answer, if the client asked for explanations with the secret.
    pub(super) fn show_wait(&mut self) {
        if let Some(waited) = self.place.waited().filter(|_| self.head.explains_to_client) {
            self.response.headers.push((headers::QUEUE_WAIT.to_owned(), waited.as_millis().to_string()));
        }
    }

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
