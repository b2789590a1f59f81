//! One request on its way through the filter, from its head to the end of its response.
//!
//! The proxy calls a method of the [`Exchange`] for each event. The method decides by the part of the request
//! that has arrived ([`decider`]), and [acts](acting) on the decision. Where [another picker](other_picker)
//! has routed the request, the events are the same, and only the acting differs.

mod acting;
mod admission;
mod decider;
mod head;
mod judging;
mod new_body;
mod other_picker;
mod peek;
mod queueing;
mod response;
mod served;
mod turn;

pub use acting::refuse_withheld_body;
pub(crate) use head::content_encoding;

use core::net::SocketAddr;
use core::time::Duration;

use endpoint_picker::decision::rejection::Rejection;
use endpoint_picker::fallback::Fallback;
use endpoint_picker::request::body::ReadBody;

use self::head::{RequestHead, RequestOwner};
use self::other_picker::RoutedRequest;
use self::queueing::QueuePlace;
use self::response::Response;
use self::served::is_cut;
use self::turn::Turn;
use crate::budget::KeptBytes;
use crate::config::{Limits, Mode};
use crate::metrics::MetricSink;
use crate::proxy::headers::CONTROL;
use crate::proxy::{Proxy, ProxyError, Result};
use crate::record::request::RequestRecord;
use crate::worker_pool::WorkerPool;
use crate::worker_pool::directive::Assignment;
use crate::worker_pool::store::PoolStore;

/// The instruction for the proxy after each event of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flow {
    /// Hold the request, and keep the part of its body that has arrived.
    Hold,
    /// Hold the request until it is [resumed](Exchange::resumed). The proxy may slow the client down while
    /// its body arrives, but must not fail the request.
    Wait,
    /// Let the request pass, with all of its body that has arrived.
    Continue,
    /// Have the pool at this place among the other pools [take the request over](Exchange::continue_in), in
    /// the same event. Only pools with [a list](WorkerPool::set_fallback) of such pools move requests.
    Move(usize),
}

/// One request on its way through the filter.
///
/// The proxy calls a method for each event, in their order, and [`Self::end`] when the request is over in any
/// way.
#[derive(Debug)]
pub struct Exchange {
    head: RequestHead,
    progress: Progress,
    place: QueuePlace,
    /// The choice of another picker; `None`: this picker acts.
    other: Option<Box<RoutedRequest>>,
    /// The move by which the request came to its pool; `None`: it is its own pool.
    fallback: Option<Fallback>,
    /// Whether the request has a body, which may not have arrived yet.
    has_body: bool,
    /// Bytes of the body that have arrived while the request was held.
    arrived: usize,
    /// Their part of the room for bodies that are held; `None`: none is held.
    held: Option<KeptBytes>,
    /// Servers that have failed the request before, so that others are preferred.
    failed: Vec<SocketAddr>,
    assignment: Assignment,
    response: Response,
    /// Its record, from its decision to its end; `None`: it is not recorded.
    record: Option<Box<RequestRecord>>,
}

/// How far the request has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// Its body is read, or it waits in the queue. The body is read next when `until` bytes have arrived.
    Reading { until: usize },
    /// The whole body has to arrive, because the model or the priority is to be replaced in it.
    NeedsWhole,
    /// Decided, or not the filter's to decide.
    Decided,
    /// Rejected by the filter.
    Rejected,
}

impl Exchange {
    /// A request whose head has not arrived yet.
    pub fn new(limits: &Limits) -> Self {
        Self {
            head: RequestHead::default(),
            progress: Progress::Reading { until: limits.peek_bytes },
            place: QueuePlace::default(),
            other: None,
            fallback: None,
            has_body: false,
            arrived: 0,
            held: None,
            failed: Vec::new(),
            assignment: Assignment::default(),
            response: Response::default(),
            record: None,
        }
    }

    /// The same for a request that these servers have failed.
    #[must_use]
    pub fn failed_by(self, failed: Vec<SocketAddr>) -> Self {
        Self { failed, ..self }
    }

    /// Whether the proxy holds the request, for its body or in the queue.
    pub fn is_held(&self) -> bool {
        self.is_undecided() && self.other.is_none()
    }

    /// Whether the proxy holds the request for its body, and the queue has not been asked. Until then the
    /// exchange has changed nothing outside of the request, so another one may begin in its place.
    pub fn is_reading(&self) -> bool {
        self.is_held() && self.place.is_before()
    }

