//! The course of one stream through the responses of several servers.

use std::borrow::Cow;

use endpoint_picker::response::outcome::{RequestKind, ServerOutcome};
use endpoint_picker::response::reader::is_stream;

use super::client_response::ClientResponse;
use super::event::{Event, OtherOutput};
use super::lines::{self, DONE, Events};
use super::plain_event::PlainEvent;
use super::request::ResumableRequest;
use crate::budget::KeptBytes;

/// Why a client's stream is cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// The response is not a plain stream of events.
    NotEvents,
    /// An event is of an unknown form, or larger than a stream may keep.
    UnreadableEvent,
    /// A tool call has begun.
    ToolCall,
    /// The server separates reasoning from text, and would begin with reasoning again.
    Reasoning,
    /// Other output than text.
    OtherOutput,
    /// Request and text are larger than a stream may keep, or all streams together.
    TooLarge,
    /// The text is complete, and the usage that the client awaits is lost.
    UsageLost,
    /// It has been resumed as often as is allowed.
    TooManyResumptions,
    /// Two servers have died at the same text, which may be the cause.
    TwoServersDied,
    /// The picker, or the servers that were to continue the response, refused.
    Refused,
    /// The client reads so slowly that too much is held for it.
    SlowClient,
    /// No server has responded.
    NotSent,
}

impl Cut {
    /// The value of the metric's label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NotEvents => "not_events",
            Self::UnreadableEvent => "unreadable_event",
            Self::ToolCall => "tool_call",
            Self::Reasoning => "reasoning",
            Self::OtherOutput => "other_output",
            Self::TooLarge => "too_large",
            Self::UsageLost => "usage_lost",
            Self::TooManyResumptions => "too_many_resumptions",
            Self::TwoServersDied => "two_servers_died",
            Self::Refused => "refused",
            Self::SlowClient => "slow_client",
            Self::NotSent => "not_sent",
        }
    }

    /// All reasons, in the order of their declaration.
    pub(super) const ALL: [Self; 12] = [
        Self::NotEvents,
        Self::UnreadableEvent,
        Self::ToolCall,
        Self::Reasoning,
        Self::OtherOutput,
        Self::TooLarge,
        Self::UsageLost,
        Self::TooManyResumptions,
        Self::TwoServersDied,
        Self::Refused,
        Self::SlowClient,
        Self::NotSent,
    ];
}

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
    events: Events,
    /// The last event of the first response that had only text.
    plain: Option<PlainEvent>,
    /// Servers in a row that have not served the request.
    unserved: u32,
    /// Servers in a row whose response has begun and ended early, without new text for the client.
    deaths: u32,
    /// The reason why the stream will not be resumed.
    obstacle: Option<Cut>,
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
            events: Events::default(),
            plain: None,
            unserved: 0,
            deaths: 0,
            obstacle: None,
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
                self.part = ReceivedResponse::Passes;
                Ok(())
            }
            () if may_another_serve => Err(self.repeat()),
            () => Err(End::Cut(Cut::Refused)),
        }
    }

    /// A chunk of a response has arrived. Returns the bytes for the client, nearly always the chunk itself.
    pub fn chunk<'c>(&mut self, chunk: &'c [u8]) -> Cow<'c, [u8]> {
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
        if is_too_long || (self.obstacle.is_some() && self.resumptions == 0) {
            // Nothing is read of the response any more.
            out.extend(events.take_partial());
            self.part = ReceivedResponse::Passes;
        }
        self.events = events;
        Cow::Owned(out)
    }

    /// Whether this is one event of the first response that has only text. Its text is kept.
    fn is_plain(&mut self, event: &[u8]) -> bool {
        let Some(text) = self.plain.as_ref().and_then(|plain| plain.text_of(event)) else { return false };
        self.client.add_plain(text);
        self.keep(text);
        true
    }

    fn keep(&mut self, text: &str) {
        self.deaths = 0;
        if self.kept.grow(text.len()) {
            self.client.keep(text);
        } else {
            self.give_up(Cut::TooLarge);
        }
    }

    fn give_up(&mut self, cut: Cut) {
        self.obstacle.get_or_insert(cut);
        self.plain = None;
        self.client.forget_text();
        self.request.forget_body();
        self.kept.release();
    }

    fn event(&mut self, event: &[u8], out: &mut Vec<u8>) {
        if self.obstacle.is_some() && self.resumptions == 0 {
            return out.extend(event);
        }
        if self.is_plain(event) {
            return out.extend(event);
        }
        let Some(data) = lines::data(event) else { return out.extend(event) };
        if data == DONE.as_bytes() {
            self.client.finish();
            return out.extend(event);
        }
        let Some(read) = Event::read(data) else {
            self.give_up(Cut::UnreadableEvent);
            return out.extend(event);
        };
        let text = self.client.add(event, data, &read, out);
        if let Some(other) = read.other_output() {
            return self.give_up(match other {
                OtherOutput::ToolCall => Cut::ToolCall,
                OtherOutput::Reasoning => Cut::Reasoning,
                OtherOutput::Error | OtherOutput::Other => Cut::OtherOutput,
            });
        }
        if self.obstacle.is_none() && !text.is_empty() {
            if self.resumptions == 0 {
                self.plain = PlainEvent::of(event, &read);
            }
            self.keep(text);
        }
    }

    /// The response has ended: with a reset, or in the server's own way.
    pub fn end(&mut self, is_reset: bool) -> End {
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
        let (text, tokens) = self.client.text(self.request.api());
        self.request.continuation(text, tokens).map_or(End::Cut(Cut::UnreadableEvent), End::Repeat)
    }

    fn next(&mut self) -> End {
        let api = self.request.api();
        let (text, tokens) = self.client.text(api);
        let is_at_limit = self.request.max_tokens().is_some_and(|limit| tokens >= limit);
        if self.client.is_whole_text() || is_at_limit {
            return if self.request.has_usage() && !self.client.has_usage() {
                End::Cut(Cut::UsageLost)
            } else {
                End::Complete(self.client.last_events(api))
            };
        }
        if self.resumptions >= self.max_resumptions {
            return End::Cut(Cut::TooManyResumptions);
        }
        self.deaths += 1;
        if self.deaths >= MAX_DEATHS {
            return End::Cut(Cut::TwoServersDied);
        }
        let Ok(body) = self.request.continuation(text, tokens) else { return End::Cut(Cut::UnreadableEvent) };
        self.resumptions += 1;
        self.plain = None;
        self.client.begin_continuation(api);
        End::Resume(body)
    }
}
