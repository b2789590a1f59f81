//! Decides for a request by its headers, its body or the beginning of its body.

use std::sync::Arc;

use endpoint_picker::decision::Outcome;
use endpoint_picker::decision::rejection::Rejection;
use endpoint_picker::policy::{name_model, name_model_in_form};
use endpoint_picker::request::ModelResolution;
use endpoint_picker::request::Request;
use endpoint_picker::request::body::{Api, Body, BodyError, complete};
use endpoint_picker::response::restore::Restore;

use super::head::RequestHead;
use super::queue_place::QueuePlace;
use super::subset_hint;
use crate::metrics::{Labels, MetricSink, RequestModels};
use crate::pool_view::PoolView;
use crate::proxy::{Proxy, Result};
use crate::queue::Refusal;
use crate::worker_pool::WorkerPool;
use crate::worker_pool::directive::{Action, DecisionKind, Directive};
use crate::worker_pool::store::PoolStore;

/// What is decided for one request.
pub(super) enum Decided {
    /// It is decided.
    Made {
        directive: Directive,
        /// The labels of the answer's tokens, if those are counted.
        models: Option<Labels>,
    },
    /// It waits in the queue.
    Waits,
    /// The queue turns it away.
    Refused(Refusal),
}

impl From<Directive> for Decided {
    fn from(directive: Directive) -> Self {
        Self::Made { directive, models: None }
    }
}

impl From<Outcome> for Decided {
    fn from(outcome: Outcome) -> Self {
        Directive::from(outcome).into()
    }
}

impl From<Rejection> for Decided {
    fn from(rejection: Rejection) -> Self {
        Outcome::Reject(rejection).into()
    }
}

impl From<BodyError> for Decided {
    fn from(error: BodyError) -> Self {
        Rejection::from(error).into()
    }
}

/// The outcome of reading the beginning of a body.
pub(super) enum Peek {
    Decided(Decided),
    /// The beginning does not have enough.
    TooShort,
    /// The model has to be replaced in the body.
    NeedsWhole,
}

/// A body with another model.
pub(super) struct RenamedBody {
    pub(super) body: Vec<u8>,
    pub(super) restore: Option<Restore>,
}

/// Decides for one request.
pub(super) struct Decider<'a, S, M: MetricSink, P> {
    pub(super) pool: &'a mut WorkerPool<S, M>,
    /// The pool's view when the event came.
    pub(super) view: &'a Arc<PoolView>,
    pub(super) proxy: &'a P,
    pub(super) head: &'a RequestHead,
    pub(super) place: &'a mut QueuePlace,
}

