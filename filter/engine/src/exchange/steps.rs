//! The steps of a request: decide, carry the decision out, take the answer in.

use endpoint_picker::decision::rejection::Rejection;
use endpoint_picker::decision::{Abstention, Outcome};
use endpoint_picker::flow_control::Config;

use super::answer::Served;
use super::deciding::{Decided, Decider, Peek, RenamedBody};
use super::head::{AnswerHead, CONTENT_LENGTH, RequestHead};
use super::queue_place::QueuePlace;
use super::response::Response;
use super::shadowed_request::ShadowedRequest;
use super::subset_hint;
use crate::config::{Limits, Mode, UnreadBody};
use crate::metrics::MetricSink;
use crate::proxy::error_body::error_body;
use crate::proxy::headers;
use crate::proxy::metadata::Metadata;
use crate::proxy::{Proxy, Result};
use crate::worker_pool::WorkerPool;
use crate::worker_pool::directive::{Action, Assignment, Directive, Route};
use crate::worker_pool::store::PoolStore;

/// The instruction for the proxy after each event of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Hold the request, and keep the part of its body that has arrived.
    Hold,
    /// Hold the request until it is [resumed](Exchange::resumed). What arrives of its body may slow the client down, but must not fail
    /// the request.
    Wait,
    /// Let the request go on, with all of its body that has arrived.
    Continue,
}

/// One request on its way through the filter.
///
/// The proxy calls a method for each event, in their order, and [`Self::end`] when the request is over in any way.
#[derive(Debug)]
pub struct Exchange {
    pub(super) head: RequestHead,
    pub(super) progress: Progress,
    pub(super) place: QueuePlace,
    /// The request while another picker's choice is compared.
    pub(super) shadowed: Option<ShadowedRequest>,
    pub(super) assignment: Assignment,
    pub(super) response: Response,
}

/// How far the request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// Held, or waiting in the queue. The next look at its body is when this many bytes have arrived.
    Held { until: usize },
    /// Held until the whole body has arrived, because the model is to be replaced in it.
    HeldWhole,
    /// Decided, or not the filter's to decide.
    Decided,
    /// Answered by the filter.
    Answered,
}

impl Exchange {
    /// A request whose head has not arrived yet.
    pub fn new(limits: &Limits) -> Self {
        Self {
            head: RequestHead::default(),
            progress: Progress::Held { until: limits.peek_bytes },
            place: QueuePlace::default(),
            shadowed: None,
            assignment: Assignment::default(),
            response: Response::default(),
        }
    }

    /// Whether the request waits for its body or in the queue.
    pub fn is_held(&self) -> bool {
        match self.progress {
            Progress::Held { .. } | Progress::HeldWhole => true,
            Progress::Decided | Progress::Answered => false,
        }
    }

    pub(super) fn is_answered(&self) -> bool {
        self.progress == Progress::Answered
    }

    /// Decides at once for a request without a body, or with one that the decision does not depend on.
    pub(super) fn decide_by_head<S: PoolStore, M: MetricSink>(
        &mut self,
        pool: &mut WorkerPool<S, M>,
        proxy: &mut impl Proxy,
        has_body: bool,
    ) -> Result<Flow> {
        let view = &pool.view();
        let api = self.head.find_api(&view.topology().pipeline);
        let mut decider = Decider { pool, view, proxy, head: &self.head, place: &mut self.place };
        let decided = if has_body {
            decider
                .without_reading_body(api)?
                .map_or_else(|| decider.turn_away(), |decided| Ok(Some(decided)))?
        } else {
            Some(decider.without_body()?)
        };
        decided.map_or(Ok(Flow::Hold), |decided| self.act(pool, proxy, decided))
    }

    pub(super) fn decide_by_whole_body<S: PoolStore, M: MetricSink>(
        &mut self,
        pool: &mut WorkerPool<S, M>,
        proxy: &mut impl Proxy,
    ) -> Result<Flow> {
        self.place.has_whole_body = true;
        let view = &pool.view();
        let (decided, renamed) =
            Decider { pool, view, proxy, head: &self.head, place: &mut self.place }.by_whole_body()?;
        if let Some(renamed) = renamed {
            self.rename(proxy, renamed)?;
        }
        self.act(pool, proxy, decided)
    }

