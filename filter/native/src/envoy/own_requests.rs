//! The requests that the module sends itself, and their responses.

use core::net::SocketAddr;
use std::collections::BTreeSet;

use endpoint_picker::headers::HeaderList;
use endpoint_picker_engine::exchange::Exchange;
use endpoint_picker_engine::proxy::headers::DESTINATION;
use endpoint_picker_engine::resume::{End, Unresumable};

use super::filter_pool::Pool;
use super::host::{Envoy, Event, OwnEvent, PICKER, request_headers};
use super::own_stream::{OwnAction, OwnStream};
use super::stream::{ModulePart, Outcome, Picking, Stream};
use crate::abi::{BodyPart, HeaderMap, RequestHandle};

impl Stream {
    /// Whether streams of its pool are resumed.
    pub(super) fn has_resumer(&self) -> bool {
        self.picking.as_ref().is_some_and(|picking| picking.worker.resumer().is_some())
    }

    /// The whole body has arrived. Keeps it as the client has sent it, before the picker may replace it.
    pub(super) fn keep_body(&mut self, request: &RequestHandle<'_>, event: Event) {
        self.is_whole = true;
        let resumer = self.picking.as_ref().and_then(|picking| picking.worker.resumer());
        if let (Some(resumer), Some(_), None) = (resumer, self.api, &self.own) {
            let parts = body_parts(request, event);
            self.body = Some(resumer.keep(body_size(request, parts), || read_body(request, parts)));
        }
    }

    /// Takes a request that would continue to Envoy's router, if its stream can be resumed.
    pub(super) fn take(
        &mut self,
        request: &mut RequestHandle<'_>,
        event: Event,
        outcome: Outcome,
    ) -> Outcome {
        let (Outcome::Continue, Some(api), ModulePart::Active) = (&outcome, self.api, self.part) else {
            return outcome;
        };
        let resumer = self.picking.as_ref().and_then(|picking| picking.worker.resumer());
        let (Some(resumer), Some(server)) = (resumer, destination(request)) else {
            self.forget_request();
            return outcome;
        };
        let parts = body_parts(request, event);
        let size = body_size(request, parts);
        let taken = if resumer.is_too_large(size) {
            Err(Unresumable::TooLarge)
        } else if !self.is_whole {
            if self.held.get_or_insert_with(|| resumer.hold()).set(size) {
                request.raise_buffer_limit(resumer.buffer_limit());
                return Outcome::Hold;
            }
            Err(Unresumable::TooLarge)
        } else {
            self.held = None;
            let sent = read_body(request, parts);
            let body = self.body.take().unwrap_or_else(|| resumer.keep(sent.len(), || sent.clone()));
            body.and_then(|body| OwnStream::new(resumer, api, body)).map(|own| (own, sent))
        };
        let (mut own, sent) = match taken {
            Ok(taken) => taken,
            Err(reason) => {
                resumer.count_unresumable(reason);
                self.forget_request();
                return outcome;
            }
        };
        self.api = None;
        for &part in parts {
            request.replace_body(part, &[]);
        }
        own.limit_pauses(request);
        let sent = own.with_seed(sent);
        own.send(request, server, sent);
        self.own = Some(Box::new(own));
        Outcome::Taken
    }

    /// Envoy's router sends the request, so the copies of its head and its body are not needed.
    fn forget_request(&mut self) {
        (self.api, self.body, self.held, self.head) = (None, None, None, HeaderList::EMPTY);
    }

    /// The next call to Envoy that a hook has left.
    pub(crate) fn next_action(&mut self) -> Option<OwnAction> {
        self.own.as_mut()?.next_action()
    }

    /// Envoy has sent the request, which has this number, or does not send it.
    pub(crate) fn called(&mut self, number: Option<u64>) {
        if let Some(own) = &mut self.own {
            own.called(number);
        }
    }

    /// Runs the engine with an event of a response to the module's request.
    fn in_own_response(
        &mut self,
        request: &mut RequestHandle<'_>,
        chunk: &[u8],
        hook: impl FnOnce(&mut Exchange, &mut Pool, &mut Envoy<'_, '_>),
    ) {
        if let (Some(picking), Some(own)) = (&mut self.picking, &mut self.own) {
            let event = OwnEvent { request: &mut own.request, chunk };
            picking.run(request, Event::Other, Some(event), hook);
        }
    }

    /// Whether this is the number of the current request of the module.
    fn is_current(&mut self, number: u64) -> bool {
        self.part != ModulePart::Passive && self.own.as_mut().is_some_and(|own| own.is_current(number))
    }

