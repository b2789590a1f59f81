//! One request: Envoy's hooks for it.

use core::net::SocketAddr;
use std::sync::Arc;

use endpoint_picker::headers::HeaderList;
use endpoint_picker::request::body::ReadBody;
use endpoint_picker_engine::body_routing::AwaitedBody;
use endpoint_picker_engine::budget::KeptBytes;
use endpoint_picker_engine::exchange::{Exchange, Flow};
use endpoint_picker_engine::proxy::ProxyError;
use endpoint_picker_engine::resume::{StreamApi, Unresumable};

use super::configured::has_routes;
use super::filter_config::{RouteConfig, WorkerConfig};
use super::filter_pool::{Pool, Worker};
use super::host::{Envoy, Event, OwnEvent, request_headers};
use super::own_stream::{OwnStream, stream_api};
use super::resumer::KeptBody;
use crate::abi::{LocalReply, RequestHandle};
use crate::cluster::pick::Pick;
use crate::process::clock;

/// Maximum number of bytes by which a change lengthens a body. Most of them are a model's name: by default
/// Envoy takes 60 KiB of headers, one of which may name it, and JSON may spell each byte with six.
const MAX_GROWTH: u64 = 512 << 10;

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
    /// The module sends the request itself; later filters and the router do not get it.
    Taken,
}

/// The module's part in the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ModulePart {
    /// The engine gets every event.
    Active,
    /// The module has sent a response; the engine gets that response's events.
    Answered,
    /// A hook has panicked: the request and its response pass unchanged.
    Passive,
}

/// Finds the configuration of the route that a request has now.
type RouteOf = for<'r> fn(&'r RequestHandle<'_>) -> Option<&'r RouteConfig>;

/// One request.
#[derive(Debug)]
pub(crate) struct Stream {
    config: Arc<WorkerConfig>,
    /// The body is awaited, because the request's route depends on it.
    pub(super) awaited: Option<AwaitedBody>,
    /// `None`: the picker is off, or the route is not known yet.
    pub(super) picking: Option<Picking>,
    pub(super) part: ModulePart,
    /// The API of a request that the module may yet send itself.
    pub(super) api: Option<StreamApi>,
    /// The whole body has arrived.
    pub(super) is_whole: bool,
    /// The head of such a request before the picker's first decision.
    pub(super) head: HeaderList,
    /// The body of such a request, or the reason why it is not kept; `None` before it has arrived.
    pub(super) body: Option<Result<KeptBody, Unresumable>>,
    /// The room of a request that is held until it is whole, because its stream may be resumed; `None`: it is
    /// not.
    pub(super) held: Option<KeptBytes>,
    /// `None`: Envoy's router sends the request.
    pub(super) own: Option<Box<OwnStream>>,
}

/// The course of a request through the picker of a pool.
#[derive(Debug)]
pub(super) struct Picking {
    /// The request's own pool.
    pub(super) worker: Arc<Worker>,
    /// The pool that has taken the request from its own.
    taken_by: Option<Arc<Worker>>,
    exchange: Exchange,
    /// The destinations for the module's balancer; `None` before the decision, and with other steering.
    pick: Option<Pick>,
}

impl Picking {
    pub(super) fn new(worker: &Arc<Worker>) -> Self {
        Self::again(worker, Vec::new())
    }

    /// The course of a request that these servers have failed.
    pub(super) fn again(worker: &Arc<Worker>, failed: Vec<SocketAddr>) -> Self {
        let exchange = Exchange::new(worker.limits()).failed_by(failed);
        Self { worker: Arc::clone(worker), taken_by: None, exchange, pick: None }
    }

    /// Runs a part of a hook in the pool that has the request.
    pub(super) fn run<T>(
        &mut self,
        request: &mut RequestHandle<'_>,
        event: Event,
        own: Option<OwnEvent<'_>>,
        part: impl FnOnce(&mut Exchange, &mut Pool, &mut Envoy<'_, '_>) -> T,
    ) -> (T, Option<LocalReply>) {
        let Self { worker, taken_by, exchange, pick } = self;
        let worker = taken_by.as_ref().unwrap_or(worker);
        worker.with(request, event, pick, own, |pool, envoy| part(exchange, pool, envoy))
    }