    /// Decides by the part of the body that has arrived, if it has enough.
    pub(super) fn decide_by_beginning<S: PoolStore, M: MetricSink>(
        &mut self,
        pool: &mut WorkerPool<S, M>,
        proxy: &mut impl Proxy,
        size: usize,
    ) -> Result<Flow> {
        let Limits { max_held_bytes, unread_body, .. } = pool.config.limits;
        while let Progress::Held { until } = self.progress
            && until <= size
        {
            let view = &pool.view();
            let peek = Decider { pool, view, proxy, head: &self.head, place: &mut self.place }
                .by_beginning(until)?;
            match peek {
                Peek::Decided(decided) => return self.act(pool, proxy, decided),
                Peek::TooShort if until < max_held_bytes => {
                    // Each look is at twice as many bytes, so that all looks together cost no more than two at the whole.
                    self.progress = Progress::Held { until: until.saturating_mul(2).min(max_held_bytes) };
                }
                Peek::TooShort => match unread_body {
                    UnreadBody::Reject => break,
                    UnreadBody::Abstain => {
                        let subset = subset_hint::read(proxy);
                        let rng = &mut pool.draws.acting;
                        let outcome = Outcome::abstain(Abstention::BodyTooLarge, &subset, rng);
                        return self.act(pool, proxy, outcome.into());
                    }
                },
                Peek::NeedsWhole => self.progress = Progress::HeldWhole,
            }
        }
        if size < max_held_bytes {
            return Ok(Flow::Hold);
        }
        self.act(pool, proxy, Rejection::body_too_large(max_held_bytes).into())
    }

    /// Carries out a decision.
    fn act<S, M: MetricSink>(
        &mut self,
        pool: &mut WorkerPool<S, M>,
        proxy: &mut impl Proxy,
        decided: Decided,
    ) -> Result<Flow> {
        let (directive, models) = match decided {
            Decided::Made { directive, models } => (directive, models),
            Decided::Waits => return Ok(Flow::Wait),
            Decided::Refused(refusal) => return self.refuse(pool, proxy, refusal),
        };
        self.progress = Progress::Decided;
        self.show_wait();
        let Directive { action, explanation, shadow } = directive;
        if let Some(agreement) = shadow {
            pool.metrics.count_shadow(agreement);
        }
        if let Some(explanation) = explanation {
            if pool.config.explain.access_log {
                proxy.set_metadata(&Metadata::Explanation(&explanation))?;
            }
            self.explain_to_client(explanation);
        }
        match action {
            Action::Route(route) => {
                let Route { destinations, is_hint, scores, request_headers, response_headers, .. } = *route;
                self.response.headers.extend(response_headers);
                self.response.models = models;
                self.assignment = route.assignment;
                for (name, value) in request_headers {
                    proxy.set_request_header(name, &value)?;
                }
                if let Some(scores) = scores {
                    let scores: Vec<_> =
                        scores.iter().map(|(address, score)| (address.as_str(), *score)).collect();
                    proxy.set_metadata(&Metadata::Scores(&scores))?;
                }
                direct(proxy, &pool.config.pool, &destinations, is_hint)?;
                pool.metrics.routed.increment();
                if route.is_stale {
                    pool.metrics.routed_stale.increment();
                }
            }
            Action::Reject(rejection) => {
                pool.metrics.count_rejected(rejection.code);
                return self.reject(proxy, &rejection);
            }
            Action::Abstain { reason, within } => {
                pool.metrics.count_abstained(reason);
                if let Some(addresses) = within {
                    let list = headers::destination_list(addresses.iter().map(ToString::to_string));
                    direct(proxy, &pool.config.pool, &list, true)?;
                }
            }
        }
        Ok(Flow::Continue)
    }

    /// Adds an explanation to the answer, if the client asked for it with the secret.
    pub(super) fn explain_to_client(&mut self, explanation: String) {
        if self.head.explains_to_client {
            self.response.headers.push((headers::EXPLANATION.to_owned(), explanation));
        }
    }

