//! The filter that resumes streams: it sends each resumable request itself, to a listener with the picker, and again when the response is cut.

use std::collections::VecDeque;
use std::sync::Arc;

use endpoint_picker_engine::proxy::headers::RESUMPTION;
use endpoint_picker_engine::resume::{
    Budget, Cut, End, ResumableRequest, ResumeConfig, ResumeMetrics, Resumption, StreamApi, Unresumable,
};

use super::filter_pool::define_metrics;
use crate::abi::{BodyPart, ConfigHandle, HeaderMap, HeaderPairs, LocalReply, RequestHandle};
use crate::agent::wakes::{self, WakeSubscription};
use crate::metrics::flusher::Flusher;
use crate::metrics::{self, PoolResumptions, Sink};
use crate::process::subscribers::Subscription;

/// The name of this filter in Envoy's configuration. Any other name is the picker's.
pub(crate) const RESUMER: &[u8] = b"resume-streams";

/// The namespace of the number of resumptions, and its key.
const METADATA: (&str, &str) = ("endpoint-picker", "resumptions");

/// Response code details when a stream is cut.
const CUT_DETAILS: &str = "endpoint_picker_stream_not_resumed";

/// Bytes that Envoy may buffer above the limit of a request: room for the chunk with which a body exceeds it.
const BUFFER_MARGIN: u64 = 1 << 20;

/// Request headers that belong to one connection or one body, and the header that only this filter sets. Without
/// `accept-encoding`, servers do not compress the text, which could not be read.
const NOT_SENT: [&str; 6] =
    ["content-length", "transfer-encoding", "connection", "expect", "accept-encoding", RESUMPTION];

/// Response headers that belong to one connection or one body.
const NOT_PASSED: [&str; 4] = ["content-length", "transfer-encoding", "connection", "keep-alive"];

/// The configuration of this filter in use.
#[derive(Debug)]
pub(crate) struct ResumerConfig {
    shared: Arc<Resumer>,
    /// Has the reports on the pool include the counters.
    _counted: Subscription<PoolResumptions>,
    flusher: Arc<Flusher>,
    _wakes: WakeSubscription,
}

#[derive(Debug)]
struct Resumer {
    config: ResumeConfig,
    budget: Arc<Budget>,
    metrics: Arc<ResumeMetrics<Sink>>,
}

impl ResumerConfig {
    /// Takes a configuration into use. The error is the reason of a refusal.
    pub(crate) fn new(handle: &mut ConfigHandle<'_>, json: &[u8]) -> Result<Self, String> {
        let config = ResumeConfig::parse(json).map_err(|error| error.to_string())?;
        let scheduler = handle.scheduler().ok_or("Envoy has no scheduler for the configuration")?;
        define_metrics();
        let shared = Arc::new(Resumer {
            budget: Budget::new(config.max_kept_bytes, config.max_kept_bytes_in_all),
            metrics: Arc::new(ResumeMetrics::new(&Sink::new(), &config.pool)),
            config,
        });
        let wakes = wakes::subscribe(Box::new(move || scheduler.commit(0)));
        let counted = metrics::report_resumptions(&shared.config.pool, &shared.metrics);
        Ok(Self { shared, _counted: counted, flusher: Flusher::new(handle), _wakes: wakes })
    }

    /// A wake has reached the main thread.
    pub(crate) fn on_scheduled(&self, handle: &mut ConfigHandle<'_>) {
        self.flusher.tick(handle);
    }
}

/// Next step of Envoy for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hold {
    /// The request passes to the next filter.
    Pass,
    /// Envoy holds it, with the part of the body that has arrived.
    Body,
    /// The module has taken the request; the next filter does not get it.
    Taken,
}

/// A call to Envoy inside which Envoy may call other hooks of the request.
#[derive(Debug)]
pub(crate) enum Action {
    /// Sends a request.
    Call { cluster: String, head: HeaderPairs, body: Vec<u8> },
    /// Sends the head of the response to the client.
    Head(HeaderPairs),
    /// Sends a chunk of the response to the client.
    Chunk { bytes: Vec<u8>, is_last: bool },
    /// Sends a response of the module.
    Reply(LocalReply),
    /// Resets the client's stream, with these details.
    Reset(&'static str),
}

#[derive(Debug)]
enum State {
    /// The request's body is awaited.
    Reading(StreamApi),
    /// The request passes to the next filter.
    Passing,
    /// The filter sends the request.
    Active(Box<Resumption>),
    /// The client has the end of the response.
    Over,
}

/// The request that the filter has sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Call {
    None,
    /// Its number is not known yet: Envoy may call hooks before it returns the number.
    Starting,
    Running(u64),
}