    /// Has the pool at this place among the other pools take the request over, with its body if
    /// it was read.
    fn move_to(
        &mut self,
        request: &mut RequestHandle<'_>,
        event: Event,
        own: Option<OwnEvent<'_>>,
        place: usize,
        read_body: Option<&ReadBody<'_>>,
    ) -> (Flow, Option<LocalReply>) {
        self.taken_by = self.worker.other(place);
        self.run(request, event, own, |exchange, pool, envoy| {
            let size = envoy.request_body_size();
            exchange.continue_in(pool, envoy, size, read_body)
        })
    }
}

impl Stream {
    /// A request before its head.
    pub(crate) fn new(config: &Arc<WorkerConfig>) -> Self {
        Self {
            config: Arc::clone(config),
            awaited: None,
            picking: None,
            part: ModulePart::Active,
            api: None,
            is_whole: false,
            head: HeaderList::EMPTY,
            body: None,
            held: None,
            own: None,
        }
    }

    /// The request's head has arrived.
    pub(crate) fn request_headers(
        &mut self,
        request: &mut RequestHandle<'_>,
        route_of: RouteOf,
        end_of_stream: bool,
    ) -> Outcome {
        self.config.flusher.flush_if_due(request);
        let models = self.config.models.as_ref().filter(|_| end_of_stream);
        if let Some(list) = models.and_then(|models| models.response(request)) {
            self.part = ModulePart::Answered;
            return Outcome::Reply(list);
        }
        let router = self.config.router.as_ref().filter(|_| !end_of_stream);
        self.awaited = router.and_then(|router| router.request_headers(request));
        if self.awaited.is_some() {
            self.api = stream_api(request);
            return Outcome::Hold;
        }
        self.picking = self.worker(request, route_of).map(|worker| Picking::new(&worker));
        if !end_of_stream && self.has_resumer() {
            self.api = stream_api(request);
        }
        let outcome = self.begin(request, end_of_stream);
        self.take(request, Event::Other, outcome)
    }

    /// The pool of the request's route.
    fn worker(&self, request: &RequestHandle<'_>, route_of: RouteOf) -> Option<Arc<Worker>> {
        let route = if has_routes() { route_of(request) } else { None };
        let worker = match route {
            Some(route) => route.worker(request.worker_index()),
            None => self.config.worker.as_ref(),
        };
        worker.cloned()
    }

    fn begin(&mut self, request: &mut RequestHandle<'_>, end_of_stream: bool) -> Outcome {
        if self.api.is_some() && self.has_resumer() {
            self.head = request_headers(request, HeaderList::EMPTY);
        }
        let outcome = self.in_request(request, Event::Other, |exchange, pool, envoy| {
            exchange.request_headers(pool, envoy, end_of_stream)
        });
        if let (Outcome::Hold | Outcome::Wait, Some(picking)) = (&outcome, &self.picking) {
            // So that the listener needs no larger limit of its own. Until it is changed, no body is longer
            // than its head says.
            let declared = picking.exchange.declared_length().unwrap_or(u64::MAX);
            let length = declared.saturating_add(MAX_GROWTH);
            request.raise_buffer_limit(picking.worker.buffer_limit().min(length));
        }
        outcome
    }

    /// Finds the route of a request whose body has grown: by the body if the route depends on it. `Some`:
    /// this event is over.
    fn route(
        &mut self,
        request: &mut RequestHandle<'_>,
        route_of: RouteOf,
        event: Event,
        is_whole: bool,
    ) -> Option<Outcome> {
        let Some(mut awaited) = self.awaited.take() else {
            return self.follow_route(request, route_of);
        };
        let config = Arc::clone(&self.config);
        let router = config.router.as_ref()?;
        let route = |request: &mut RequestHandle<'_>, read_body: Option<&ReadBody<'_>>| {
            self.begin_on_route(request, route_of, event, read_body)
        };
        match router.request_body(&mut awaited, request, (event, is_whole), route) {
            (Some(Some(outcome)), _) => Some(outcome),
            // Its pool reads the body.
            (Some(None), _) => None,
            (None, Some(reply)) => {
                self.part = ModulePart::Answered;
                Some(Outcome::Reply(reply))
            }
            (None, None) => {
                self.awaited = Some(awaited);
                Some(Outcome::Hold)
            }
        }
    }