    /// The head of a response to the module's request has arrived.
    pub(crate) fn own_response_headers<'h>(
        &mut self,
        request: &mut RequestHandle<'_>,
        number: u64,
        headers: impl Iterator<Item = (&'h [u8], &'h [u8])>,
    ) {
        if !self.is_current(number) {
            return;
        }
        let is_of_server = self.own.as_mut().is_some_and(|own| own.keep_head(headers));
        self.in_own_response(request, &[], |exchange, pool, envoy| {
            exchange.response_headers(pool, envoy, !is_of_server);
        });
        let Some(own) = &mut self.own else { return };
        let begun = if is_of_server { own.begin_response() } else { Err(own.end_response(true)) };
        match begun {
            Ok(true) => request.set_metadata_text(PICKER, "resumptions", &own.resumptions().to_string()),
            Ok(false) => {}
            // The rest of this response is ignored.
            Err(next) => self.follow(request, next),
        }
    }

    /// A chunk of a response to the module's request has arrived. True if the client gets it as it is.
    pub(crate) fn own_response_chunk(
        &mut self,
        request: &mut RequestHandle<'_>,
        number: u64,
        chunk: &[u8],
    ) -> bool {
        if !self.is_current(number) {
            return false;
        }
        self.in_own_response(request, chunk, |exchange, pool, envoy| {
            exchange.response_body(pool, envoy, false);
        });
        self.own.as_mut().is_some_and(|own| own.pass_chunk(chunk))
    }

    /// A response to the module's request has ended, with a reset or without.
    pub(crate) fn own_response_end(&mut self, request: &mut RequestHandle<'_>, number: u64, is_reset: bool) {
        if !self.is_current(number) {
            return;
        }
        if !is_reset {
            self.in_own_response(request, &[], |exchange, pool, envoy| {
                exchange.response_body(pool, envoy, true);
            });
        }
        let Some(own) = &mut self.own else { return };
        // The engine may have held the end of the last chunk back.
        own.pass_chunk(&[]);
        if own.running().is_none() {
            // These bytes were too many for a slow client, whose stream is cut.
            return;
        }
        let next = own.end_response(is_reset);
        if !matches!(next, End::Complete(_)) {
            self.in_own_response(request, &[], |exchange, pool, envoy| exchange.cut(pool, envoy));
        }
        self.follow(request, next);
    }

    /// The server of the module's request had paused for too long after this number of its events.
    pub(crate) fn own_response_stalled(&mut self, request: &mut RequestHandle<'_>, events: u32) -> Outcome {
        // The server may have done something while the event of the pause was on its way.
        let stalled = self.own.as_ref().filter(|own| own.is_stalled_at(events));
        if let Some(number) = stalled.and_then(|own| own.running()) {
            self.own_response_end(request, number, true);
            // After the next request has been sent, because its events may come first.
            if let Some(own) = &mut self.own {
                own.reset_call(number);
            }
        }
        Outcome::Taken
    }

    /// The client's connection takes no more bytes, or takes them again.
    pub(crate) fn client_is_slow(&mut self, is_slow: bool) {
        if let Some(own) = &mut self.own {
            own.client_is_slow(is_slow);
        }
    }

    fn follow(&mut self, request: &mut RequestHandle<'_>, next: End) {
        let Some(own) = &mut self.own else { return };
        match next {
            End::Complete(bytes) => own.complete(bytes),
            End::Resume(body) | End::Repeat(body) => self.pick_again(request, body),
            End::Cut(reason) => own.cut(reason),
        }
    }

    /// Has the picker choose a server for the request with this body, as for a new request.
    fn pick_again(&mut self, request: &mut RequestHandle<'_>, body: Vec<u8>) {
        let (Some(own), Some(picking)) = (&mut self.own, &self.picking) else { return };
        let failed = own.begin_again(body);
        restore_head(request, &self.head);
        self.picking = Some(Picking::again(&picking.worker, failed));
        let mut outcome = self.in_request(request, Event::Other, |exchange, pool, envoy| {
            exchange.request_headers(pool, envoy, false)
        });
        if let Outcome::Hold = outcome {
            outcome = self.in_request(request, Event::Other, |exchange, pool, envoy| {
                let size = envoy.request_body_size();
                exchange.request_body(pool, envoy, size, true)
            });
        }
        self.send_continuation(request, outcome);
    }

    /// Sends the request to the server that the picker has chosen.
    pub(super) fn send_continuation(&mut self, request: &RequestHandle<'_>, outcome: Outcome) {
        let Some(own) = &mut self.own else { return };
        match (outcome, destination(request)) {
            (Outcome::Continue, Some(server)) => {
                let body = core::mem::take(&mut own.request.body);
                own.send(request, server, body);
            }
            (Outcome::Wait, _) => {}
            (
                Outcome::Continue | Outcome::Hold | Outcome::Reply(_) | Outcome::Answered | Outcome::Taken,
                _,
            ) => {
                own.refuse();
            }
        }
    }
}

/// Restores the head from before a decision. Otherwise the next one would take its headers for the client's,
/// and its destination for that of another picker.
fn restore_head(request: &mut RequestHandle<'_>, head: &HeaderList) {
    let current = request_headers(request, HeaderList::EMPTY);
    let names = current.iter().chain(head.iter()).filter_map(|(name, _)| str::from_utf8(name).ok());
    let changed: BTreeSet<&str> = names.filter(|name| !head.values(name).eq(current.values(name))).collect();
    for name in changed {
        request.set_header(HeaderMap::Request, name, None);
        for value in head.values(name) {
            request.add_header(HeaderMap::Request, name, value);
        }
    }
}

/// The parts of a body that have arrived.
fn body_parts(request: &RequestHandle<'_>, event: Event) -> &'static [BodyPart] {
    if event == Event::Body && !request.received_is_buffered() {
        &[BodyPart::BufferedRequest, BodyPart::ReceivedRequest]
    } else {
        &[BodyPart::BufferedRequest]
    }
}

fn body_size(request: &RequestHandle<'_>, parts: &[BodyPart]) -> usize {
    parts.iter().map(|&part| request.body_size(part)).sum()
}

fn read_body(request: &RequestHandle<'_>, parts: &[BodyPart]) -> Vec<u8> {
    let mut body = Vec::with_capacity(body_size(request, parts));
    for &part in parts {
        request.for_each_piece(part, |piece| body.extend_from_slice(piece));
    }
    body
}

/// The address of the server that the picker has chosen first.
fn destination(request: &RequestHandle<'_>) -> Option<SocketAddr> {
    let mut destination = None;
    request.for_each_header(HeaderMap::Request, |name, value| {
        if name == DESTINATION.as_bytes() {
            let first = core::str::from_utf8(value).ok().and_then(|list| list.split(',').next());
            destination = first.and_then(|address| address.parse().ok());
        }
    });
    destination
}
