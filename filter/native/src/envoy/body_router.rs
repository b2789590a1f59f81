//! Body-based routing on one worker: the engine's router, and the models that the agent knows.

use std::sync::Arc;

use endpoint_picker::request::body::ReadBody;
use endpoint_picker_engine::body_routing::{AwaitedBody, BodyRouter};

use super::filter_pool::{HELD_BODIES, buffer_limit};
use super::host::{Envoy, Event, SteeringKeys};
use crate::abi::{LocalReply, RequestHandle};
use crate::agent::models::ModelsHandle;
use crate::config::{BodyRoutingConfig, Steering};
use crate::metrics::Sink;

/// Body-based routing on one worker.
#[derive(Debug)]
pub(super) struct WorkerRouter {
    router: BodyRouter<Sink>,
    models: Arc<ModelsHandle>,
    buffer_limit: u64,
    /// No request is steered before its pool is known.
    steering: SteeringKeys,
}

impl WorkerRouter {
    pub(super) fn new(config: &BodyRoutingConfig, models: &Arc<ModelsHandle>) -> Self {
        Self {
            router: BodyRouter::new(config.limits, &Sink::new()).with_held_bodies(&HELD_BODIES),
            models: Arc::clone(models),
            buffer_limit: buffer_limit(&config.limits),
            steering: SteeringKeys::new(Steering::default(), "", ""),
        }
    }

    /// The head of a request with a body. `None`: its body is not awaited.
    pub(super) fn request_headers(&self, request: &mut RequestHandle<'_>) -> Option<AwaitedBody> {
        let mut pick = None;
        let mut envoy = Envoy::new(request, Event::Other, &self.steering, &mut pick, None);
        let awaited = self.router.request_headers(&mut envoy).unwrap_or_else(|error| {
            log::error!("{error}; the request is routed without its model");
            None
        });
        if awaited.is_some() {
            // So that the listener needs no larger limit of its own.
            request.raise_buffer_limit(self.buffer_limit);
        }
        awaited
    }

    /// A part of the body, or its end. `route` runs once the headers are set. Returns its result, or the
    /// response to send; neither while the body is awaited.
    pub(super) fn request_body<T>(
        &self,
        awaited: &mut AwaitedBody,
        request: &mut RequestHandle<'_>,
        (event, is_whole): (Event, bool),
        route: impl FnOnce(&mut RequestHandle<'_>, Option<&ReadBody<'_>>) -> T,
    ) -> (Option<T>, Option<LocalReply>) {
        let mut pick = None;
        let mut envoy = Envoy::new(request, event, &self.steering, &mut pick, None);
        let arrived = (envoy.request_body_size(), is_whole);
        let route =
            |envoy: &mut Envoy<'_, '_>, read_body: Option<&ReadBody<'_>>| route(envoy.handle(), read_body);
        let routed = self.router.request_body(awaited, || self.models.current(), &mut envoy, arrived, route);
        (routed, envoy.reply)
    }
}