/// One request.
#[derive(Debug)]
pub(crate) struct ResumedStream {
    resumer: Arc<Resumer>,
    state: State,
    head: HeaderPairs,
    call: Call,
    has_sent_head: bool,
    /// Bytes sent since the client's connection takes no more; `None` while it does.
    unread: Option<usize>,
    actions: VecDeque<Action>,
}

impl ResumedStream {
    /// A request before its head.
    pub(crate) fn new(config: &ResumerConfig) -> Self {
        Self {
            resumer: Arc::clone(&config.shared),
            state: State::Passing,
            head: Vec::new(),
            call: Call::None,
            has_sent_head: false,
            unread: None,
            actions: VecDeque::new(),
        }
    }

    /// The next call to Envoy that a hook has left.
    pub(crate) fn next_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// The request's head has arrived.
    pub(crate) fn request_headers(&mut self, request: &mut RequestHandle<'_>, end_of_stream: bool) -> Hold {
        if end_of_stream {
            return Hold::Pass;
        }
        let (mut method, mut path) = (Vec::<u8>::new(), Vec::<u8>::new());
        request.for_each_header(HeaderMap::Request, |name, value| match name {
            b":method" => method.extend_from_slice(value),
            b":path" => path.extend_from_slice(value),
            _ => {}
        });
        let Some(api) = StreamApi::of(&method, &path) else { return Hold::Pass };
        let mut head = HeaderPairs::new();
        request.for_each_header(HeaderMap::Request, |name, value| {
            if !NOT_SENT.iter().any(|other| other.as_bytes() == name) {
                head.push((name.to_vec(), value.to_vec()));
            }
        });
        let max_bytes = u64::try_from(self.resumer.config.max_kept_bytes).unwrap_or(u64::MAX);
        request.raise_buffer_limit(max_bytes.saturating_add(BUFFER_MARGIN));
        self.head = head;
        self.state = State::Reading(api);
        Hold::Body
    }

    /// A chunk of the request's body has arrived, or the end of the request; `has_chunk` for a chunk.
    pub(crate) fn request_body(
        &mut self,
        request: &mut RequestHandle<'_>,
        has_chunk: bool,
        is_whole: bool,
    ) -> Hold {
        let State::Reading(api) = self.state else {
            return if matches!(self.state, State::Passing) { Hold::Pass } else { Hold::Taken };
        };
        let parts = [BodyPart::BufferedRequest, BodyPart::ReceivedRequest];
        let has_both = has_chunk && !request.received_is_buffered();
        let parts = if has_both { &parts[..] } else { &parts[..1] };
        let size: usize = parts.iter().map(|&part| request.body_size(part)).sum();
        if size > self.resumer.config.max_kept_bytes {
            return self.pass(Unresumable::TooLarge);
        }
        if !is_whole {
            return Hold::Body;
        }
        let mut body = Vec::with_capacity(size);
        for &part in parts {
            request.for_each_piece(part, |chunk| body.extend_from_slice(chunk));
        }
        let Resumer { budget, config, .. } = &*self.resumer;
        let resumption = ResumableRequest::read(api, body)
            .and_then(|request| Resumption::new(request, budget, config.max_resumptions));
        let resumption = match resumption {
            Ok(resumption) => resumption,
            Err(reason) => return self.pass(reason),
        };
        for &part in parts {
            request.replace_body(part, &[]);
        }
        self.resumer.metrics.count_resumable();
        self.call(resumption.body().to_vec(), 0);
        self.state = State::Active(Box::new(resumption));
        Hold::Taken
    }

    fn pass(&mut self, reason: Unresumable) -> Hold {
        self.resumer.metrics.count_unresumable(reason);
        self.head = HeaderPairs::new();
        self.state = State::Passing;
        Hold::Pass
    }

    /// Sends the request with this body.
    fn call(&mut self, body: Vec<u8>, resumption: u32) {
        let mut head = self.head.clone();
        head.push((b"content-length".to_vec(), body.len().to_string().into_bytes()));
        head.push((RESUMPTION.into(), resumption.to_string().into_bytes()));
        self.call = Call::Starting;
        self.actions.push_back(Action::Call { cluster: self.resumer.config.cluster.clone(), head, body });
    }

