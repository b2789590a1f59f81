//! A request that the module sends itself, in place of Envoy's router, so that another server can continue
//! its stream.

use core::net::SocketAddr;
use std::borrow::Cow;
use std::collections::VecDeque;
use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use endpoint_picker_engine::budget::KeptBytes;
use endpoint_picker_engine::proxy::headers::DESTINATION;
use endpoint_picker_engine::resume::{
    Cut, End, ResumableRequest, Resumption, StreamApi, Unresumable, add_seed,
};

use super::pauses::PacedEvents;
use super::resumer::{KeptBody, Resumer};
use crate::abi::{HeaderMap, HeaderPairs, LocalReply, RequestHandle};

/// Response code details when a stream is cut.
const CUT_DETAILS: &str = "endpoint_picker_stream_not_resumed";

/// Request headers that belong to one connection or one body. Without `accept-encoding`, servers do not
/// compress the text, which could not be read.
const NOT_SENT: [&str; 6] =
    ["content-length", "transfer-encoding", "connection", "expect", "accept-encoding", DESTINATION];

/// Response headers that belong to one connection or one body.
const NOT_PASSED: [&str; 4] = ["content-length", "transfer-encoding", "connection", "keep-alive"];

/// The header that Envoy adds to each response of a server, and not to its own.
const OF_SERVER: &[u8] = b"x-envoy-upstream-service-time";

/// The header that Envoy adds to its own response when a limit of the cluster kept the request from the
/// server.
const OVERLOADED: &[u8] = b"x-envoy-overloaded";

/// A call to Envoy inside which Envoy may call other hooks of the request.
#[derive(Debug)]
pub(crate) enum OwnAction {
    /// Sends a request.
    Call { cluster: String, head: HeaderPairs, body: Vec<u8> },
    /// Resets the request of this number.
    ResetCall(u64),
    /// Sends the head of the response to the client.
    Head(HeaderPairs),
    /// Sends a chunk of the response to the client.
    Chunk { bytes: Vec<u8>, is_last: bool },
    /// Sends a response of the module.
    Reply(LocalReply),
    /// Resets the client's stream, with these details.
    Reset(&'static str),
}

/// The request that the module has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SentCall {
    /// None is awaited: the picker has yet to decide, or the client has the end of the response.
    None,
    /// Its number is not known yet: Envoy may call hooks before it returns the number.
    Starting,
    Running(u64),
}

/// One request of the module and its response, as the picker sees them.
#[derive(Debug, Default)]
pub(crate) struct OwnRequest {
    /// The body for the picker, which may replace it.
    pub(super) body: Vec<u8>,
    /// The server to which it was sent.
    pub(super) server: Option<SocketAddr>,
    /// The head of the response.
    pub(super) head: HeaderPairs,
    /// Response code details, as the router has them.
    pub(super) details: &'static str,
    /// The picker's chunk in place of the one that has arrived.
    pub(super) replacement: Option<Vec<u8>>,
}

impl OwnRequest {
    /// Sets a header of the response and removes its old values; `None` only removes them.
    pub(super) fn set_header(&mut self, name: &str, value: Option<&str>) {
        self.head.retain(|(other, _)| other != name.as_bytes());
        self.head.extend(value.map(|value| (name.as_bytes().to_vec(), value.as_bytes().to_vec())));
    }
}

/// One client's request that the module sends itself, again if its stream is cut.
#[derive(Debug)]
pub(crate) struct OwnStream {
    resumer: Arc<Resumer>,
    course: Resumption,
    call: SentCall,
    /// The current request.
    pub(super) request: OwnRequest,
    has_sent_head: bool,
    /// Number of Envoy's buffers for the client that are full: of the connection and, with HTTP/2, of the
    /// stream.
    full_buffers: u32,
    /// Bytes sent since a buffer is full; 0 while none is.
    unread: KeptBytes,
    actions: VecDeque<OwnAction>,
    /// Servers that have failed the client's request.
    failed: Vec<SocketAddr>,
    /// The seed that the picker has added to the request.
    seed: Option<u32>,
    /// Events of responses; `None` if pauses are not limited.
    paced: Option<PacedEvents>,
}

/// The API of a request whose stream may be resumed.
pub(super) fn stream_api(request: &RequestHandle<'_>) -> Option<StreamApi> {
    let (mut method, mut path) = (Vec::<u8>::new(), Vec::<u8>::new());
    request.for_each_header(HeaderMap::Request, |name, value| match name {
        b":method" => method.extend_from_slice(value),
        b":path" => path.extend_from_slice(value),
        _ => {}
    });
    StreamApi::of(&method, &path)
}

