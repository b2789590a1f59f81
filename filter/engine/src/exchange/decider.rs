//! Decides for a request by its headers or its body.

use core::net::SocketAddr;
use core::time::Duration;
use std::borrow::Cow;
use std::sync::Arc;

use endpoint_picker::cached_prefixes;
use endpoint_picker::decision::rejection::Rejection;
use endpoint_picker::decision::{Abstention, Outcome};
use endpoint_picker::fallback::{Fallback, FallbackReason};
use endpoint_picker::request::ModelResolution;
use endpoint_picker::request::Request;
use endpoint_picker::request::body::{Api, Body, BodyError, ReadBody};
use endpoint_picker::request::cached_prompt::CachedPrompt;
use endpoint_picker::request::subset::Subset;

use super::head::{RequestHead, subset_hint};
use super::new_body::NewBody;
use super::other_picker::RoutedRequest;
use super::queueing::QueuePlace;
use crate::config::UnreadBody;
use crate::metrics::{MetricSink, RequestLabels, RequestModels};
use crate::pool_view::PoolView;
use crate::proxy::{Proxy, Result};
use crate::worker_pool::WorkerPool;
use crate::worker_pool::decision::Routing;
use crate::worker_pool::directive::{Action, Directive};
use crate::worker_pool::store::PoolStore;

/// Maximum length of the text of a chat, as a multiple of the limit on held bodies.
const TEXT_FACTOR: usize = 4;

/// The decision for one request.
pub(super) enum Decided {
    /// It is decided.
    Made { directive: Directive, response: ExpectedResponse },
    /// It waits in the queue.
    Waits,
    /// The pool at this place among the other pools takes it.
    Moves { to: usize, reason: FallbackReason },
    /// The queue turns it away.
    Refused(Rejection),
}

/// A response, as far as it is known before it begins.
#[derive(Debug, Default)]
pub(super) struct ExpectedResponse {
    /// The labels of the request's models.
    pub(super) models: RequestLabels,
    /// Whether the client requests it as a stream. Of a response over HTTP, the content type shows it.
    pub(super) is_streamed: bool,
    /// Whether its id is read, because later requests may name it.
    pub(super) is_stored: bool,
}

impl From<Directive> for Decided {
    fn from(directive: Directive) -> Self {
        Self::Made { directive, response: ExpectedResponse::default() }
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

/// Decides for one request.
pub(super) struct Decider<'a, S, M: MetricSink, P> {
    pub(super) pool: &'a mut WorkerPool<S, M>,
    /// The pool's view when the event came.
    pub(super) view: &'a Arc<PoolView>,
    pub(super) proxy: &'a P,
    pub(super) head: &'a RequestHead,
    pub(super) place: &'a mut QueuePlace,
    /// The choice of another picker, and the body that has passed.
    pub(super) other: Option<&'a RoutedRequest>,
    /// The move by which the request came to this pool.
    pub(super) fallback: Option<&'a Fallback>,
    /// Servers that have failed the request before.
    pub(super) failed: &'a [SocketAddr],
}

impl<'a, S: PoolStore, M: MetricSink, P: Proxy> Decider<'a, S, M, P> {
    /// Decides for a request without a body.
    pub(super) fn without_body(&mut self) -> Result<Decided> {
        if let Some(moves) = self.move_on(0)? {
            return Ok(moves);
        }
        let subset = subset_hint(self.proxy);
        let request =
            Request { headers: self.head.headers(), subset, stored: self.head.stored, ..Request::default() };
        let now = self.proxy.now()?;
        self.route(&request, false, now).map(Decided::from)
    }

    /// Decides for a request to this API with a body that need not be read. `None`: it has to be read.
    pub(super) fn without_reading_body(
        &mut self,
        api: core::result::Result<Api, BodyError>,
    ) -> Result<Option<Decided>> {
        let view = self.view;
        if view.versions().is_none() {
            // Before the first snapshot, the failure mode decides, which reads no body.
            return self.without_body().map(Some);
        }
        let api = match api {
            Ok(api) if view.policy().needs_body(api, self.head.headers()) => {
                match self.head.encoding_error() {
                    None => return Ok(None),
                    Some(_) if self.passes_unread(api) => api,
                    Some(error) => return Ok(Some(self.refused(error))),
                }
            }
            Ok(api) => api,
            Err(error) => return Ok(Some(error.into())),
        };
        match self.resolve(api, None) {
            Ok(resolution) => self.route_or_wait(&Body::default(), None, resolution, 0).map(Some),
            Err(rejection) => Ok(Some(rejection.into())),
        }
    }

