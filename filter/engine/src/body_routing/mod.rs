//! Body-based routing: the model in a request's body becomes request headers, by which the proxy finds the
//! request's route again.
//!
//! The Gateway API Inference Extension has these rules in an external processor of its own. Here the body is
//! read once: the [`ReadBody`] also serves the decision in the pool of the route that results.

mod base_models;

use std::sync::Arc;

use endpoint_picker::decision::rejection::Rejection;
use endpoint_picker::grpc::has_messages;
use endpoint_picker::headers::{HeaderList, Headers};
use endpoint_picker::request::body::{
    Api, BodyError, Options, ReadBody, complete, opens_tunnel, request_path,
};
use endpoint_picker_wire::statistics::BODY_BASED_ROUTING;

use crate::budget::{Budget, KeptBytes, UsedBytes};
use crate::config::{Limits, UnreadBody};
use crate::exchange::content_encoding;
use crate::metrics::{Labels, Metric, MetricSink};
use crate::pool_view::PoolView;
use crate::proxy::error_body::{ErrorResponse, further_headers};
use crate::proxy::{Proxy, Result};

pub use base_models::{BaseModels, BaseModelsError};

/// The request header with the body's model.
pub const MODEL_NAME: &str = "x-gateway-model-name";

/// The request header with the base model of the body's model, if one is known. Envoy lets no module set an
/// empty header.
pub const BASE_MODEL_NAME: &str = "x-gateway-base-model-name";

/// Maximum length of a model in a header, in bytes. Manifests allow names of 256 bytes.
const MAX_MODEL_BYTES: usize = 1024;

/// End of the wait for a body, in the order of [`OUTCOMES`].
#[derive(Clone, Copy, Debug)]
enum BodyOutcome {
    Model,
    NoModel,
    Malformed,
    TooLarge,
    NoRoom,
}

/// The values of the metric's label.
const OUTCOMES: [&str; 5] = ["model", "no_model", "malformed", "body_too_large", "held_bodies"];

/// Reads bodies for their models, on one worker.
#[derive(Debug)]
pub struct BodyRouter<M: MetricSink> {
    limits: Limits,
    /// The room for bodies that are held.
    held_bodies: Arc<Budget>,
    /// The rules of a pool without settings, by which bodies are read: their own pools are not known yet.
    view: PoolView,
    sink: M,
    /// The counts by outcome.
    outcomes: [Option<M::Series>; OUTCOMES.len()],
}

/// One request until its body has been read for its model.
#[derive(Debug)]
pub struct AwaitedBody {
    headers: HeaderList,
    api: Api,
    /// The body is read next when this number of bytes has arrived.
    until: usize,
    /// Its part of the room for bodies that are held.
    held: KeptBytes,
}

impl<M: MetricSink> BodyRouter<M> {
    /// A router that holds this much of a body.
    pub fn new(limits: Limits, sink: &M) -> Self {
        let family = sink.family(&Metric { pool: "", statistic: &BODY_BASED_ROUTING });
        let outcomes = OUTCOMES.map(|outcome| sink.series(&family, &Labels::new(&[outcome])));
        let held_bodies = limits.budget(Arc::default());
        Self { limits, held_bodies, view: PoolView::default(), sink: sink.clone(), outcomes }
    }

    /// The same router, whose held bodies count together with those of others.
    #[must_use]
    pub fn with_held_bodies(self, used: &Arc<UsedBytes>) -> Self {
        Self { held_bodies: self.limits.budget(Arc::clone(used)), ..self }
    }

    /// Begins with the head of a request that has a body, and removes the headers that only a body sets.
    /// `None`: its body names no model because it is a tunnel or gRPC, so it has its route already.
    ///
    /// # Errors
    /// The proxy refuses a call.
    pub fn request_headers(&self, proxy: &mut impl Proxy) -> Result<Option<AwaitedBody>> {
        let headers = proxy.request_headers(HeaderList::EMPTY)?;
        let all = Headers(&headers);
        if opens_tunnel(all) || all.get("content-type").is_some_and(|it| has_messages(it.as_bytes())) {
            return Ok(None);
        }
        for name in [MODEL_NAME, BASE_MODEL_NAME] {
            if headers.has(name) {
                proxy.remove_request_header(name)?;
            }
        }
        let api = self.view.topology().pipeline.api(request_path(all.get(":path"), all));
        // A path without a parser leads to a route too, and its body may name a model.
        let api = api.ok().filter(|api| api.names_model()).unwrap_or(Api::ModelOnly);
        let held = KeptBytes::new(&self.held_bodies);
        Ok(Some(AwaitedBody { headers, api, until: self.limits.peek_bytes, held }))
    }

