//! One event of a request, and the decision by the part of the request that has arrived.

use std::sync::Arc;

use endpoint_picker::decision::Abstention;
use endpoint_picker::grpc::PREFIX;
use endpoint_picker::request::body::{Api, ReadBody};

use super::decider::Decider;
use super::peek::Peek;
use super::{Exchange, Flow, Progress};
use crate::config::{Limits, UnreadBody};
use crate::metrics::MetricSink;
use crate::pool_view::PoolView;
use crate::proxy::{Proxy, Result};
use crate::worker_pool::WorkerPool;
use crate::worker_pool::store::PoolStore;

/// One event of a request, with everything that it reads and changes.
pub(super) struct Turn<'a, S, M: MetricSink, P> {
    pub(super) exchange: &'a mut Exchange,
    pub(super) pool: &'a mut WorkerPool<S, M>,
    pub(super) proxy: &'a mut P,
}

impl<S: PoolStore, M: MetricSink, P: Proxy> Turn<'_, S, M, P> {
    pub(super) fn decider<'a>(&'a mut self, view: &'a Arc<PoolView>) -> Decider<'a, S, M, P> {
        let Exchange { head, place, other, fallback, failed, .. } = &mut *self.exchange;
        Decider {
            pool: self.pool,
            view,
            proxy: self.proxy,
            head,
            place,
            other: other.as_deref(),
            fallback: fallback.as_ref(),
            failed,
        }
    }

    /// Decides at once for a request without a body, or with one that the decision does not depend on.
    pub(super) fn decide_by_head(&mut self, has_body: bool) -> Result<Flow> {
        let view = &self.pool.view();
        if let Some(rejection) = view.policy().refused() {
            return self.act(rejection.into());
        }
        // Found again after a wait in the queue: the rules may have changed with a newer snapshot.
        let api = self.exchange.head.find_api(&view.topology().pipeline, has_body);
        let head = &self.exchange.head;
        if head.api.reads_first_message() {
            self.exchange.progress = Progress::Reading { until: PREFIX };
        } else if head.api == Api::ModelOnly && !view.body_options(head.headers()).is_declared_json() {
            // The first byte shows whether there is a model to wait for.
            self.exchange.progress = Progress::Reading { until: 1 };
        }
        let mut decider = self.decider(view);
        let decided = if has_body {
            decider
                .without_reading_body(api)?
                .map_or_else(|| decider.turn_away(), |decided| Ok(Some(decided)))?
        } else {
            Some(decider.without_body()?)
        };
        decided.map_or(Ok(Flow::Hold), |decided| self.act(decided))
    }

    /// Decides from the start, with the part of the body that has arrived: `size` bytes, or
    /// `read_body`.
    pub(super) fn decide_again(&mut self, size: usize, read_body: Option<&ReadBody<'_>>) -> Result<Flow> {
        let flow = self.decide_by_head(self.exchange.has_body)?;
        if flow != Flow::Hold || !self.exchange.is_held() {
            Ok(flow)
        } else if self.exchange.place.has_whole_body {
            self.decide_by_whole_body(read_body)
        } else {
            self.decide_by_beginning(size, read_body)
        }
    }

    pub(super) fn decide_by_whole_body(&mut self, read_body: Option<&ReadBody<'_>>) -> Result<Flow> {
        self.exchange.place.has_whole_body = true;
        let view = &self.pool.view();
        let (decided, new) = self.decider(view).by_whole_body(read_body)?;
        if let Some(new) = new {
            self.replace_body(*new)?;
        }
        self.act(decided)
    }

    /// Decides by the part of the body that has arrived, if it has enough.
    pub(super) fn decide_by_beginning(
        &mut self,
        size: usize,
        mut read_body: Option<&ReadBody<'_>>,
    ) -> Result<Flow> {
        let Limits { max_held_bytes, unread_body, .. } = self.pool.config.limits;
        while let Progress::Reading { until } = self.exchange.progress
            && until <= size
        {
            let view = &self.pool.view();
            match self.decider(view).by_beginning(until, read_body.take())? {
                Peek::Decided(decided) => return self.act(decided),
                Peek::More(next) if until < max_held_bytes => {
                    self.exchange.progress = Progress::Reading { until: next.min(max_held_bytes) };
                }
                Peek::More(_) => match unread_body {
                    // Here the body has reached the limit, so it is rejected below.
                    UnreadBody::Reject => break,
                    UnreadBody::Abstain => {
                        let decided = self.decider(view).abstain(Abstention::BodyTooLarge);
                        return self.act(decided);
                    }
                },
                // This ends the loop: later chunks are not read before the end of the body.
                Peek::NeedsWhole => self.exchange.progress = Progress::NeedsWhole,
            }
        }
        if size < max_held_bytes {
            return Ok(Flow::Hold);
        }
        self.act(self.exchange.head.too_large(max_held_bytes).into())
    }
}
