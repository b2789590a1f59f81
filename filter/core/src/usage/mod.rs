//! The tokens that an answer says it took, read while it passes.
//!
//! As in the EPP: `usage` of a plain answer, and of each event of a streamed one, in the words of chat, completions and
//! responses (`prompt_tokens` or `input_tokens`, `completion_tokens` or `output_tokens`, `cached_tokens` of their details) or of
//! Anthropic's messages (`cache_read_input_tokens`); of events also the usage of `response` and of `message`. Later fields that
//! are not zero take the place of earlier ones. Unlike the EPP it is found however the answer is cut into pieces.
//!
//! Nothing of an answer is kept but its usage, so there is no limit to an answer, or to a line of it.

mod fields;
mod scanner;

use core::time::Duration;

use scanner::Scanner;

/// What lines of a stream begin with that have something to say.
const DATA: &[u8] = b"data:";

/// What an answer says about its tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Of the request; 0 if the answer does not say.
    pub input: u64,
    /// Of the answer; 0 if it does not say.
    pub output: u64,
    /// Those of the request that the server had computed before. Not among `input` in Anthropic's messages.
    pub cached: Option<u64>,
}

impl Usage {
    /// The time of each token, by the time of all from the request on: the EPP's `request_ntpot_seconds`. `None` without
    /// tokens.
    pub fn time_per_token(&self, whole: Duration) -> Option<Duration> {
        shared(whole, self.output)
    }

    /// The time of each token after the first, by the time from the first to the last: the EPP's
    /// `request_streaming_tpot_seconds`. `None` with fewer than two.
    pub fn time_per_further_token(&self, since_first: Duration) -> Option<Duration> {
        shared(since_first, self.output.saturating_sub(1))
    }

    fn merge(&mut self, later: Self) {
        let Self { input, output, cached } = later;
        for (field, later) in [(&mut self.input, input), (&mut self.output, output)] {
            if later > 0 {
                *field = later;
            }
        }
        self.cached = cached.filter(|&cached| cached > 0).or(self.cached).or(cached);
    }
}

fn shared(time: Duration, tokens: u64) -> Option<Duration> {
    time.checked_div(u32::try_from(tokens).ok()?)
}

/// Reads the usage of one answer.
#[derive(Clone, Debug)]
pub struct UsageReader {
    scanner: Scanner,
    /// `None` for a plain answer, which is one JSON text.
    line: Option<Line>,
    usage: Usage,
}

/// The line of a stream that is being read.
#[derive(Clone, Copy, Debug)]
enum Line {
    /// It begins with so many bytes of [`DATA`], and no more has come.
    Begins(usize),
    Data,
    /// A comment, the name of an event or an empty line.
    Other,
}

impl UsageReader {
    /// For an answer of this `content-type` and `content-encoding`. `None` if it is neither JSON nor a stream of events, or
    /// compressed.
    pub fn new(content_type: &[u8], content_encoding: Option<&[u8]>) -> Option<Self> {
        let is_plain = content_encoding.is_none_or(|encoding| encoding.eq_ignore_ascii_case(b"identity"));
        let media_type = content_type.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
        let line = if media_type.eq_ignore_ascii_case(b"text/event-stream") {
            Some(Line::Begins(0))
        } else if media_type.eq_ignore_ascii_case(b"application/json") {
            None
        } else {
            return None;
        };
        is_plain.then(|| Self { scanner: Scanner::default(), line, usage: Usage::default() })
    }

    /// Whether the answer is a stream of events.
    pub fn is_streamed(&self) -> bool {
        self.line.is_some()
    }

    /// The next piece of the answer has come.
    pub fn piece(&mut self, mut piece: &[u8]) {
        if !self.is_streamed() {
            return self.scanner.read(piece);
        }
        while let Some(end) = piece.iter().position(|&byte| byte == b'\n') {
            self.part_of_line(&piece[..end]);
            self.end_text();
            self.line = Some(Line::Begins(0));
            piece = &piece[end + 1..];
        }
        self.part_of_line(piece);
    }

    /// The answer has come whole.
    pub fn finish(mut self) -> Usage {
        self.end_text();
        self.usage
    }

    fn part_of_line(&mut self, mut part: &[u8]) {
        if let Some(Line::Begins(seen)) = self.line {
            let left = &DATA[seen..];
            let now = left.len().min(part.len());
            self.line = Some(match (left[..now] == part[..now], now == left.len()) {
                (true, true) => Line::Data,
                (true, false) => Line::Begins(seen + now),
                (false, _) => Line::Other,
            });
            part = &part[now..];
        }
        if let Some(Line::Data) = self.line {
            self.scanner.read(part);
        }
    }

    /// A JSON text has ended; what it said counts if it was whole.
    fn end_text(&mut self) {
        if let Some(usage) = core::mem::take(&mut self.scanner).finish() {
            self.usage.merge(usage);
        }
    }
}