    /// Begins in the pool of the route that the request has by its headers as they are now, with its body
    /// if it was read. `None`: the pool has yet to read the body.
    fn begin_on_route(
        &mut self,
        request: &mut RequestHandle<'_>,
        route_of: RouteOf,
        event: Event,
        read_body: Option<&ReadBody<'_>>,
    ) -> Option<Outcome> {
        request.clear_route_cache();
        self.picking = self.worker(request, route_of).map(|worker| Picking::new(&worker));
        if self.is_whole {
            self.keep_body(request, event);
        }
        match self.begin(request, false) {
            Outcome::Hold => {
                let read_body = read_body?;
                Some(self.in_request_read(request, event, Some(read_body), |exchange, pool, envoy| {
                    let size = envoy.request_body_size();
                    exchange.request_body_read(pool, envoy, size, read_body)
                }))
            }
            outcome => Some(outcome),
        }
    }

    /// Follows the route of a request that is held for its body, which a filter before the picker may have
    /// changed with the body. `Some`: this event is over.
    fn follow_route(&mut self, request: &mut RequestHandle<'_>, route_of: RouteOf) -> Option<Outcome> {
        let reads_body = self.picking.as_ref().is_some_and(|picking| picking.exchange.is_reading());
        if self.part != ModulePart::Active || !reads_body || !has_routes() {
            return None;
        }
        let worker = self.worker(request, route_of);
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
    pub(crate) fn request_body(
        &mut self,
        request: &mut RequestHandle<'_>,
        route_of: RouteOf,
        end_of_stream: bool,
    ) -> Outcome {
        if end_of_stream {
            self.keep_body(request, Event::Body);
        }
        let outcome = self.route(request, route_of, Event::Body, end_of_stream).unwrap_or_else(|| {
            self.in_request(request, Event::Body, |exchange, pool, envoy| {
                let size = envoy.request_body_size();
                exchange.request_body(pool, envoy, size, end_of_stream)
            })
        });
        self.take(request, Event::Body, outcome)
    }

    /// The request's trailers have arrived, and so has its whole body.
    pub(crate) fn request_trailers(&mut self, request: &mut RequestHandle<'_>, route_of: RouteOf) -> Outcome {
        self.keep_body(request, Event::Other);
        let outcome = self.route(request, route_of, Event::Other, true).unwrap_or_else(|| {
            self.in_request(request, Event::Other, |exchange, pool, envoy| {
                exchange.request_trailers(pool, envoy)
            })
        });
        self.take(request, Event::Other, outcome)
    }

    /// The queue has resumed the request. It is dispatched only on [`Outcome::Continue`].
    pub(crate) fn resumed(&mut self, request: &mut RequestHandle<'_>) -> Outcome {
        if self.part != ModulePart::Active {
            return Outcome::Answered;
        }
        let outcome = self.in_request(request, Event::Other, |exchange, pool, envoy| {
            let size = envoy.request_body_size();
            // Without a verdict of the queue the request stays where it is, as a request that waits.
            exchange.resumed(pool, envoy, size).unwrap_or(Flow::Wait)
        });
        if self.own.is_some() {
            self.send_continuation(request, outcome);
            return Outcome::Taken;
        }
        self.take(request, Event::Other, outcome)
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

    /// Passes a chunk of the response that is not the last one, without the pool. False: the pool is needed.
    pub(crate) fn pass_chunk(&mut self, request: &mut RequestHandle<'_>) -> bool {
        let Some(Picking { worker, exchange, pick, .. }) = self.reader() else { return true };
        worker.without_pool(request, pick, |envoy| exchange.pass_chunk(envoy))
    }

    /// Whether nothing reads the next chunks of the response, up to the last one.
    pub(crate) fn only_counts_chunks(&mut self) -> bool {
        self.reader().is_none_or(|picking| picking.exchange.only_counts_chunks())
    }

    /// Counts chunks of the response that nothing has read.
    pub(crate) fn count_chunks(&mut self, chunks: u64) {
        if let Some(picking) = self.reader() {
            picking.exchange.count_chunks(chunks);
        }
    }

    /// The response's trailers have arrived.
    pub(crate) fn response_trailers(&mut self, request: &mut RequestHandle<'_>) -> Outcome {
        self.in_response(request, Event::Other, |exchange, pool, envoy| {
            exchange.response_trailers(pool, envoy);
        })
    }

    /// Envoy sends a response of its own with these details, or resets the client's stream if the response of
    /// a server has begun.
    pub(crate) fn local_reply(&mut self, request: &mut RequestHandle<'_>, details: &[u8]) -> Outcome {
        self.in_response(request, Event::Other, |exchange, pool, envoy| {
            exchange.local_reply(pool, envoy, details);
        })
    }

    /// A hook has panicked. For a request that is still held, the failure mode decides.
    pub(crate) fn recover(&mut self, request: &mut RequestHandle<'_>) -> Outcome {
        if let Some(picking) = &self.picking {
            picking.worker.count_panic();
        }
        if let Some(own) = &mut self.own {
            own.end_early();
            self.give_up();
            return Outcome::Taken;
        }
        let error = ProxyError { call: "a hook", status: "it panicked".to_owned() };
        let outcome =
            self.in_request(request, Event::Other, |exchange, pool, envoy| exchange.fail(pool, envoy, error));
        self.give_up();
        outcome
    }

    /// The request and its response pass unchanged from now on.
    pub(crate) fn give_up(&mut self) {
        self.part = ModulePart::Passive;
    }

    pub(super) fn in_request(
        &mut self,
        request: &mut RequestHandle<'_>,
        event: Event,
        hook: impl FnOnce(&mut Exchange, &mut Pool, &mut Envoy<'_, '_>) -> Flow,
    ) -> Outcome {
        self.in_request_read(request, event, None, hook)
    }

    /// As [`Self::in_request`], with the body if it was read before the request had its route.
    fn in_request_read(
        &mut self,
        request: &mut RequestHandle<'_>,
        event: Event,
        read_body: Option<&ReadBody<'_>>,
        hook: impl FnOnce(&mut Exchange, &mut Pool, &mut Envoy<'_, '_>) -> Flow,
    ) -> Outcome {
        let Self { picking, part, own, .. } = self;
        match part {
            ModulePart::Active => {}
            ModulePart::Answered => return Outcome::Answered,
            ModulePart::Passive => return Outcome::Continue,
        }
        let Some(picking) = picking else { return Outcome::Continue };
        let (mut flow, mut reply) = picking.run(request, event, own_event(own), hook);
        if let Flow::Move(place) = flow {
            (flow, reply) = picking.move_to(request, event, own_event(own), place, read_body);
        }
        match (reply, flow) {
            (Some(reply), _) => {
                *part = ModulePart::Answered;
                Outcome::Reply(reply)
            }
            (None, Flow::Hold) => Outcome::Hold,
            (None, Flow::Wait) => Outcome::Wait,
            // The pool that has taken a request over moves none.
            (None, Flow::Continue | Flow::Move(_)) => Outcome::Continue,
        }
    }

    fn in_response(
        &mut self,
        request: &mut RequestHandle<'_>,
        event: Event,
        hook: impl FnOnce(&mut Exchange, &mut Pool, &mut Envoy<'_, '_>),
    ) -> Outcome {
        if let Some(picking) = self.reader() {
            picking.run(request, event, None, hook);
        }
        Outcome::Continue
    }

    /// The picker that gets the events of the response.
    fn reader(&mut self) -> Option<&mut Picking> {
        // The response to a request of the module reaches the engine before it is sent to the client.
        self.picking.as_mut().filter(|_| self.part != ModulePart::Passive && self.own.is_none())
    }
}

impl Drop for Picking {
    /// Ends the exchange. Every request with a picker leads here, also without a complete response.
    fn drop(&mut self) {
        if self.exchange.has_ended() {
            return;
        }
        let worker = self.taken_by.as_ref().unwrap_or(&self.worker);
        self.exchange.end_at(&mut worker.lock(), || Ok(clock::now()));
    }
}

/// An event of the module's own request, if there is one.
fn own_event(own: &mut Option<Box<OwnStream>>) -> Option<OwnEvent<'_>> {
    own.as_mut().map(|own| OwnEvent { request: &mut own.request, chunk: &[] })
}
