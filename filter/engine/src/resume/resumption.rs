//! The course of one stream through the responses of several servers.

use std::borrow::Cow;

use endpoint_picker::response::outcome::{RequestKind, ServerOutcome};
use endpoint_picker::response::reader::is_stream;

use super::client_response::ClientResponse;
use super::cut::Cut;
use super::event::Event;
use super::lines::{self, DONE, Events};
use super::plain_event::PlainEvent;
use super::request::ResumableRequest;
use super::typed_event::{TypedEvent, TypedOutput};
use crate::budget::KeptBytes;

/// Maximum number of servers that get a request one after another without serving it; the retries of the
/// shipped routes reach the same number.
const MAX_SERVERS: u32 = 4;

/// Number of servers that may die at the same text.
const MAX_DEATHS: u32 = 2;

/// Statuses with which a server refuses a request before it works on it, so that another one may serve it:
/// its queue is full, or it starts or stops. The shipped routes retry the same.
pub const REFUSALS: [u16; 2] = [429, 503];

/// The next step when a server's response has ended.
#[derive(Debug, PartialEq, Eq)]
pub enum End {
    /// The client's response ends too, after these bytes.
    Complete(Vec<u8>),
    /// A request with this body continues the response.
    Resume(Vec<u8>),
    /// The server has not responded or has refused, and another one gets the request with this body.
    Repeat(Vec<u8>),
    /// The client's stream is cut.
    Cut(Cut),
}

/// The response that is received now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReceivedResponse {
    /// Its head is awaited.
    Awaited,
    /// It passes unchanged.
    Passes,
    /// It is read event by event.
    Events,
}

/// One stream.
#[derive(Debug)]
pub struct Resumption {
    request: ResumableRequest,
    kept: KeptBytes,
    max_resumptions: u32,
    resumptions: u32,
    client: ClientResponse,
    part: ReceivedResponse,
    /// Bytes have passed that may end within an event.
    has_passed: bool,
    events: Events,
    /// The last event of the first response that had only text.
    plain: Option<PlainEvent>,
    /// Servers in a row that have not served the request.
    unserved: u32,
    /// Servers in a row whose response has begun and ended early, without new text for the client.
    deaths: u32,
    /// The reason why the stream will not be resumed.
    obstacle: Option<Cut>,
    /// The reason why the client gets nothing more.
    failure: Option<Cut>,
}

impl Resumption {
    /// The course of a request, before its first response. `kept` has room for its body.
    pub fn new(request: ResumableRequest, kept: KeptBytes, max_resumptions: u32) -> Self {
        Self {
            request,
            kept,
            max_resumptions,
            resumptions: 0,
            client: ClientResponse::default(),
            part: ReceivedResponse::Awaited,
            has_passed: false,
            events: Events::default(),
            plain: None,
            unserved: 0,
            deaths: 0,
            obstacle: None,
            failure: None,
        }
    }

    /// The body of the first request.
    pub fn body(&self) -> &[u8] {
        self.request.body()
    }

    /// The number of times that the stream has been resumed.
    pub fn resumptions(&self) -> u32 {
        self.resumptions
    }

    /// The head of a response has arrived. The client gets the head of the first one.
    ///
    /// # Errors
    /// The next step, because the response does not serve the request: the rest of it is not awaited.
    pub fn head(&mut self, status: &[u8], content_type: &[u8], is_encoded: bool) -> Result<(), End> {
        let status = core::str::from_utf8(status).ok().and_then(|status| status.parse().ok()).unwrap_or(0);
        if status == 200 && is_stream(content_type) && !is_encoded {
            self.part = ReceivedResponse::Events;
            self.unserved = 0;
            return Ok(());
        }
        let is_first = self.resumptions == 0;
        // An error of the work is the client's response, unless the client has a part of another one.
        let has_failed = ServerOutcome::of_status(status, RequestKind::Generation) == ServerOutcome::Failed;
        let may_another_serve = REFUSALS.contains(&status) || has_failed && !is_first;
        match () {
            () if is_first && (!may_another_serve || self.unserved + 1 >= MAX_SERVERS) => {
                self.pass();
                Ok(())
            }
            () if may_another_serve => Err(self.repeat()),
            () => Err(End::Cut(Cut::Refused)),
        }
    }

