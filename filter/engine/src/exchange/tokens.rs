//! The tokens of one response, counted while it passes.

use core::time::Duration;

use endpoint_picker::response::usage::{Usage, UsageReader};

use super::head::ResponseHead;
use crate::metrics::{AnswerUsage, Labels, MetricSink, Metrics};

/// A response whose tokens are counted.
#[derive(Debug)]
pub(super) struct ResponseTokens {
    /// `None` if they are not counted into metrics.
    models: Option<Labels>,
    reader: UsageReader,
    /// The time at which the endpoint was chosen.
    chosen: Duration,
    first_byte: Option<Duration>,
}

impl ResponseTokens {
    /// Begins to read the response; `None` if responses with such a head are not read.
    pub(super) fn begin(models: Option<Labels>, head: &ResponseHead, chosen: Duration) -> Option<Self> {
        let reader = UsageReader::new(&head.content_type, head.content_encoding.as_deref())?;
        Some(Self { models, reader, chosen, first_byte: None })
    }

    /// Notes the time of the body's first byte.
    pub(super) fn note_first_byte(&mut self, now: Duration) {
        self.first_byte = Some(now);
    }

    /// Reads a chunk of the body.
    pub(super) fn read(&mut self, chunk: &[u8]) {
        self.reader.read_chunk(chunk);
    }

    /// Counts the tokens of the response, which ends now. Returns them.
    pub(super) fn count<M: MetricSink>(self, metrics: &mut Metrics<M>, now: Duration) -> Usage {
        let Self { models, reader, chosen, first_byte } = self;
        let first_byte = first_byte.filter(|_| reader.is_streamed());
        let answer = AnswerUsage {
            usage: reader.finish(),
            whole: now.saturating_sub(chosen),
            since_first: first_byte.map(|first| now.saturating_sub(first)),
        };
        if let Some(models) = models {
            metrics.count_tokens(&models, &answer);
        }
        answer.usage
    }
}
