//! The response to a routed request, on its way to the client.

use core::time::Duration;
use std::sync::Arc;

use endpoint_picker::flow_control::Tokens;
use endpoint_picker::plugin::{NotReported, Reporter};
use endpoint_picker::request::stored::StoredId;
use endpoint_picker::response::outcome::RequestKind;
use endpoint_picker::response::reader::{ResponseError, ResponseReader, is_stream};
use endpoint_picker::response::restore::Restore;
use endpoint_picker::response::usage::Usage;

use super::decider::ExpectedResponse;
use super::head::{RequestHead, ResponseHead};
use crate::ledger::{Change, ChangeKind};
use crate::metrics::{Labels, MetricSink, Metrics, ResponseUsage};
use crate::proxy::metadata::Metadata;
use crate::proxy::{Proxy, ProxyError, Result};
use crate::worker_pool::directive::FirstToken;

/// The state of a response on its way to the client.
#[derive(Debug, Default)]
pub(super) struct Response {
    /// Headers to set on it.
    pub(super) headers: Vec<(String, String)>,
    /// Replaces the name of the model that served by the client's.
    pub(super) restore: Option<Restore>,
    /// The time at which its endpoint was chosen; `None` once its first output has come, or an error.
    pub(super) awaited_since: Option<Duration>,
    /// The endpoint that sends it, by its key; `None` if that is not in the pool.
    pub(super) served_by: Option<u64>,
    /// The change of the ledger that it makes when it ends; `None` before its first output.
    pub(super) served: Option<Change>,
    /// Its body is a stream of tokens.
    is_streamed: bool,
    /// The response, as far as it is known before it begins.
    pub(super) expected: ExpectedResponse,
    /// The labels of its tokens in metrics; `None` if they are not counted there.
    pub(super) models: Option<Labels>,
    /// The endpoint, by its key, about which the body or its trailers show whether it serves the request.
    pub(super) judged: Option<Judged>,
    /// The body that the client gets in the place of the proxy's.
    pub(super) replacement: Option<Box<[u8]>>,
    /// Its tokens are read for the queue's policies, too.
    pub(super) counts_service: bool,
    /// Plugins learn from its usage, or it is recorded.
    pub(super) is_sample: bool,
    /// Plugins that report a number of its usage, if there are any.
    pub(super) reporters: Option<Arc<[Reporter]>>,
    /// Reads its body, as long as something is expected of it.
    reader: Option<ResponseReader>,
    /// Its usage is read; `None`: it is not.
    tokens: Option<TokenTimes>,
    /// The first error in it.
    error: Option<ResponseError>,
    /// Its usage, once it has ended.
    pub(super) usage: Option<Usage>,
}

impl Response {
    /// Makes the response's headers fit the body that follows them.
    pub(super) fn begin<M: MetricSink>(
        &mut self,
        proxy: &mut impl Proxy,
        metrics: &mut Metrics<M>,
        head: &ResponseHead,
        request: &RequestHead,
        has_body: bool,
    ) -> Result<()> {
        if !self.headers.is_empty() {
            self.set_headers(proxy)?;
        }
        let ExpectedResponse { models, is_streamed, is_stored } = core::mem::take(&mut self.expected);
        if let Some(new) = models.new.filter(|_| self.awaited_since.is_some()) {
            metrics.count_new_models(&new);
        }
        let models = models.tokens;
        self.is_streamed = if head.is_grpc { is_streamed } else { is_stream(&head.content_type) };
        let reads_usage =
            models.is_some() || self.counts_service || self.is_sample || self.reporters.is_some();
        if let Some(chosen) = self.awaited_since {
            self.tokens = reads_usage.then_some(TokenTimes { chosen, first: None });
            let reads_id = is_stored && head.status < 300;
            if reads_usage || request.kind == RequestKind::Generation || reads_id {
                let message = request.api.response_message().filter(|_| head.is_grpc);
                self.reader = match message {
                    Some(message) => Some(ResponseReader::of_messages(message)),
                    None => ResponseReader::new(&head.content_type, head.content_encoding.as_deref()),
                };
                if reads_id {
                    self.reader = self.reader.take().map(ResponseReader::with_id);
                }
            }
        }
        self.models = models;
        if self.restore.is_some() { self.begin_to_restore(proxy, head, has_body) } else { Ok(()) }
    }

    /// Sets the headers that were kept for the response.
    #[cold]
    #[inline(never)]
    fn set_headers(&mut self, proxy: &mut impl Proxy) -> Result<()> {
        let mut headers = self.headers.drain(..);
        headers.try_for_each(|(name, value)| proxy.set_response_header(&name, &value))
    }