    /// The length of the body of a request that is held, if its head declares it.
    pub fn declared_length(&self) -> Option<u64> {
        self.head.content_length()
    }

    fn is_undecided(&self) -> bool {
        match self.progress {
            Progress::Reading { .. } | Progress::NeedsWhole => true,
            Progress::Decided | Progress::Rejected => false,
        }
    }

    fn is_rejected(&self) -> bool {
        self.progress == Progress::Rejected
    }

    /// The request's head has arrived.
    pub fn request_headers(
        &mut self,
        pool: &mut WorkerPool<impl PoolStore, impl MetricSink>,
        proxy: &mut impl Proxy,
        end_of_stream: bool,
    ) -> Flow {
        self.has_body = !end_of_stream;
        let mut turn = Turn { exchange: self, pool, proxy };
        let result = match turn.pool.config.mode {
            Mode::Pick => {
                let WorkerPool { config, spare_headers, .. } = &mut *turn.pool;
                let used = core::mem::take(spare_headers);
                match RequestHead::take(turn.proxy, &config.pool, &config.explain, used) {
                    Ok(RequestOwner::Own(head)) => {
                        turn.exchange.head = head;
                        turn.decide_by_head(!end_of_stream)
                    }
                    Ok(RequestOwner::AnotherPicker) => {
                        turn.exchange.progress = Progress::Decided;
                        Ok(Flow::Continue)
                    }
                    Err(error) => {
                        // Headers that only a picker may set can still be there, so the request must not
                        // pass.
                        log::error!("{error}; the request is refused");
                        turn.reject(&Rejection::bad_request("the request's headers cannot be read"))
                    }
                }
            }
            Mode::Shadow => turn.begin_to_compare(!end_of_stream),
        };
        turn.settle(result)
    }

    /// The request's body has grown to this many bytes, or has arrived completely.
    pub fn request_body(
        &mut self,
        pool: &mut WorkerPool<impl PoolStore, impl MetricSink>,
        proxy: &mut impl Proxy,
        size: usize,
        end_of_stream: bool,
    ) -> Flow {
        if !self.is_undecided() {
            return Flow::Continue;
        }
        self.arrived = size;
        let max_bytes = pool.config.limits.max_held_bytes;
        let mut turn = Turn { exchange: self, pool, proxy };
        if turn.exchange.place.waits() {
            turn.exchange.place.has_whole_body |= end_of_stream;
            return turn.settle(Ok(Flow::Wait));
        }
        // A request of another picker is not held, so its chunks pass and are copied here.
        let arrived = match &mut turn.exchange.other {
            None => Ok((size, end_of_stream)),
            Some(other) => {
                // A copy that was cut off is not the whole body, even at the end of the stream.
                other.keep_chunk(turn.proxy, max_bytes).map(|fits| (other.body.len(), end_of_stream && fits))
            }
        };
        let result = arrived.and_then(|(size, is_whole)| {
            if is_whole { turn.decide_by_whole_body(None) } else { turn.decide_by_beginning(size, None) }
        });
        turn.settle(result)
    }

    /// The same for a body that was read before the request had its route.
    pub fn request_body_read(
        &mut self,
        pool: &mut WorkerPool<impl PoolStore, impl MetricSink>,
        proxy: &mut impl Proxy,
        size: usize,
        read_body: &ReadBody<'_>,
    ) -> Flow {
        if !self.is_undecided() {
            return Flow::Continue;
        }
        self.arrived = size;
        if let Some(other) = &mut self.other {
            other.body.extend_from_slice(read_body.bytes());
        }
        let mut turn = Turn { exchange: self, pool, proxy };
        let result = if read_body.is_whole() {
            turn.decide_by_whole_body(Some(read_body))
        } else {
            turn.decide_by_beginning(size, Some(read_body))
        };
        turn.settle(result)
    }

    /// The request's trailers have arrived, and so has its whole body.
    pub fn request_trailers(
        &mut self,
        pool: &mut WorkerPool<impl PoolStore, impl MetricSink>,
        proxy: &mut impl Proxy,
    ) -> Flow {
        if self.place.waits() {
            self.place.has_whole_body = true;
            return Flow::Wait;
        }
        if !self.is_undecided() {
            return Flow::Continue;
        }
        let mut turn = Turn { exchange: self, pool, proxy };
        let result = turn.decide_by_whole_body(None);
        turn.settle(result)
    }