/// A seed that no client can foresee. Engines read seeds as signed numbers.
fn random_seed() -> u32 {
    let random = RandomState::new().hash_one(());
    u32::try_from(random >> 33).unwrap_or_default()
}

impl OwnStream {
    /// A request with this body.
    ///
    /// # Errors
    /// The reason why it cannot be resumed.
    pub(super) fn new(resumer: &Arc<Resumer>, api: StreamApi, body: KeptBody) -> Result<Self, Unresumable> {
        let KeptBody { bytes, mut kept } = body;
        let mut request = ResumableRequest::read(api, bytes)?;
        let seed = (resumer.config.add_seeds && request.needs_seed()).then(random_seed);
        let added = seed.map_or(0, |seed| request.set_seed(seed));
        if !kept.grow(added) {
            return Err(Unresumable::TooLarge);
        }
        let course = Resumption::new(request, kept, resumer.config.max_resumptions);
        resumer.metrics.count_resumable();
        Ok(Self {
            resumer: Arc::clone(resumer),
            course,
            call: SentCall::None,
            request: OwnRequest::default(),
            has_sent_head: false,
            full_buffers: 0,
            unread: KeptBytes::new(&resumer.unread),
            actions: VecDeque::new(),
            failed: Vec::new(),
            seed,
            paced: None,
        })
    }

    /// The first request's body with the seed that the picker has added.
    pub(super) fn with_seed(&self, mut body: Vec<u8>) -> Vec<u8> {
        if let Some(seed) = self.seed {
            add_seed(&mut body, seed);
        }
        body
    }

    /// Limits the pauses of responses, if the setting does.
    pub(super) fn limit_pauses(&mut self, request: &RequestHandle<'_>) {
        self.paced = self.resumer.pauses.limit(request);
    }

    /// The next call to Envoy that a hook has left.
    pub(crate) fn next_action(&mut self) -> Option<OwnAction> {
        self.actions.pop_front()
    }

    /// Sends the request, with the client's head and this body, to this server.
    pub(super) fn send(&mut self, request: &RequestHandle<'_>, server: SocketAddr, body: Vec<u8>) {
        let mut head = HeaderPairs::new();
        request.for_each_header(HeaderMap::Request, |name, value| {
            if !NOT_SENT.iter().any(|other| other.as_bytes() == name) {
                head.push((name.to_vec(), value.to_vec()));
            }
        });
        head.push((DESTINATION.into(), server.to_string().into_bytes()));
        head.push((b"content-length".to_vec(), body.len().to_string().into_bytes()));
        self.request = OwnRequest { server: Some(server), ..OwnRequest::default() };
        self.call = SentCall::Starting;
        self.progressed();
        self.actions.push_back(OwnAction::Call { cluster: self.resumer.config.cluster.clone(), head, body });
    }

    /// Envoy has sent the request, which has this number, or does not send it.
    pub(crate) fn called(&mut self, number: Option<u64>) {
        if self.call != SentCall::Starting {
            return;
        }
        match number {
            Some(number) => self.call = SentCall::Running(number),
            None => self.cut(if self.has_sent_head { Cut::Refused } else { Cut::NotSent }),
        }
    }

    /// Whether this is the number of the current request, and not of an earlier one.
    pub(super) fn is_current(&mut self, number: u64) -> bool {
        if self.call == SentCall::Starting {
            self.call = SentCall::Running(number);
        }
        let is_current = self.call == SentCall::Running(number);
        if is_current {
            self.progressed();
        }
        is_current
    }

    /// Whether the server has done nothing since this number of events.
    pub(super) fn is_stalled_at(&self, events: u32) -> bool {
        self.paced.as_ref().is_some_and(|paced| paced.is(events))
    }

    /// A server has done something, so its pause is over.
    fn progressed(&self) {
        if let Some(paced) = &self.paced {
            paced.add();
        }
    }

    /// The number of the current request, if it has been sent.
    pub(super) fn running(&self) -> Option<u64> {
        match self.call {
            SentCall::Running(number) => Some(number),
            SentCall::None | SentCall::Starting => None,
        }
    }