    /// Makes the head fit a body in which the model's name is replaced, if it can be.
    #[cold]
    #[inline(never)]
    fn begin_to_restore(
        &mut self,
        proxy: &mut impl Proxy,
        head: &ResponseHead,
        has_body: bool,
    ) -> Result<()> {
        let encoding = head.content_encoding.as_deref();
        if has_body && encoding.is_none_or(|encoding| encoding.eq_ignore_ascii_case(b"identity")) {
            // The length is known only when the whole body has been sent.
            return proxy.remove_response_header("content-length");
        }
        self.restore = None;
        Ok(())
    }

    /// Whether its further chunks are neither read nor changed.
    pub(super) fn is_read(&self) -> bool {
        self.reader.is_none() && self.only_passes()
    }

    /// Whether its further chunks are not changed, and nothing in them is awaited but the usage or an error.
    fn only_passes(&self) -> bool {
        self.restore.is_none()
            && self.replacement.is_none()
            && self.awaited_since.is_none()
            && !self.reader.as_ref().is_some_and(ResponseReader::awaits_id)
    }

    /// Passes a chunk that is not the last, if nothing in it is awaited. Its bytes are kept, to be read
    /// later, if they may matter at the end.
    pub(super) fn keep_chunk(&mut self, proxy: &impl Proxy) -> bool {
        let passes = self.only_passes();
        if passes && let Some(reader) = &mut self.reader {
            match proxy.response_chunk() {
                Ok(chunk) => reader.keep_chunk(&chunk),
                Err(error) => self.skip_chunk(&error),
            }
        }
        passes
    }

    /// Whether no chunk waits to be read.
    pub(super) fn keeps_no_chunk(&self) -> bool {
        self.reader.as_ref().is_none_or(ResponseReader::keeps_no_chunk)
    }

    /// A chunk cannot be read. Without it, the counts of the reader would be wrong.
    #[cold]
    #[inline(never)]
    fn skip_chunk(&mut self, error: &ProxyError) {
        log::error!("{error}; a chunk of the response passes unchanged");
        self.reader = None;
    }

    /// Reads the chunk of the body that has arrived, and replaces it if need be.
    pub(super) fn read_chunk<M: MetricSink>(
        &mut self,
        proxy: &mut impl Proxy,
        metrics: &mut Metrics<M>,
        is_last: bool,
    ) -> ChunkFindings {
        if let Some(body) = &mut self.replacement {
            // The first chunk becomes the whole new body, and the chunks after it become empty.
            if let Err(error) = proxy.replace_response_chunk(&core::mem::take(body)) {
                log::error!("{error}; an error keeps the proxy's text");
            }
            return ChunkFindings::default();
        }
        if !is_last && self.keep_chunk(proxy) {
            return ChunkFindings { has_output: true, ..ChunkFindings::default() };
        }
        if (self.restore.is_some() || self.reader.is_some())
            && let Err(error) = self.pass_chunk(proxy, is_last)
        {
            self.skip_chunk(&error);
        }
        let findings = self.findings(proxy, metrics);
        if is_last {
            self.end_reading(proxy, metrics);
        } else if self.tokens.is_none()
            && (findings.has_output || findings.error.is_some())
            && !self.reader.as_ref().is_some_and(ResponseReader::awaits_id)
        {
            // Later chunks cost nothing if nothing reads their usage.
            self.reader = None;
        }
        findings
    }

    /// The first error in the body, once.
    fn new_error(&mut self) -> Option<ResponseError> {
        let error = self.reader.as_ref().and_then(ResponseReader::error).filter(|_| self.error.is_none());
        self.error = self.error.or(error);
        error
    }

    /// The findings in the body so far. A body that is not read has output with its first output.
    fn findings<M: MetricSink>(&mut self, proxy: &impl Proxy, metrics: &Metrics<M>) -> ChunkFindings {
        let has_output = self.reader.as_ref().is_none_or(ResponseReader::has_output);
        let error = self.new_error();
        let stored = self.reader.as_mut().and_then(ResponseReader::take_id);
        let mut findings = ChunkFindings { has_output, first: None, error, stored };
        if has_output
            && let Some(since) = self.awaited_since.take()
            && let Ok(now) = proxy.now()
        {
            let took = now.saturating_sub(since);
            metrics.first_byte.record(took.as_millis());
            let kind = ChangeKind::Served { first_byte: took, is_streamed: self.is_streamed };
            self.served = self.served_by.map(|endpoint| Change::Endpoint { endpoint, kind });
            let took = self.is_streamed.then_some(took);
            findings.first = Some(FirstToken { at: now, took, by: self.served_by });
            if let Some(tokens) = self.tokens.as_mut().filter(|_| self.is_streamed) {
                tokens.first = Some(now);
            }
        }
        if error.is_some() {
            self.awaited_since = None;
        }
        findings
    }