    /// Decides for a request whose body has arrived completely, by `read_body` if it serves.
    pub(super) fn by_whole_body(
        &mut self,
        read_body: Option<&ReadBody<'_>>,
    ) -> Result<(Decided, Option<Box<NewBody>>)> {
        let api = self.head.api;
        let options = self.view.body_options(self.head.headers());
        let bytes = match read_body {
            Some(read_body) => Cow::Borrowed(read_body.bytes()),
            None => self.body(usize::MAX)?,
        };
        let own;
        let read = if let Some(read) = read_body.and_then(|read_body| read_body.body(api, &options)) {
            read
        } else {
            own = Body::read_bytes(&bytes, api, &options);
            own.as_ref()
        };
        let unread = Body::default();
        let is_read = read.is_ok();
        let body = match read {
            Ok(body) => body,
            Err(_) if self.passes_unread(api) => &unread,
            Err(error) => return Ok((self.refused(error.clone()), None)),
        };
        let asked = body.model.as_deref();
        let resolution = match self.resolve(api, asked) {
            Ok(resolution) => resolution,
            Err(rejection) => return Ok((rejection.into(), None)),
        };
        let decided = self.route_or_wait(body, Some(&bytes), resolution, bytes.len())?;
        let is_renamed = api.names_model() && asked.unwrap_or_default() != resolution.model;
        let gets_priority = is_read && self.propagates_priority(api);
        let new = match &decided {
            // With another picker, requests pass unchanged.
            Decided::Made { directive: Directive { action: Action::Route(route), .. }, .. }
                if is_renamed || gets_priority =>
            {
                let first = route.assignment.destinations.first().filter(|_| gets_priority);
                let endpoint = first.and_then(|&endpoint| self.view.pool().of_key(endpoint));
                NewBody::new((body, &bytes), resolution, is_renamed, endpoint)
            }
            _ => None,
        };
        Ok((decided, new))
    }

    /// Decides by a body that is read, as far as it has arrived: `length` bytes.
    pub(super) fn by_body(&mut self, body: &Body<'_>, length: usize) -> Result<Decided> {
        match self.resolve(self.head.api, body.model.as_deref()) {
            Ok(resolution) => self.route_or_wait(body, None, resolution, length),
            Err(rejection) => Ok(rejection.into()),
        }
    }

    /// The decision for a request whose body is refused.
    #[cold]
    #[inline(never)]
    pub(super) fn refused(&mut self, error: BodyError) -> Decided {
        match self.pool.config.limits.unread_body {
            UnreadBody::Abstain if matches!(error, BodyError::Compressed | BodyError::Encoded { .. }) => {
                self.abstain(Abstention::BodyCompressed)
            }
            UnreadBody::Abstain | UnreadBody::Reject => error.into(),
        }
    }

    /// Leaves the request to the proxy.
    pub(super) fn abstain(&mut self, reason: Abstention) -> Decided {
        // Another picker has chosen among the hinted endpoints already.
        let subset = if self.other.is_none() { subset_hint(self.proxy) } else { Subset::All };
        Outcome::abstain(reason, &subset, &mut self.pool.draws.acting).into()
    }

    /// The body, or its first `max_bytes` bytes.
    pub(super) fn body(&self, max_bytes: usize) -> Result<Cow<'a, [u8]>> {
        match self.other {
            None => self.proxy.request_body(max_bytes),
            Some(RoutedRequest { body, .. }) => Ok(body.get(..max_bytes).unwrap_or(body).into()),
        }
    }

    /// Whether a body that cannot be read counts as a body without a model: a server may read bodies that the
    /// picker cannot read.
    fn passes_unread(&self, api: Api) -> bool {
        match self.other {
            None => self.view.policy().passes_unread(api, self.head.headers()),
            Some(_) => api.may_lack_model(),
        }
    }

    /// Whether the priority of a request to this API is written into its body. The body of a request of
    /// another picker stays unchanged.
    pub(super) fn propagates_priority(&self, api: Api) -> bool {
        self.other.is_none() && self.view.topology().pipeline.propagates_priority(api)
    }