    /// Keeps the head of a response for the picker. False if it is a response of Envoy, because the server
    /// has sent none.
    pub(super) fn keep_head<'h>(&mut self, headers: impl Iterator<Item = (&'h [u8], &'h [u8])>) -> bool {
        self.request.head = headers.map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
        let has = |name: &[u8]| self.request.head.iter().any(|(other, _)| other == name);
        let is_of_server = has(OF_SERVER);
        self.request.details = match () {
            () if is_of_server => "via_upstream",
            () if has(OVERLOADED) => "upstream_reset_before_response_started{overflow}",
            () => "upstream_reset_before_response_started{connection_failure}",
        };
        is_of_server
    }

    /// The response begins with the head that was kept. True if it resumes the client's stream.
    ///
    /// # Errors
    /// The next step, because the response does not serve the request.
    pub(super) fn begin_response(&mut self) -> Result<bool, End> {
        let head = core::mem::take(&mut self.request.head);
        let value = |name: &[u8]| head.iter().find(|(other, _)| other == name).map(|(_, value)| &**value);
        let is_encoded = value(b"content-encoding").is_some_and(|encoding| encoding != b"identity");
        let (status, content_type) = (value(b":status"), value(b"content-type"));
        self.course
            .head(status.unwrap_or_default(), content_type.unwrap_or_default(), is_encoded)
            .inspect_err(|_| self.call = SentCall::None)?;
        if self.has_sent_head {
            self.resumer.metrics.count_resumption();
            return Ok(true);
        }
        self.has_sent_head = true;
        let passes = |name: &[u8]| !NOT_PASSED.iter().any(|other| other.as_bytes() == name);
        let head = head.into_iter().filter(|(name, _)| passes(name)).collect();
        self.actions.push_back(OwnAction::Head(head));
        Ok(false)
    }

    /// A chunk of a response has arrived. True if the client gets it as it is; otherwise the bytes for the
    /// client are among the actions.
    pub(super) fn pass_chunk(&mut self, chunk: &[u8]) -> bool {
        let replacement = self.request.replacement.take();
        let bytes = self.course.chunk(replacement.as_deref().unwrap_or(chunk));
        if let Some(cut) = self.course.failure() {
            self.cut(cut);
            return false;
        }
        if self.full_buffers > 0 && !self.unread.grow(bytes.len()) {
            self.cut(Cut::SlowClient);
            return false;
        }
        let bytes = match (bytes, &replacement) {
            (Cow::Borrowed(_), None) => return true,
            (bytes, _) => bytes.into_owned(),
        };
        if !bytes.is_empty() {
            self.actions.push_back(OwnAction::Chunk { bytes, is_last: false });
        }
        false
    }

    /// The response has ended, with a reset or without. Returns the next step.
    pub(super) fn end_response(&mut self, is_reset: bool) -> End {
        self.call = SentCall::None;
        self.course.end(is_reset)
    }

    /// Another server gets the request, with this body. Returns the servers that have failed it.
    pub(super) fn begin_again(&mut self, body: Vec<u8>) -> Vec<SocketAddr> {
        let failed = core::mem::replace(&mut self.request, OwnRequest { body, ..OwnRequest::default() });
        self.failed.extend(failed.server);
        self.failed.clone()
    }

    /// The client's response ends after these bytes.
    pub(super) fn complete(&mut self, bytes: Vec<u8>) {
        self.paced = None;
        self.actions.push_back(OwnAction::Chunk { bytes, is_last: true });
    }

    /// The number of times that the stream has been resumed.
    pub(super) fn resumptions(&self) -> u32 {
        self.course.resumptions()
    }

    /// Resets the request of this number, whose response is not awaited any more.
    pub(super) fn reset_call(&mut self, number: u64) {
        self.actions.push_back(OwnAction::ResetCall(number));
    }

    /// The picker has not chosen a server for a continuation.
    pub(super) fn refuse(&mut self) {
        self.cut(if self.has_sent_head { Cut::Refused } else { Cut::NotSent });
    }

    /// A buffer for the client is full, or takes bytes again.
    pub(super) fn client_is_slow(&mut self, is_slow: bool) {
        let full = self.full_buffers;
        self.full_buffers = if is_slow { full.saturating_add(1) } else { full.saturating_sub(1) };
        if self.full_buffers == 0 {
            self.unread.release();
        }
    }

    /// Cuts the client's stream for this reason.
    pub(super) fn cut(&mut self, reason: Cut) {
        self.resumer.metrics.count_cut(reason);
        self.end_early();
        let event = if self.has_sent_head { self.course.error_event(reason) } else { Vec::new() };
        if !event.is_empty() {
            self.actions.push_front(OwnAction::Chunk { bytes: event, is_last: false });
        }
    }

    /// Ends the client's stream: by a reset, or if its response has not begun, by an error.
    pub(super) fn end_early(&mut self) {
        self.call = SentCall::None;
        self.paced = None;
        self.actions.clear();
        self.actions.push_back(if self.has_sent_head {
            OwnAction::Reset(CUT_DETAILS)
        } else {
            OwnAction::Reply(LocalReply {
                status: 503,
                headers: Vec::new(),
                body: Vec::new(),
                details: CUT_DETAILS,
            })
        });
    }
}
