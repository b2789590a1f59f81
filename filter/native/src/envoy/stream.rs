//! One request: Envoy's hooks for it.

use std::sync::Arc;

use endpoint_picker_engine::exchange::{Exchange, Flow};
use endpoint_picker_engine::proxy::ProxyError;

use super::filter_config::{RouteConfig, WorkerConfig};
use super::filter_pool::{Pool, Worker};
use super::host::{Envoy, Event};
use crate::abi::{LocalReply, RequestHandle};
use crate::cluster::pick::Pick;

/// Next step of Envoy for a request.
#[derive(Debug)]
pub(crate) enum Outcome {
    /// The request continues.
    Continue,
    /// Envoy holds it, with the part of the body that has arrived.
    Hold,
    /// Envoy holds it until it is resumed.
    Wait,
    /// The client gets this response, which is sent when nothing borrows the request's state.
    Reply(LocalReply),
    /// A response was sent before.
    Answered,
}

/// The module's part in the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// The engine gets every event.
    Active,
    /// The module has sent a response; the engine gets that response's events.
    Answered,
    /// A hook has panicked: the request and its response pass unchanged.
    Passive,
}

/// One request.
#[derive(Debug)]
pub(crate) struct Stream {
    config: Arc<WorkerConfig>,
    /// `None`: the picker is off, or the head has not arrived yet.
    picking: Option<Picking>,
    part: Part,
}

/// The course of a request through the picker of a pool.
#[derive(Debug)]
struct Picking {
    worker: Arc<Worker>,
    exchange: Exchange,
    /// The destinations for the module's balancer; `None` before the decision, and with other steering.
    pick: Option<Pick>,
}

impl Picking {
    fn new(worker: &Arc<Worker>) -> Self {
        Self { worker: Arc::clone(worker), exchange: Exchange::new(worker.limits()), pick: None }
    }
}

impl Stream {
    /// A request before its head.
    pub(crate) fn new(config: &Arc<WorkerConfig>) -> Self {
        Self { config: Arc::clone(config), picking: None, part: Part::Active }
    }

    /// The request's head has arrived. `route` is the configuration of its route.
    pub(crate) fn request_headers(
        &mut self,
        request: &mut RequestHandle<'_>,
        route: Option<&RouteConfig>,
        end_of_stream: bool,
    ) -> Outcome {
        self.config.flusher.flush_if_due(request);
        self.picking = self.worker_for(request, route).map(|worker| Picking::new(&worker));
        self.begin(request, end_of_stream)
    }

    fn worker_for(&self, request: &RequestHandle<'_>, route: Option<&RouteConfig>) -> Option<Arc<Worker>> {
        let worker = match route {
            Some(route) => route.worker(request.worker_index()),
            None => self.config.worker.as_ref(),
        };
        worker.cloned()
    }

    fn begin(&mut self, request: &mut RequestHandle<'_>, end_of_stream: bool) -> Outcome {
        let outcome = self.in_request(request, Event::Other, |exchange, pool, envoy| {
            exchange.request_headers(pool, envoy, end_of_stream)
        });
        if let (Outcome::Hold | Outcome::Wait, Some(picking)) = (&outcome, &self.picking) {
            // So that the listener needs no larger limit of its own.
            request.raise_buffer_limit(picking.worker.buffer_limit());
        }
        outcome
    }

    /// Whether another route may still bring another pool: its request is held for its body.
    pub(crate) fn follows_route(&self) -> bool {
        let reads_body = self.picking.as_ref().is_some_and(|picking| picking.exchange.is_reading());
        self.part == Part::Active && reads_body
    }

    /// Follows the route of a held request, which a filter before the picker may have changed with the body. `Some`: this event is over.
    pub(crate) fn follow_route(
        &mut self,
        request: &mut RequestHandle<'_>,
        route: Option<&RouteConfig>,
    ) -> Option<Outcome> {
        let worker = self.worker_for(request, route);
        let current = self.picking.as_ref().map(|picking| &picking.worker);
        if worker.as_ref().map(Arc::as_ptr) == current.map(Arc::as_ptr) {
            return None;
        }
        self.picking = worker.as_ref().map(Picking::new);
        match self.begin(request, false) {
            Outcome::Hold => None,
            outcome => Some(outcome),
        }
    }

