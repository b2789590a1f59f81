//! The tokens of one answer, counted while it passes.

use core::time::Duration;

use endpoint_picker::usage::UsageReader;

use crate::headers::AnswerHead;
use crate::host;
use crate::labels::Labels;
use crate::stats::Stats;
use crate::token_stats::WholeAnswer;

/// An answer whose tokens are counted.
#[derive(Debug)]
pub(crate) struct AnswerTokens {
    models: Labels,
    reader: UsageReader,
    chosen: Duration,
    first_byte: Option<Duration>,
}

impl AnswerTokens {
    /// Of these models' answer that begins like this, to a request whose endpoint was `chosen` then. `None` if such an answer
    /// is not read.
    pub(crate) fn begin(models: Labels, head: &AnswerHead, chosen: Duration) -> Option<Self> {
        let reader = UsageReader::new(&head.content_type, head.content_encoding.as_deref())?;
        Some(Self { models, reader, chosen, first_byte: None })
    }

    /// The first byte of its body has come.
    pub(crate) fn note_first_byte(&mut self, now: Duration) {
        self.first_byte = Some(now);
    }

    /// A part of it has come.
    pub(crate) fn read(&mut self, chunk: &[u8]) {
        self.reader.piece(chunk);
    }

    /// It has come whole.
    pub(crate) fn count(self, stats: &Stats) -> host::Result<()> {
        let Self { models, reader, chosen, first_byte } = self;
        let now = host::now()?;
        let is_streamed = reader.is_streamed();
        let answer = WholeAnswer {
            usage: reader.finish(),
            whole: now.saturating_sub(chosen),
            since_first: first_byte.filter(|_| is_streamed).map(|first| now.saturating_sub(first)),
        };
        stats.count_tokens(&models, &answer);
        Ok(())
    }
}