    /// The reason why the current response is not a part of the client's any more.
    pub fn failure(&self) -> Option<Cut> {
        self.failure
    }

    /// The event that reports a cut for this reason to the client; empty if its response has no such events.
    pub fn error_event(&self, cut: Cut) -> Vec<u8> {
        if self.has_passed {
            return Vec::new();
        }
        let message =
            format!("the model server failed, and no other continued the response: {}", cut.as_str());
        self.request.api().error(&message, self.client.sequence_number())
    }

    /// A chunk of a response has arrived. Returns the bytes for the client, nearly always the chunk itself.
    pub fn chunk<'c>(&mut self, chunk: &'c [u8]) -> Cow<'c, [u8]> {
        if self.failure.is_some() {
            return Cow::Borrowed(&[]);
        }
        if self.part != ReceivedResponse::Events || self.events.partial() == 0 && self.is_plain(chunk) {
            return Cow::Borrowed(chunk);
        }
        let mut out = Vec::with_capacity(chunk.len());
        let mut events = core::mem::take(&mut self.events);
        events.push(chunk, |event| self.event(event, &mut out));
        let is_too_long = events.partial() > self.kept.limit();
        if is_too_long {
            self.give_up(Cut::UnreadableEvent);
        }
        if self.failure.is_some() {
            events.take_partial();
        } else if is_too_long || (self.obstacle.is_some() && self.resumptions == 0) {
            // Nothing is read of the response any more.
            out.extend(events.take_partial());
            self.pass();
        }
        self.events = events;
        Cow::Owned(out)
    }

    /// The rest of the response passes unchanged.
    fn pass(&mut self) {
        (self.part, self.has_passed) = (ReceivedResponse::Passes, true);
    }

    /// Whether this is one event of the first response that has only text. Its text is kept.
    fn is_plain(&mut self, event: &[u8]) -> bool {
        let Some(text) = self.plain.as_ref().and_then(|plain| plain.text_of(event)) else { return false };
        if self.client.add_plain(text).is_err() {
            return false;
        }
        self.keep(text.len());
        true
    }

    /// The client has got this many bytes of output.
    fn keep(&mut self, bytes: usize) {
        self.deaths = 0;
        if !self.kept.grow(bytes) {
            self.give_up(Cut::TooLarge);
        }
    }

    /// The stream will not be resumed after the current response.
    fn give_up(&mut self, cut: Cut) {
        if self.client.is_repeating() {
            self.failure.get_or_insert(cut);
        }
        self.obstacle.get_or_insert(cut);
        self.plain = None;
        self.client.forget_output();
        self.request.forget_body();
        self.kept.release();
    }

    fn event(&mut self, event: &[u8], out: &mut Vec<u8>) {
        if self.failure.is_some() {
            return;
        }
        if self.obstacle.is_some() && self.resumptions == 0 {
            return out.extend(event);
        }
        if self.is_plain(event) {
            return out.extend(event);
        }
        let Some(data) = lines::data(event) else { return out.extend(event) };
        if data == DONE.as_bytes() {
            if self.client.is_repeating() {
                return self.give_up(Cut::DifferentOutput);
            }
            self.client.finish();
            return out.extend(event);
        }
        let read = if self.request.api().has_types() {
            self.typed_event(event, data, out)
        } else {
            self.untyped_event(event, data, out)
        };
        match read {
            Ok(0) => {}
            Ok(bytes) if self.obstacle.is_none() => self.keep(bytes),
            Ok(_) => {}
            Err(cut) => self.give_up(cut),
        }
    }

    /// An event of a chat or completion. Returns the bytes that are kept of it, or the reason why the stream
    /// will not be resumed.
    fn untyped_event(&mut self, event: &[u8], data: &[u8], out: &mut Vec<u8>) -> Result<usize, Cut> {
        let Some(read) = Event::read(data) else {
            self.pass_unread(event, out);
            return Err(Cut::UnreadableEvent);
        };
        let is_other = read.has_other_output();
        if is_other && self.client.is_repeating() {
            return Err(Cut::OtherOutput);
        }
        let new = self.client.add(event, data, &read, out).map_err(|_| Cut::DifferentOutput)?;
        if is_other {
            return Err(Cut::OtherOutput);
        }
        if new > 0 && self.resumptions == 0 && self.obstacle.is_none() {
            self.plain = PlainEvent::of(event, &read);
        }
        Ok(new)
    }

    /// The same for an event with a type.
    fn typed_event(&mut self, event: &[u8], data: &[u8], out: &mut Vec<u8>) -> Result<usize, Cut> {
        let read = TypedEvent::read(data);
        let Some((read, output)) = read.and_then(|read| read.output().map(|output| (read, output))) else {
            self.pass_unread(event, out);
            return Err(Cut::UnreadableEvent);
        };
        let is_other = output == TypedOutput::Other;
        if is_other && self.client.is_repeating() {
            return Err(Cut::OtherOutput);
        }
        let new =
            self.client.add_typed(event, data, &read, &output, out).map_err(|_| Cut::DifferentOutput)?;
        if is_other { Err(Cut::OtherOutput) } else { Ok(new) }
    }

    /// An event of an unknown form passes, unless it could be one that the client has.
    fn pass_unread(&self, event: &[u8], out: &mut Vec<u8>) {
        if !self.client.is_repeating() {
            out.extend(event);
        }
    }

    /// The response has ended: with a reset, or in the server's own way.
    pub fn end(&mut self, is_reset: bool) -> End {
        if let Some(cut) = self.failure {
            return End::Cut(cut);
        }
        match core::mem::replace(&mut self.part, ReceivedResponse::Awaited) {
            ReceivedResponse::Awaited => return self.repeat(),
            ReceivedResponse::Passes if is_reset => return End::Cut(self.obstacle.unwrap_or(Cut::NotEvents)),
            ReceivedResponse::Passes => return End::Complete(Vec::new()),
            ReceivedResponse::Events => {}
        }
        let held = self.events.take_partial();
        match () {
            () if self.client.is_done() => End::Complete(Vec::new()),
            // The server has ended the response as it wanted to.
            () if self.obstacle.is_some() && !is_reset => End::Complete(held),
            () if self.obstacle.is_some() => End::Cut(self.obstacle.unwrap_or(Cut::OtherOutput)),
            () => self.next(),
        }
    }

    /// Another server gets the request that a server has not served.
    fn repeat(&mut self) -> End {
        self.unserved += 1;
        if self.unserved >= MAX_SERVERS {
            return End::Cut(if self.resumptions == 0 { Cut::NotSent } else { Cut::Refused });
        }
        let (text, tokens) = self.client.text_before(self.request.api());
        self.request.continuation(text, tokens).map_or(End::Cut(Cut::UnreadableEvent), End::Repeat)
    }

    fn next(&mut self) -> End {
        let api = self.request.api();
        let continues_text = self.request.continues_text() && self.client.has_only_text();
        let is_within_limit =
            self.request.max_tokens().is_none_or(|limit| !continues_text || self.client.tokens(api) < limit);
        let lacks_usage = self.request.has_usage() && !self.client.has_usage();
        match () {
            () if is_within_limit && !self.client.is_whole() => {}
            () if !lacks_usage => return End::Complete(self.client.last_events(api)),
            () if continues_text => return End::Cut(Cut::UsageLost),
            () => {}
        }
        if self.resumptions >= self.max_resumptions {
            return End::Cut(Cut::TooManyResumptions);
        }
        self.deaths += 1;
        if self.deaths >= MAX_DEATHS {
            return End::Cut(Cut::TwoServersDied);
        }
        self.resumptions += 1;
        self.plain = None;
        if continues_text {
            self.client.continue_text(api);
        } else {
            self.client.generate_again(api);
        }
        let (text, tokens) = self.client.text_before(api);
        self.request.continuation(text, tokens).map_or(End::Cut(Cut::UnreadableEvent), End::Resume)
    }
}