    /// The model that serves, which another picker has named already, and the request's priority.
    fn resolve<'b>(
        &mut self,
        api: Api,
        asked: Option<&'b str>,
    ) -> core::result::Result<ModelResolution<'b>, Rejection>
    where
        'a: 'b,
    {
        let (policy, headers) = (self.view.policy(), self.head.headers());
        match self.other {
            None => policy.resolve_at(api, headers, asked, &mut self.pool.draws.acting),
            Some(_) if api.takes_model_from_header() => {
                policy.resolve_at(api, headers, asked, &mut self.pool.draws.acting)
            }
            Some(_)
                if asked.is_none() && api.names_model() && !api.may_lack_model() && policy.requires_model =>
            {
                Err(BodyError::NoModel.into())
            }
            Some(_) => Ok(policy.resolve_routed(headers, asked)),
        }
    }

    /// Has the request wait, or decides for it. `whole` are the bytes of its body if it was read completely;
    /// `arrived` of them have arrived.
    fn route_or_wait(
        &mut self,
        body: &Body<'_>,
        whole: Option<&[u8]>,
        resolution: ModelResolution<'_>,
        arrived: usize,
    ) -> Result<Decided> {
        if let Some(moves) = self.move_on(resolution.priority)? {
            return Ok(moves);
        }
        if let Some(decided) = self.enter_queue(body, resolution, arrived)? {
            return Ok(decided);
        }
        let subset = subset_hint(self.proxy);
        let now = self.proxy.now()?;
        let whole = whole.filter(|_| self.view.topology().reads_caches());
        let cached = whole.and_then(|bytes| self.cached(body, bytes, resolution.model, now));
        let request = Request::new(body, resolution, self.head.headers(), subset);
        let stored = request.stored.or(self.head.stored);
        let request = Request { cached: cached.as_ref(), failed: self.failed, stored, ..request };
        let mut directive = self.route(&request, true, now)?;
        if !self.pool.fallback.is_empty() {
            self.allow_retries(&mut directive, body, resolution.model);
        }
        // The ledger has the load of the request now, so the queue must not count it in addition.
        if let Some(ticket) = self.place.ticket {
            self.pool.store.with_queue(|queue| queue.decided(ticket));
        }
        let prompt = match &directive.action {
            Action::Route(route) => Some(route.prompt),
            Action::Pass(passed) => Some(passed.prompt),
            Action::Reject(_) | Action::Abstain { .. } => None,
        };
        let models = prompt.map(|prompt| {
            let ModelResolution { model, rewrite, .. } = resolution;
            self.pool.metrics.count_prompt(prompt);
            if let Some(session) = &directive.session {
                self.pool.metrics.count_session(session, prompt);
            }
            let asked = body.model.as_deref();
            self.pool.metrics.count_models(&RequestModels { asked, model, rewrite })
        });
        let is_stored = body.state.is_stored && self.view.topology().pipeline.follows_stored_responses();
        let models = models.unwrap_or_default();
        let response = ExpectedResponse { models, is_streamed: body.stream, is_stored };
        Ok(Decided::Made { directive, response })
    }

    /// Names the other pools whose endpoints may be tried for a request with this body and model. A request
    /// whose headers name endpoints of this pool for other stages stays here.
    #[cold]
    #[inline(never)]
    fn allow_retries(&self, directive: &mut Directive, body: &Body<'_>, model: &str) {
        if let Action::Route(route) = &mut directive.action
            && !route.is_hint
            && route.request_headers.is_empty()
            && body.model.as_deref().unwrap_or_default() == model
        {
            route.retry_in = self.pool.retry_pools(self.head.api, self.head.headers(), model);
        }
    }

    /// The part of the prompts that is in the caches of servers; `None`: not known.
    #[cold]
    #[inline(never)]
    fn cached(&self, body: &Body<'_>, bytes: &[u8], model: &str, now: Duration) -> Option<CachedPrompt> {
        let api = self.head.api;
        if !cached_prefixes::can_match(api) {
            return None;
        }
        let store = &self.pool.store;
        let known = store.with_caches(|caches| caches.model(model).filter(|_| caches.can_match(api, now)));
        let model = known.flatten()?;
        let max_bytes = self.pool.config.limits.max_held_bytes.saturating_mul(TEXT_FACTOR);
        let prompts = model.prompts().of_request(api, body, bytes, max_bytes)?;
        store.with_caches(|caches| caches.find(&model, body.cache_salt.as_deref(), &prompts))
    }

    /// Decides, and measures the time that some decisions take, since `now`.
    fn route(&mut self, request: &Request<'_>, has_body: bool, now: Duration) -> Result<Directive> {
        let other = self.other.map(|other| &other.pick);
        let routing =
            Routing { request, has_body, other, explain: self.head.explains, fallback: self.fallback, now };
        let directive = self.pool.route(self.view, &routing);
        let metrics = &mut self.pool.metrics;
        if metrics.decision.is_due() {
            metrics.decision.measured(self.proxy.elapsed(now)?.as_micros());
        }
        metrics.decision.count();
        if let Action::Route(route) = &directive.action {
            if let Some(&endpoint) = route.assignment.destinations.first() {
                metrics.picks.increment(endpoint, || route.address());
            }
            metrics.count_media(route.media);
        }
        for run in &directive.served_models {
            metrics.plugins.count_served_models(run);
        }
        Ok(directive)
    }
}