    /// Replaces the body. A body with a length gets the new one; a chunked body has none.
    fn rename(&mut self, proxy: &mut impl Proxy, renamed: RenamedBody) -> Result<()> {
        let RenamedBody { body, restore } = renamed;
        proxy.replace_request_body(&body)?;
        if self.head.has(CONTENT_LENGTH) {
            proxy.set_request_header(CONTENT_LENGTH, &body.len().to_string())?;
        }
        self.response.restore = restore;
        Ok(())
    }

    pub(super) fn begin_answer<S: PoolStore, M: MetricSink>(
        &mut self,
        pool: &mut WorkerPool<S, M>,
        proxy: &mut impl Proxy,
        has_body: bool,
    ) -> Result<()> {
        let head = AnswerHead::take(proxy, pool.config.mode)?;
        if self.is_held() && head.status == 413 {
            return self.explain_overflow(pool, proxy, has_body);
        }
        if self.assignment.destinations.is_empty() {
            return Ok(());
        }
        let view = pool.view();
        let served = Served::read(proxy, &view, head.status)?;
        let is_elsewhere =
            pool.config.mode == Mode::Pick && self.assignment.is_served_elsewhere(view.pool(), proxy, served);
        if is_elsewhere {
            pool.metrics.served_elsewhere.increment();
        }
        self.assignment.begin_answer(&mut pool.store, proxy, served, is_elsewhere)?;
        let pipeline = &view.topology().pipeline;
        if pool.config.mode == Mode::Pick
            && pipeline.marks_responses()
            && let Some(endpoint) = served.by.and_then(|address| view.endpoint_at(address))
        {
            self.response.headers.extend(pipeline.response_headers(endpoint));
        }
        if served.by.is_some() && !served.is_failure {
            self.response.awaited_since = Some(self.assignment.at);
            self.response.served_by = served.endpoint;
        }
        self.response.counts_service = pipeline.flow_control().is_some_and(Config::counts_service);
        self.response.begin(proxy, &head, has_body)
    }

    /// Answers the request with an error.
    pub(super) fn reject(&mut self, proxy: &mut impl Proxy, rejection: &Rejection) -> Result<Flow> {
        self.progress = Progress::Answered;
        let mut headers = vec![("content-type", "application/json")];
        if let Some(reason) = rejection.reason {
            headers.push((headers::DROPPED_REASON, reason.as_str()));
        }
        headers.extend(self.response.headers.iter().map(|(name, value)| (name.as_str(), value.as_str())));
        proxy.send_response(rejection.code.status(), &headers, &error_body(rejection))?;
        Ok(Flow::Hold)
    }

    /// After a refused call, the pool's failure mode decides.
    pub(super) fn settle<S: PoolStore, M: MetricSink>(
        &mut self,
        pool: &mut WorkerPool<S, M>,
        proxy: &mut impl Proxy,
        result: Result<Flow>,
    ) -> Flow {
        result.unwrap_or_else(|error| {
            log::error!("{error}; the failure mode decides: {:?}", pool.failure_mode());
            self.act_by_failure_mode(pool, proxy)
        })
    }

    /// Carries out what the pool's failure mode decides, as without a snapshot.
    pub(super) fn act_by_failure_mode<S: PoolStore, M: MetricSink>(
        &mut self,
        pool: &mut WorkerPool<S, M>,
        proxy: &mut impl Proxy,
    ) -> Flow {
        let subset = subset_hint::read(proxy);
        let outcome = pool.failure_mode().without_snapshot(&subset, &mut pool.draws.acting);
        self.act(pool, proxy, outcome.into()).unwrap_or(Flow::Continue)
    }
}

/// Sends a request to these destinations, and with `is_hint` to no other. Marks it, so that no picker behind this one picks again.
fn direct(proxy: &mut impl Proxy, pool: &str, destinations: &str, is_hint: bool) -> Result<()> {
    proxy.set_request_header(headers::DESTINATION, destinations)?;
    proxy.set_metadata(&Metadata::Destination(destinations))?;
    if is_hint {
        proxy.set_metadata(&Metadata::NoFallback)?;
    }
    // An operator may not have allowed this call yet. Without it, only a second picker is not recognized.
    let _ = proxy.mark_picked(pool);
    Ok(())
}
