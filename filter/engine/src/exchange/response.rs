//! The response to a routed request, on its way to the client.

use core::time::Duration;
use std::sync::Arc;

use endpoint_picker::flow_control::Tokens;
use endpoint_picker::plugin::{NotReported, Reporter};
use endpoint_picker::request::body::Api;
use endpoint_picker::response::restore::Restore;
use endpoint_picker::response::reader::{ResponseReader, is_stream};
use endpoint_picker::response::usage::Usage;

use super::decider::ExpectedTokens;
use super::head::ResponseHead;
use crate::ledger::{Change, ChangeKind};
use crate::metrics::{Labels, MetricSink, Metrics, ResponseUsage};
use crate::proxy::metadata::Metadata;
use crate::proxy::{Proxy, Result};
use crate::worker_pool::directive::FirstChunk;

/// The state of a response on its way to the client.
#[derive(Debug, Default)]
pub(super) struct Response {
    /// Headers to set on it.
    pub(super) headers: Vec<(String, String)>,
    /// Replaces the name of the model that served by the client's.
    pub(super) restore: Option<Restore>,
    /// The time at which its endpoint was chosen; `None` once the first byte of its body has come.
    pub(super) awaited_since: Option<Duration>,
    /// The endpoint that sends it, by its key; `None` if that is not in the pool.
    pub(super) served_by: Option<u64>,
    /// The change of the ledger that it makes when it ends; `None` before the first byte of its body.
    pub(super) served: Option<Change>,
    /// Its body is a stream of tokens.
    is_streamed: bool,
    /// Its tokens, as far as they are known before it begins.
    pub(super) expected: ExpectedTokens,
    /// The labels of its tokens in metrics; `None` if they are not counted there.
    pub(super) models: Option<Labels>,
    /// The endpoint, by its key, that has failed the request or not by the trailers that are to come.
    pub(super) judged_by_trailers: Option<u64>,
    /// The body that the client gets in the place of the proxy's.
    pub(super) replacement: Option<Vec<u8>>,
    /// Its tokens are read for the queue's policies, too.
    pub(super) counts_service: bool,
    /// Plugins learn from its usage.
    pub(super) is_sample: bool,
    /// Plugins that report a number of its usage, if there are any.
    pub(super) reporters: Option<Arc<[Reporter]>>,
    tokens: Option<ResponseTokens>,
    /// Its usage, once it has ended.
    pub(super) usage: Option<Usage>,
}

impl Response {
    /// Makes the response's headers fit the body that follows them.
    pub(super) fn begin(
        &mut self,
        proxy: &mut impl Proxy,
        head: &ResponseHead,
        api: Api,
        has_body: bool,
    ) -> Result<()> {
        for (name, value) in self.headers.drain(..) {
            proxy.set_response_header(&name, &value)?;
        }
        let ExpectedTokens { models, are_streamed } = core::mem::take(&mut self.expected);
        self.is_streamed = if head.is_grpc { are_streamed } else { is_stream(&head.content_type) };
        let has_reader =
            models.is_some() || self.counts_service || self.is_sample || self.reporters.is_some();
        if let Some(chosen) = self.awaited_since.filter(|_| has_reader) {
            self.tokens = ResponseTokens::begin(head, api, chosen);
        }
        self.models = models;
        if self.restore.is_some() {
            let encoding = head.content_encoding.as_deref();
            if has_body && encoding.is_none_or(|encoding| encoding.eq_ignore_ascii_case(b"identity")) {
                // The length is known only when the whole body has been sent.
                proxy.remove_response_header("content-length")?;
            } else {
                self.restore = None;
            }
        }
        Ok(())
    }

    /// Reads the chunk of the body that has arrived, and replaces it if need be. Returns the first one.
    pub(super) fn read_chunk<M: MetricSink>(
        &mut self,
        proxy: &mut impl Proxy,
        metrics: &mut Metrics<M>,
        is_last: bool,
    ) -> Option<FirstChunk> {
        if let Some(body) = &mut self.replacement {
            // The first chunk becomes the whole new body, and the chunks after it become empty.
            if let Err(error) = proxy.replace_response_chunk(&core::mem::take(body)) {
                log::error!("{error}; an error keeps the proxy's text");
            }
            return None;
        }
        let mut first = None;
        if let Some(since) = self.awaited_since.take()
            && let Ok(now) = proxy.now()
        {
            let first_byte = now.saturating_sub(since);
            metrics.first_byte.record(first_byte.as_millis());
            let kind = ChangeKind::Served { first_byte, is_streamed: self.is_streamed };
            self.served = self.served_by.map(|endpoint| Change::Endpoint { endpoint, kind });
            let took = self.is_streamed.then_some(first_byte);
            first = Some(FirstChunk { at: now, took, by: self.served_by });
            if let Some(tokens) = self.tokens.as_mut().filter(|_| self.is_streamed) {
                tokens.note_first_byte(now);
            }
        }
        if self.restore.is_some() || self.tokens.is_some() {
            if let Err(error) = self.pass_chunk(proxy, is_last) {
                log::error!("{error}; a chunk of the response passes unchanged");
                // Without this chunk, the counts of the usage reader would be wrong.
                self.tokens = None;
            }
            if is_last {
                self.end_reading(proxy, metrics);
            }
        }
        first
    }

    fn pass_chunk(&mut self, proxy: &mut impl Proxy, is_last: bool) -> Result<()> {
        let chunk = proxy.response_chunk()?;
        if let Some(tokens) = &mut self.tokens {
            tokens.read(&chunk);
        }
        let replacement = self.restore.as_mut().and_then(|restore| restore.chunk(&chunk, is_last));
        replacement.map_or(Ok(()), |bytes| proxy.replace_response_chunk(&bytes))
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
        if let Some(tokens) = self.tokens.take() {
            match proxy.now() {
                Ok(now) => {
                    let response = tokens.finish(now);
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
            metrics.count_report(name, &report);
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

/// A response whose tokens are counted.
#[derive(Debug)]
pub(super) struct ResponseTokens {
    reader: ResponseReader,
    /// The time at which the endpoint was chosen.
    chosen: Duration,
    /// The time of the first byte of a stream of tokens.
    first_byte: Option<Duration>,
}

impl ResponseTokens {
    /// Begins to read the response; `None` if responses with such a head are not read.
    pub(super) fn begin(head: &ResponseHead, api: Api, chosen: Duration) -> Option<Self> {
        let reader = match api.response_message().filter(|_| head.is_grpc) {
            Some(message) => ResponseReader::of_messages(message),
            None => ResponseReader::new(&head.content_type, head.content_encoding.as_deref())?,
        };
        Some(Self { reader, chosen, first_byte: None })
    }

    /// Notes the time of the first byte of a stream of tokens.
    pub(super) fn note_first_byte(&mut self, now: Duration) {
        self.first_byte = Some(now);
    }

    /// Reads a chunk of the body.
    pub(super) fn read(&mut self, chunk: &[u8]) {
        self.reader.read_chunk(chunk);
    }

    /// The usage of the response, which ends now.
    pub(super) fn finish(self, now: Duration) -> ResponseUsage {
        let Self { reader, chosen, first_byte } = self;
        ResponseUsage {
            usage: reader.finish(),
            whole: now.saturating_sub(chosen),
            since_first: first_byte.map(|first| now.saturating_sub(first)),
        }
    }
}