    fn pass_chunk(&mut self, proxy: &mut impl Proxy, is_last: bool) -> Result<()> {
        let chunk = proxy.response_chunk()?;
        if let Some(reader) = &mut self.reader {
            reader.read_chunk(&chunk);
            if is_last {
                reader.end();
            }
        }
        let replacement = self.restore.as_mut().and_then(|restore| restore.chunk(&chunk, is_last));
        replacement.map_or(Ok(()), |bytes| proxy.replace_response_chunk(&bytes))
    }

    /// The body ends before its last chunk: with trailers, or because it is cut or not wanted any more.
    /// Returns the first error in it, if that has not been found before.
    pub(super) fn end_body(&mut self) -> Option<ResponseError> {
        if let Some(reader) = &mut self.reader {
            reader.end();
        }
        self.new_error()
    }

    /// The response ends with trailers.
    pub(super) fn end_with_trailers<M: MetricSink>(
        &mut self,
        proxy: &mut impl Proxy,
        metrics: &mut Metrics<M>,
    ) {
        if self.restore.as_ref().is_some_and(Restore::is_holding) {
            // Envoy accepts no more bytes of the body when trailers have arrived.
            log::warn!("a response ended within the name of its model; its last bytes are lost");
        }
        self.end_reading(proxy, metrics);
    }

    /// The tokens that the request was served, as far as they are known.
    pub(super) fn served_tokens(&self) -> Option<Tokens> {
        self.usage.map(|Usage { input, output, .. }| Tokens { input, output })
    }

    /// The body has ended: counts its tokens.
    fn end_reading<M: MetricSink>(&mut self, proxy: &mut impl Proxy, metrics: &mut Metrics<M>) {
        if let (Some(reader), Some(tokens)) = (self.reader.take(), self.tokens.take()) {
            match proxy.now() {
                Ok(now) => {
                    let response = tokens.usage(reader.finish(), now);
                    if let Some(models) = &self.models {
                        metrics.count_tokens(models, &response);
                    }
                    self.report(&response.usage, proxy, metrics);
                    self.usage = Some(response.usage);
                }
                Err(error) => log::error!("{error}; a response's tokens are not counted"),
            }
        }
    }

    /// Reports the numbers of its usage to the proxy.
    fn report<M: MetricSink>(&self, usage: &Usage, proxy: &mut impl Proxy, metrics: &mut Metrics<M>) {
        for Reporter { name, plugin } in self.reporters.as_deref().unwrap_or_default() {
            let report = plugin.report(usage);
            metrics.plugins.count_report(name, &report);
            match report {
                Ok(report) => {
                    if let Err(error) = proxy.set_metadata(&Metadata::Attribute(report)) {
                        log::error!("{error}; the number of {name} is not reported");
                    }
                }
                Err(NotReported::Failed(problem)) => log::debug!("{name} reports nothing: {problem}"),
                Err(NotReported::Unmet | NotReported::Nothing) => {}
            }
        }
    }
}

/// The endpoint of a response whose head does not show whether it serves the request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Judged {
    /// Its key.
    pub(super) endpoint: u64,
    /// The trailers have a status of gRPC.
    pub(super) is_by_trailers: bool,
}

/// The findings in a chunk of a response.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ChunkFindings {
    /// Output has come with this chunk or before.
    pub(super) has_output: bool,
    /// The first output has come with this chunk, and shows how long its server takes.
    pub(super) first: Option<FirstToken>,
    /// The first error of the body has come with this chunk.
    pub(super) error: Option<ResponseError>,
    /// The id of a response that its server may store has come with this chunk.
    pub(super) stored: Option<StoredId>,
}

/// The times of a response whose tokens are counted.
#[derive(Clone, Copy, Debug)]
struct TokenTimes {
    /// The time at which the endpoint was chosen.
    chosen: Duration,
    /// The time of the first output of a stream of tokens.
    first: Option<Duration>,
}

impl TokenTimes {
    /// The usage of the response, which ends now.
    fn usage(self, usage: Usage, now: Duration) -> ResponseUsage {
        let Self { chosen, first } = self;
        ResponseUsage {
            usage,
            whole: now.saturating_sub(chosen),
            since_first: first.map(|first| now.saturating_sub(first)),
        }
    }
}