    /// The queue has resumed the request. `size` are the bytes of its body that have arrived. `None`: there
    /// is nothing to do.
    pub fn resumed(
        &mut self,
        pool: &mut WorkerPool<impl PoolStore, impl MetricSink>,
        proxy: &mut impl Proxy,
        size: usize,
    ) -> Option<Flow> {
        self.arrived = size;
        let mut turn = Turn { exchange: self, pool, proxy };
        let verdict = turn.take_verdict()?;
        let result = turn.follow(verdict, size);
        Some(turn.settle(result))
    }

    /// Continues in the pool that takes the request, after [`Flow::Move`]. That pool decides by its own
    /// rules, from the request's beginning. `size` are the bytes of its body that have arrived, and
    /// `read_body` is the body if it was read before the request had its route.
    pub fn continue_in(
        &mut self,
        pool: &mut WorkerPool<impl PoolStore, impl MetricSink>,
        proxy: &mut impl Proxy,
        size: usize,
        read_body: Option<&ReadBody<'_>>,
    ) -> Flow {
        self.progress = Progress::Reading { until: pool.config.limits.peek_bytes };
        let has_whole_body = self.place.has_whole_body;
        self.place = QueuePlace { has_whole_body, ..QueuePlace::default() };
        self.arrived = size;
        let mut turn = Turn { exchange: self, pool, proxy };
        let result = turn.decide_again(size, read_body);
        turn.settle(result)
    }

    /// The body of a held request will not arrive. The pool's failure mode decides, as without a snapshot.
    pub fn request_body_withheld(
        &mut self,
        pool: &mut WorkerPool<impl PoolStore, impl MetricSink>,
        proxy: &mut impl Proxy,
    ) -> Flow {
        let mut turn = Turn { exchange: self, pool, proxy };
        let flow = turn.act_by_failure_mode();
        turn.settle(Ok(flow))
    }

    /// The head of the response has arrived.
    pub fn response_headers(
        &mut self,
        pool: &mut WorkerPool<impl PoolStore, impl MetricSink>,
        proxy: &mut impl Proxy,
        end_of_stream: bool,
    ) {
        let mut turn = Turn { exchange: self, pool, proxy };
        let begun = if turn.exchange.is_rejected() {
            turn.explain_overflow(!end_of_stream)
        } else {
            turn.begin_response(!end_of_stream)
        };
        if let Err(error) = begun {
            log::error!("{error}; the response passes unchanged");
            // The length header may still be there, so the body must keep its length.
            self.response.restore = None;
        }
        if end_of_stream {
            self.end_at(pool, || proxy.now());
        }
    }

    /// A chunk of the response's body has arrived.
    pub fn response_body(
        &mut self,
        pool: &mut WorkerPool<impl PoolStore, impl MetricSink>,
        proxy: &mut impl Proxy,
        end_of_stream: bool,
    ) {
        let findings = self.response.read_chunk(proxy, &mut pool.metrics, end_of_stream);
        if findings.has_output && !self.assignment.has_begun() {
            self.begin_output(pool, proxy, findings.first);
        }
        if let Some(error) = findings.error {
            self.take_error(pool, || proxy.now(), error);
        }
        if let Some(stored) = findings.stored {
            self.remember(pool, stored);
        }
        if end_of_stream {
            self.complete(pool, proxy);
        } else if self.assignment.has_begun() {
            self.count_chunks(1);
        }
    }

    /// Passes a chunk of the response that is not the last one, if nothing is done about it now: a chunk
    /// after the first output. Its bytes are kept if the usage is read at the end. False: it is for
    /// [`Self::response_body`].
    pub fn pass_chunk(&mut self, proxy: &impl Proxy) -> bool {
        let passes = self.assignment.has_begun() && self.response.keep_chunk(proxy);
        self.count_chunks(passes.into());
        passes
    }

    /// Whether nothing reads the next chunks of the response, up to the last one: they need only be
    /// [counted](Self::count_chunks).
    pub fn only_counts_chunks(&self) -> bool {
        self.assignment.has_begun() && self.response.is_read()
    }

    /// Counts chunks of the response that came neither to [`Self::response_body`] nor to
    /// [`Self::pass_chunk`].
    pub fn count_chunks(&mut self, chunks: u64) {
        self.assignment.chunks += chunks;
    }