impl<S: PoolStore, M: MetricSink, P: Proxy> Decider<'_, S, M, P> {
    /// Decides for a request without a body.
    pub(super) fn without_body(&mut self) -> Result<Decided> {
        let subset = subset_hint::read(self.proxy);
        let request = Request { headers: self.head.headers(), subset, ..Request::default() };
        self.decide(&request, false).map(Decided::from)
    }

    /// Decides for a request to this API with a body that need not be read. `None`: it has to be read.
    pub(super) fn without_reading_body(
        &mut self,
        api: core::result::Result<Api, BodyError>,
    ) -> Result<Option<Decided>> {
        let view = self.view;
        if view.versions().is_none() {
            // Before the first snapshot no body changes the outcome.
            return self.without_body().map(Some);
        }
        let headers = self.head.headers();
        let api = match api {
            Ok(api) if view.policy().needs_body(api, headers) => return Ok(None),
            Ok(api) => api,
            Err(error) => return Ok(Some(error.into())),
        };
        match view.policy().resolve_at(api, headers, None, &mut self.pool.draws.acting) {
            Ok(resolution) => self.decide_resolved(&Body::default(), resolution, 0).map(Some),
            Err(rejection) => Ok(Some(rejection.into())),
        }
    }

    /// Decides for a request whose body has arrived completely.
    pub(super) fn by_whole_body(&mut self) -> Result<(Decided, Option<RenamedBody>)> {
        let view = self.view;
        let bytes = self.proxy.request_body(usize::MAX)?;
        let headers = self.head.headers();
        let options = view.body_options(headers);
        let api = self.head.api;
        let body = match Body::read_bytes(&bytes, api, &options) {
            Ok(body) => body,
            Err(error) if view.policy().passes_unread(api, &error) => Body::default(),
            Err(error) => return Ok((error.into(), None)),
        };
        let asked = body.model.as_deref();
        let resolution = match view.policy().resolve_at(api, headers, asked, &mut self.pool.draws.acting) {
            Ok(resolution) => resolution,
            Err(rejection) => return Ok((rejection.into(), None)),
        };
        let decided = self.decide_resolved(&body, resolution, bytes.len())?;
        let is_renamed = api.names_model()
            && asked.unwrap_or_default() != resolution.model
            && matches!(decided, Decided::Made { directive: Directive { action: Action::Route(_), .. }, .. });
        let name = if body.is_form { name_model_in_form } else { name_model };
        let renamed = is_renamed.then(|| RenamedBody {
            restore: Restore::new(resolution.model, asked.unwrap_or_default()),
            body: name(&bytes, body.model_span.clone(), resolution.model),
        });
        Ok((decided, renamed))
    }

    /// Decides by the first `length` bytes of the body, if they have enough. A malformed body is refused when it has arrived
    /// completely, if it is held that long.
    pub(super) fn by_beginning(&mut self, length: usize) -> Result<Peek> {
        let view = self.view;
        let headers = self.head.headers();
        let api = self.head.api;
        let needs_model = view.policy().needs_model(api, headers);
        let options = view.body_options(headers);
        let completed = complete(self.proxy.request_body(length)?.into_owned(), api, &options);
        let read = |bytes| Body::read_bytes(bytes, api, &options).ok();
        let body = match completed.as_deref().and_then(read) {
            Some(body) => body,
            None if api.may_lack_model() && !needs_model => Body::default(),
            None => return Ok(Peek::TooShort),
        };
        let asked = body.model.as_deref();
        match asked.filter(|_| api.names_model()) {
            None if needs_model => return Ok(Peek::TooShort),
            Some(asked) if view.policy().may_rename(headers, asked) => return Ok(Peek::NeedsWhole),
            Some(_) | None => {}
        }
        Ok(Peek::Decided(match view.policy().resolve_at(api, headers, asked, &mut self.pool.draws.acting) {
            Ok(resolution) => self.decide_resolved(&body, resolution, length)?,
            Err(rejection) => rejection.into(),
        }))
    }

    /// `arrived` are the bytes of the body that have.
    fn decide_resolved(
        &mut self,
        body: &Body<'_>,
        resolution: ModelResolution<'_>,
        arrived: usize,
    ) -> Result<Decided> {
        if let Some(decided) = self.enter_queue(resolution, arrived)? {
            return Ok(decided);
        }
        let subset = subset_hint::read(self.proxy);
        let request = Request::new(body, resolution, self.head.headers(), subset);
        let directive = self.decide(&request, true)?;
        if let Some(ticket) = self.place.ticket {
            self.pool.store.with_queue(|queue| queue.decided(ticket));
        }
        let mut models = None;
        if let Action::Route(route) = &directive.action {
            let ModelResolution { model, rewrite, .. } = resolution;
            self.pool.metrics.count_prompt(route.prompt);
            let request = RequestModels { asked: body.model.as_deref(), model, rewrite };
            models = self.pool.metrics.count_models(&request);
        }
        Ok(Decided::Made { directive, models })
    }

    /// Decides, and measures the time that it takes.
    fn decide(&mut self, request: &Request<'_>, has_body: bool) -> Result<Directive> {
        let now = self.proxy.now()?;
        let kind = DecisionKind { has_body, explain: self.head.explains };
        let directive = self.pool.route(self.view, request, kind, now);
        let metrics = &mut self.pool.metrics;
        metrics.decision.record(self.proxy.now()?.saturating_sub(now).as_micros());
        if let Action::Route(route) = &directive.action {
            metrics.count_pick(route.address());
        }
        Ok(directive)
    }
}
