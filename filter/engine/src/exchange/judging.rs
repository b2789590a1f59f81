//! The proof that a response gives about its server, while it passes.

use core::time::Duration;

use endpoint_picker::request::stored::StoredId;
use endpoint_picker::response::outcome::ServerOutcome;
use endpoint_picker::response::reader::ResponseError;
use smallvec::smallvec;

use super::Exchange;
use super::response::Judged;
use super::served::{judge, outcome_of_trailers};
use crate::ledger::Change;
use crate::metrics::MetricSink;
use crate::proxy::{Proxy, Result};
use crate::worker_pool::WorkerPool;
use crate::worker_pool::directive::FirstToken;
use crate::worker_pool::store::PoolStore;

impl Exchange {
    /// The first output of the response has come.
    pub(super) fn begin_output(
        &mut self,
        pool: &mut WorkerPool<impl PoolStore, impl MetricSink>,
        proxy: &impl Proxy,
        first: Option<FirstToken>,
    ) {
        if let Some(first) = first {
            if let Some(limits) = &self.assignment.limits {
                pool.metrics.count_first_chunk(limits, first.at.saturating_sub(self.assignment.at));
            }
            if let (Some(took), Some(expected)) = (first.took, self.assignment.expectations.first()) {
                pool.metrics.record_share_of_expected(took, expected);
            }
            if let Some(record) = &mut self.record {
                record.has_output(first.took);
            }
        }
        self.assignment.begin_output(pool.store_of(self.assignment.handed_over), first);
        if let Some(Judged { endpoint, .. }) = self.response.judged {
            pool.kept_connections.served(endpoint, self.assignment.at);
            self.judge(pool, || proxy.now(), endpoint, ServerOutcome::Served);
        }
    }

    /// An error has come in the body of a response with status 2xx: in place of output, or after it.
    pub(super) fn take_error(
        &mut self,
        pool: &mut WorkerPool<impl PoolStore, impl MetricSink>,
        now: impl Fn() -> Result<Duration>,
        error: ResponseError,
    ) {
        pool.metrics.response_errors.increment(error);
        if let Some(Judged { endpoint, .. }) = self.response.judged.take() {
            self.judge(pool, now, endpoint, ServerOutcome::of_error(error, self.head.kind));
        }
        self.assignment.fail_output(pool.store_of(self.assignment.handed_over));
    }

    /// The id of a response, or of a conversation, that its server may store has come.
    #[cold]
    #[inline(never)]
    pub(super) fn remember(&self, pool: &mut WorkerPool<impl PoolStore, impl MetricSink>, stored: StoredId) {
        if let Some(endpoint) = self.response.served_by {
            let change = Change::State(stored.stored_at(endpoint, self.assignment.at));
            pool.store_of(self.assignment.handed_over).apply(smallvec![change]);
        }
    }

    /// The trailers of a gRPC response have arrived, and show whether it is served.
    pub(super) fn judge_by_trailers(
        &mut self,
        pool: &mut WorkerPool<impl PoolStore, impl MetricSink>,
        proxy: &impl Proxy,
    ) {
        let judged = self.response.judged.take().filter(|judged| judged.is_by_trailers);
        let Some(Judged { endpoint, .. }) = judged else { return };
        match outcome_of_trailers(proxy, self.head.kind) {
            Ok(Some(outcome)) => {
                self.judge(pool, || proxy.now(), endpoint, outcome);
                if outcome != ServerOutcome::Served {
                    self.assignment.fail_output(pool.store_of(self.assignment.handed_over));
                }
            }
            Ok(None) => {}
            Err(error) => log::error!("{error}; whether the endpoint failed is not known"),
        }
    }

    /// The server of the response has cut it, and is avoided.
    pub(super) fn avoid_server(
        &mut self,
        pool: &mut WorkerPool<impl PoolStore, impl MetricSink>,
        proxy: &impl Proxy,
    ) {
        if let Some(endpoint) = self.response.served_by {
            self.judge(pool, || proxy.now(), endpoint, ServerOutcome::CUT);
            self.assignment.fail_output(pool.store_of(self.assignment.handed_over));
        }
    }

    /// The response of this endpoint has proved this.
    fn judge(
        &mut self,
        pool: &mut WorkerPool<impl PoolStore, impl MetricSink>,
        now: impl Fn() -> Result<Duration>,
        endpoint: u64,
        outcome: ServerOutcome,
    ) {
        if let Some(record) = &mut self.record {
            record.proves(outcome);
        }
        if outcome == ServerOutcome::Failed {
            pool.kept_connections.failed(endpoint);
        }
        if let Err(error) = judge(pool.store_of(self.assignment.handed_over), now, endpoint, outcome) {
            log::error!("{error}; a response counts neither for its endpoint nor against it");
        }
    }
}