    /// The response's trailers have arrived.
    pub fn response_trailers(
        &mut self,
        pool: &mut WorkerPool<impl PoolStore, impl MetricSink>,
        proxy: &mut impl Proxy,
    ) {
        if let Some(error) = self.response.end_body() {
            self.take_error(pool, || proxy.now(), error);
        }
        self.response.end_with_trailers(proxy, &mut pool.metrics);
        self.judge_by_trailers(pool, proxy);
        self.complete(pool, proxy);
    }

    /// The proxy responds itself, with these details. If the response of a server has begun, the server has
    /// cut it, and is avoided.
    pub fn local_reply(
        &mut self,
        pool: &mut WorkerPool<impl PoolStore, impl MetricSink>,
        proxy: &impl Proxy,
        details: &[u8],
    ) {
        if is_cut(details) {
            self.avoid_server(pool, proxy);
        }
    }

    /// The response has ended before its end marker, so its server has failed: it is avoided, and the request
    /// is over.
    pub fn cut(&mut self, pool: &mut WorkerPool<impl PoolStore, impl MetricSink>, proxy: &impl Proxy) {
        self.avoid_server(pool, proxy);
        self.end_at(pool, || proxy.now());
    }

    /// The whole response has arrived, as far as the server's framing shows.
    fn complete(&mut self, pool: &mut WorkerPool<impl PoolStore, impl MetricSink>, proxy: &impl Proxy) {
        if !self.assignment.has_begun() {
            self.assignment.fail_output(pool.store_of(self.assignment.handed_over));
        }
        if let Some(response) = self.assignment.complete(proxy)
            && let Some(limits) = &self.assignment.limits
        {
            pool.metrics.count_limits(limits, &response);
        }
        self.end_at(pool, || proxy.now());
    }

    /// The shell failed in the middle of an event, with the engine in any state. The pool's failure mode
    /// decides on a request that is still held; the headers that only a picker may set are removed from it.
    pub fn fail(
        &mut self,
        pool: &mut WorkerPool<impl PoolStore, impl MetricSink>,
        proxy: &mut impl Proxy,
        error: ProxyError,
    ) -> Flow {
        if pool.config.mode == Mode::Shadow || !self.is_held() {
            return Flow::Continue;
        }
        for name in CONTROL {
            // An error must not stop the rest: the failure mode has to decide in any case.
            let _ = proxy.remove_request_header(name);
        }
        self.leave_queue(&pool.store);
        Turn { exchange: self, pool, proxy }.settle(Err(error))
    }

    /// The server is done with the request: none of its load is in flight any more, even if the client has
    /// yet to receive the end of the response. So a decision on the next request of that client does not
    /// count this request. Later calls change nothing.
    pub fn end(&mut self, pool: &mut WorkerPool<impl PoolStore, impl MetricSink>) {
        // All take their value out, so a second call has no effect.
        self.held = None;
        let Response { served, usage, served_by, models, .. } = &mut self.response;
        let store = pool.store_of(self.assignment.handed_over);
        let cached = self.assignment.end(store, served.take(), (*usage).zip(*served_by));
        if let Some((models, cached)) = models.as_ref().zip(cached) {
            pool.metrics.count_prediction(models, &cached);
        }
        self.leave_queue(&pool.store);
        if let Some(mut record) = self.record.take() {
            record.close(self.response.usage, self.assignment.chunks);
            pool.records.add(record);
        }
    }

    /// Whether [`end`](Self::end) would change nothing, as after the end of a response.
    pub fn has_ended(&self) -> bool {
        let Self { held, record, place, response, assignment, .. } = self;
        held.is_none()
            && record.is_none()
            && place.ticket.is_none()
            && response.served.is_none()
            && response.keeps_no_chunk()
            && (response.usage.is_none() || assignment.usage_predictions.is_empty())
            && assignment.loads.is_empty()
            && assignment.expectations.is_empty()
    }

    /// The same for a shell that has a clock: the time is read only for a request that is recorded, and for
    /// an error at the end of a response that is cut.
    pub fn end_at(
        &mut self,
        pool: &mut WorkerPool<impl PoolStore, impl MetricSink>,
        now: impl Fn() -> Result<Duration>,
    ) {
        if let Some(error) = self.response.end_body() {
            self.take_error(pool, &now, error);
        }
        if let Some(record) = &mut self.record
            && let Ok(now) = now()
        {
            record.ends(now);
        }
        self.end(pool);
    }
}