    /// Envoy has sent the request, which has this number, or does not send it.
    pub(crate) fn called(&mut self, number: Option<u64>) {
        if self.call != Call::Starting {
            return;
        }
        match number {
            Some(number) => self.call = Call::Running(number),
            None => self.cut(if self.has_sent_head { Cut::Refused } else { Cut::NotSent }),
        }
    }

    /// The stream whose response this is an event of; `None` for the event of an earlier request.
    fn active(&mut self, number: u64) -> Option<&mut Resumption> {
        if self.call == Call::Starting {
            self.call = Call::Running(number);
        }
        match &mut self.state {
            State::Active(resumption) if self.call == Call::Running(number) => Some(resumption),
            State::Active(_) | State::Reading(_) | State::Passing | State::Over => None,
        }
    }

    /// The head of a response has arrived.
    pub(crate) fn response_head<'h>(
        &mut self,
        number: u64,
        headers: impl Iterator<Item = (&'h [u8], &'h [u8])> + Clone,
    ) {
        let Some(resumption) = self.active(number) else { return };
        let value = |name: &[u8]| headers.clone().find(|(other, _)| *other == name).map(|(_, value)| value);
        let is_encoded = value(b"content-encoding").is_some_and(|encoding| encoding != b"identity");
        let status = value(b":status").unwrap_or_default();
        let fits = resumption.head(status, value(b"content-type").unwrap_or_default(), is_encoded);
        if !fits {
            return self.cut(Cut::Refused);
        }
        if !self.has_sent_head {
            self.has_sent_head = true;
            let passes = |name: &[u8]| !NOT_PASSED.iter().any(|other| other.as_bytes() == name);
            let head = headers.filter(|(name, _)| passes(name));
            let head = head.map(|(name, value)| (name.to_vec(), value.to_vec())).collect();
            self.actions.push_back(Action::Head(head));
        }
    }

    /// A chunk of a response has arrived.
    pub(crate) fn response_chunk(&mut self, number: u64, chunk: &[u8]) {
        let Some(resumption) = self.active(number) else { return };
        let bytes = resumption.chunk(chunk);
        if let Some(unread) = &mut self.unread {
            *unread = unread.saturating_add(bytes.len());
            if *unread > self.resumer.config.max_unread_bytes {
                return self.cut(Cut::SlowClient);
            }
        }
        if !bytes.is_empty() {
            self.actions.push_back(Action::Chunk { bytes, is_last: false });
        }
    }

    /// A response has ended, with a reset or without.
    pub(crate) fn response_end(&mut self, request: &mut RequestHandle<'_>, number: u64, is_reset: bool) {
        let Some(resumption) = self.active(number) else { return };
        let (end, count) = (resumption.end(is_reset), resumption.resumptions());
        match end {
            End::Complete(bytes) => {
                self.state = State::Over;
                self.actions.push_back(Action::Chunk { bytes, is_last: true });
            }
            End::Resume(body) => {
                self.resumer.metrics.count_resumption();
                request.set_metadata_text(METADATA.0, METADATA.1, &count.to_string());
                self.call(body, count);
            }
            End::Cut(reason) => self.cut(reason),
        }
    }

    /// The client's connection takes no more bytes, or takes them again.
    pub(crate) fn client_is_slow(&mut self, is_slow: bool) {
        self.unread = is_slow.then_some(0);
    }

    fn cut(&mut self, reason: Cut) {
        self.resumer.metrics.count_cut(reason);
        self.end_early();
    }

    fn end_early(&mut self) {
        self.state = State::Over;
        self.call = Call::None;
        self.actions.clear();
        self.actions.push_back(if self.has_sent_head {
            Action::Reset(CUT_DETAILS)
        } else {
            Action::Reply(LocalReply {
                status: 503,
                headers: Vec::new(),
                body: Vec::new(),
                details: CUT_DETAILS,
            })
        });
    }

    /// A hook has panicked.
    pub(crate) fn fail(&mut self) -> Hold {
        match self.state {
            State::Reading(_) | State::Passing => {
                self.state = State::Passing;
                Hold::Pass
            }
            State::Active(_) | State::Over => {
                self.end_early();
                Hold::Taken
            }
        }
    }
}
