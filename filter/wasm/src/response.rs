//! The answer to a routed request, on its way back.

use core::time::Duration;

use endpoint_picker::restore::Restore;

use crate::answer_tokens::AnswerTokens;
use crate::headers::AnswerHead;
use crate::host;
use crate::labels::Labels;
use crate::stats::Stats;

/// What an answer needs on its way to the client.
#[derive(Debug, Default)]
pub(crate) struct Response {
    /// Headers that tell what was decided.
    pub(crate) headers: Vec<(String, String)>,
    /// Puts the client's model back in the place of the one that served.
    pub(crate) restore: Option<Restore>,
    /// When its endpoint was chosen, until the first byte of its body has come.
    pub(crate) awaited_since: Option<Duration>,
    /// Whose its tokens are, until it begins, if they are counted.
    pub(crate) models: Option<Labels>,
    tokens: Option<AnswerTokens>,
}

impl Response {
    /// Makes the answer's headers fit what will come after them.
    pub(crate) fn begin(&mut self, head: &AnswerHead, has_body: bool) -> host::Result<()> {
        for (name, value) in self.headers.drain(..) {
            host::set_response_header(&name, &value)?;
        }
        if let (Some(models), Some(chosen)) = (self.models.take(), self.awaited_since) {
            self.tokens = AnswerTokens::begin(models, head, chosen);
        }
        if self.restore.is_some() {
            let encoding = head.content_encoding.as_deref();
            if has_body && encoding.is_none_or(|encoding| encoding.eq_ignore_ascii_case(b"identity")) {
                // Known only when all of it has gone out.
                host::remove_response_header("content-length")?;
            } else {
                self.restore = None;
            }
        }
        Ok(())
    }

    /// A part of the answer has come.
    pub(crate) fn pass(&mut self, is_last: bool, stats: &Stats) {
        if let Some(since) = self.awaited_since.take()
            && let Ok(now) = host::now()
        {
            stats.first_byte.record(now.saturating_sub(since).as_millis());
            if let Some(tokens) = &mut self.tokens {
                tokens.note_first_byte(now);
            }
        }
        if self.restore.is_some() || self.tokens.is_some() {
            if let Err(error) = self.read(is_last) {
                log::error!("{error}; a part of the answer goes on as it is");
                self.tokens = None;
            }
            if is_last {
                self.count_tokens(stats);
            }
        }
    }

    /// Looks at the chunk, and puts another one in its place if need be.
    fn read(&mut self, is_last: bool) -> host::Result<()> {
        let chunk = host::response_chunk()?;
        if let Some(tokens) = &mut self.tokens {
            tokens.read(&chunk);
        }
        let instead = self.restore.as_mut().and_then(|restore| restore.chunk(&chunk, is_last));
        instead.map_or(Ok(()), |bytes| host::set_response_chunk(&bytes))
    }

    /// The answer ends with trailers.
    pub(crate) fn end_with_trailers(&mut self, stats: &Stats) {
        if self.restore.as_ref().is_some_and(Restore::is_holding) {
            // Nothing can be sent any more when trailers have come.
            log::warn!("an answer ended within the name of its model; its last bytes are lost");
        }
        self.count_tokens(stats);
    }

    fn count_tokens(&mut self, stats: &Stats) {
        if let Some(Err(error)) = self.tokens.take().map(|tokens| tokens.count(stats)) {
            log::error!("{error}; an answer's tokens are not counted");
        }
    }
}