    /// A chunk of the request's body has arrived.
    pub(crate) fn request_body(&mut self, request: &mut RequestHandle<'_>, end_of_stream: bool) -> Outcome {
        self.in_request(request, Event::Body, |exchange, pool, envoy| {
            let size = envoy.request_body_size();
            exchange.request_body(pool, envoy, size, end_of_stream)
        })
    }

    /// The request's trailers have arrived, and so has its whole body.
    pub(crate) fn request_trailers(&mut self, request: &mut RequestHandle<'_>) -> Outcome {
        self.in_request(request, Event::Other, |exchange, pool, envoy| exchange.request_trailers(pool, envoy))
    }

    /// The queue has resumed the request. It is dispatched only on [`Outcome::Continue`].
    pub(crate) fn resumed(&mut self, request: &mut RequestHandle<'_>) -> Outcome {
        if self.part != Part::Active {
            return Outcome::Answered;
        }
        self.in_request(request, Event::Other, |exchange, pool, envoy| {
            let size = envoy.request_body_size();
            // Without a verdict of the queue the request stays where it is, as a request that waits.
            exchange.resumed(pool, envoy, size).unwrap_or(Flow::Wait)
        })
    }

    /// The head of the response has arrived, which may be a response of the module.
    pub(crate) fn response_headers(
        &mut self,
        request: &mut RequestHandle<'_>,
        end_of_stream: bool,
    ) -> Outcome {
        self.in_response(request, Event::Other, |exchange, pool, envoy| {
            exchange.response_headers(pool, envoy, end_of_stream);
        })
    }

    /// A chunk of the response's body has arrived.
    pub(crate) fn response_body(&mut self, request: &mut RequestHandle<'_>, end_of_stream: bool) -> Outcome {
        self.in_response(request, Event::Body, |exchange, pool, envoy| {
            exchange.response_body(pool, envoy, end_of_stream);
        })
    }

    /// The response's trailers have arrived.
    pub(crate) fn response_trailers(&mut self, request: &mut RequestHandle<'_>) -> Outcome {
        self.in_response(request, Event::Other, |exchange, pool, envoy| {
            exchange.response_trailers(pool, envoy);
        })
    }

    /// A hook has panicked. For a request that is still held, the failure mode decides.
    pub(crate) fn recover(&mut self, request: &mut RequestHandle<'_>) -> Outcome {
        if let Some(picking) = &self.picking {
            picking.worker.count_panic();
        }
        let error = ProxyError { call: "a hook", status: "it panicked".to_owned() };
        let outcome =
            self.in_request(request, Event::Other, |exchange, pool, envoy| exchange.fail(pool, envoy, error));
        self.give_up();
        outcome
    }

    /// The request and its response pass unchanged from now on.
    pub(crate) fn give_up(&mut self) {
        self.part = Part::Passive;
    }

    fn in_request(
        &mut self,
        request: &mut RequestHandle<'_>,
        event: Event,
        hook: impl FnOnce(&mut Exchange, &mut Pool, &mut Envoy<'_, '_>) -> Flow,
    ) -> Outcome {
        let Self { picking, part, .. } = self;
        match part {
            Part::Active => {}
            Part::Answered => return Outcome::Answered,
            Part::Passive => return Outcome::Continue,
        }
        let Some(Picking { worker, exchange, pick }) = picking else { return Outcome::Continue };
        let (flow, reply) = worker.with(request, event, pick, |pool, envoy| hook(exchange, pool, envoy));
        match (reply, flow) {
            (Some(reply), _) => {
                *part = Part::Answered;
                Outcome::Reply(reply)
            }
            (None, Flow::Hold) => Outcome::Hold,
            (None, Flow::Wait) => Outcome::Wait,
            (None, Flow::Continue) => Outcome::Continue,
        }
    }

    fn in_response(
        &mut self,
        request: &mut RequestHandle<'_>,
        event: Event,
        hook: impl FnOnce(&mut Exchange, &mut Pool, &mut Envoy<'_, '_>),
    ) -> Outcome {
        let Self { picking, part, .. } = self;
        if let Some(Picking { worker, exchange, pick }) = picking.as_mut().filter(|_| *part != Part::Passive)
        {
            worker.with(request, event, pick, |pool, envoy| hook(exchange, pool, envoy));
        }
        Outcome::Continue
    }
}

impl Drop for Picking {
    /// Ends the exchange. Every request with a picker leads here, also without a complete response.
    fn drop(&mut self) {
        self.exchange.end(&mut self.worker.lock());
    }
}
