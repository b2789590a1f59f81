//! The tokens of one answer, counted while it passes.

use core::time::Duration;

use endpoint_picker::response::usage::{Usage, UsageReader};

use super::head::AnswerHead;
use crate::metrics::{AnswerUsage, Labels, MetricSink, Metrics};

/// An answer whose tokens are counted.
#[derive(Debug)]
pub(super) struct AnswerTokens {
    /// `None` if they are not counted into metrics.
    models: Option<Labels>,
    reader: UsageReader,
    /// When the endpoint was chosen.
    chosen: Duration,
    first_byte: Option<Duration>,
}

impl AnswerTokens {
    /// Begins to read the answer; `None` if answers with such a head are not read.
    pub(super) fn begin(models: Option<Labels>, head: &AnswerHead, chosen: Duration) -> Option<Self> {
        let reader = UsageReader::new(&head.content_type, head.content_encoding.as_deref())?;
        Some(Self { models, reader, chosen, first_byte: None })
    }

    /// Notes when the first byte of the body came.
    pub(super) fn note_first_byte(&mut self, now: Duration) {
        self.first_byte = Some(now);
    }

    /// Reads a part of the body.
    pub(super) fn read(&mut self, chunk: &[u8]) {
        self.reader.piece(chunk);
    }

    /// Counts the tokens of the answer, which ends now. Returns them.
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