    /// The body has grown to `size` bytes, or has arrived completely. Once it has been read, the headers are
    /// set, and `route` finds the request's route, with the body if it was read. `None`: the request is
    /// held, or the router has responded to it.
    pub fn request_body<P: Proxy, T>(
        &self,
        awaited: &mut AwaitedBody,
        base_models: impl FnOnce() -> Arc<BaseModels>,
        proxy: &mut P,
        (size, is_whole): (usize, bool),
        route: impl FnOnce(&mut P, Option<&ReadBody<'_>>) -> T,
    ) -> Option<T> {
        // It is counted by the pool of its route, or again below.
        awaited.held.release();
        let Limits { max_held_bytes, unread_body, .. } = self.limits;
        if let Some(encoding) = content_encoding(Headers(&awaited.headers)) {
            self.count(BodyOutcome::Malformed);
            return match unread_body {
                UnreadBody::Reject => {
                    let error = BodyError::Encoded { encoding: encoding.to_owned() };
                    respond(proxy, &Rejection::from(error));
                    None
                }
                UnreadBody::Abstain => Some(route(proxy, None)),
            };
        }
        while is_whole || awaited.until <= size {
            let options = self.options(&awaited.headers);
            let length = if is_whole { usize::MAX } else { awaited.until };
            let bytes = match proxy.request_body(length) {
                Ok(bytes) => bytes.into_owned(),
                Err(error) => {
                    log::error!("{error}; the request is routed without its model");
                    return Some(route(proxy, None));
                }
            };
            if is_whole && bytes.is_empty() {
                return Some(route(proxy, None));
            }
            let text = if is_whole { Some(bytes) } else { complete(bytes, awaited.api, &options) };
            if let Some(text) = text {
                let read_body = ReadBody::new(&text, is_whole, awaited.api, &options);
                match read_body.model(&options) {
                    Ok(Some(model)) => {
                        self.name(&model, &base_models(), proxy);
                        return Some(route(proxy, Some(&read_body)));
                    }
                    Ok(None) if is_whole => {
                        self.count(BodyOutcome::NoModel);
                        return Some(route(proxy, Some(&read_body)));
                    }
                    Err(error) if is_whole => {
                        let message = format!("failed to parse request body: {error}");
                        self.reject(proxy, &Rejection::bad_request(message), BodyOutcome::Malformed);
                        return None;
                    }
                    // The rest may have the model, or be refused at its end.
                    Ok(None) | Err(_) => {}
                }
            }
            if awaited.until < max_held_bytes {
                awaited.until = awaited.until.saturating_mul(2).min(max_held_bytes);
                continue;
            }
            return match unread_body {
                UnreadBody::Reject => {
                    self.reject(proxy, &Rejection::body_too_large(max_held_bytes), BodyOutcome::TooLarge);
                    None
                }
                UnreadBody::Abstain => {
                    self.count(BodyOutcome::TooLarge);
                    Some(route(proxy, None))
                }
            };
        }
        if !awaited.held.set(size) {
            self.reject(proxy, &Rejection::too_many_bodies(), BodyOutcome::NoRoom);
        }
        None
    }

    fn options<'h>(&self, headers: &'h HeaderList) -> Options<'h> {
        let options = self.view.body_options(Headers(headers));
        Options { keep_bytes: options.keep_bytes.max(Options::default().keep_bytes), ..options }
    }

    /// Sets the headers of a model, if it can be a header's value.
    fn name(&self, model: &str, base_models: &BaseModels, proxy: &mut impl Proxy) {
        // A line break would begin a header of the client's choice.
        if model.len() > MAX_MODEL_BYTES || model.chars().any(char::is_control) {
            return self.count(BodyOutcome::NoModel);
        }
        self.count(BodyOutcome::Model);
        let base_model = base_models.base_of(model.trim());
        let set = proxy.set_request_header(MODEL_NAME, model).and_then(|()| match base_model {
            Some(base_model) => proxy.set_request_header(BASE_MODEL_NAME, base_model),
            None => Ok(()),
        });
        if let Err(error) = set {
            log::error!("{error}; the request is routed without its model");
        }
    }

    fn reject(&self, proxy: &mut impl Proxy, rejection: &Rejection, outcome: BodyOutcome) {
        self.count(outcome);
        respond(proxy, rejection);
    }

    fn count(&self, outcome: BodyOutcome) {
        if let Some(Some(series)) = self.outcomes.get(outcome as usize) {
            self.sink.add(series, 1);
        }
    }
}

/// Responds to a request in the place of its pool.
fn respond(proxy: &mut impl Proxy, rejection: &Rejection) {
    let ErrorResponse { header, body } = ErrorResponse::new(rejection, false);
    let more = further_headers(rejection);
    let headers: Vec<_> = [&header].into_iter().chain(&more).map(|(name, it)| (*name, &**it)).collect();
    let sent = proxy.send_response(rejection.code.status(), &headers, &body);
    if let Err(error) = sent {
        log::error!("{error}; the request is held");
    }
}
