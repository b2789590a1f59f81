//! The token counts in a response.
//!
//! As in the EPP: `usage` of a plain response, and of each event of a streamed one, with the names of chat,
//! completions and responses (`prompt_tokens` or `input_tokens`, `completion_tokens` or `output_tokens`,
//! `cached_tokens` of their details) or of Anthropic's messages (`cache_read_input_tokens`); in events also
//! the usage of `response` and of `message`. Later numbers that are not zero replace earlier ones. Unlike in
//! the EPP, usage is found wherever the response is cut into chunks.

use core::time::Duration;

use crate::json::{self, Number, Object, Pass, Reader, Str, key, value};

/// The token counts of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tokens of the request; 0 if the response has no such number.
    pub input: u64,
    /// Tokens of the response; 0 if it has no such number.
    pub output: u64,
    /// All tokens by the server's own count, if it came with both numbers above, or else their sum.
    pub total: u64,
    /// Tokens of the request that the server took from its prefix cache.
    pub cached: Option<u64>,
    /// Tokens of the request that `input` does not include: in Anthropic's messages, those read from the
    /// cache or written to it.
    pub beyond_input: u64,
}

impl Usage {
    /// All tokens of the request; 0 if the response has no such number.
    pub fn prompt(&self) -> u64 {
        self.input.saturating_add(self.beyond_input)
    }

    /// The mean time of a token, from the time of the whole request: the EPP's `request_ntpot_seconds`.
    /// `None` without tokens.
    pub fn time_per_token(&self, whole: Duration) -> Option<Duration> {
        mean(whole, self.output)
    }

    /// The mean time of a token after the first, from the time between the first and the last: the EPP's
    /// `request_streaming_tpot_seconds`. `None` with fewer than two tokens.
    pub fn time_per_further_token(&self, since_first: Duration) -> Option<Duration> {
        mean(since_first, self.output.saturating_sub(1))
    }

    pub(super) fn merge(&mut self, later: Self) {
        let Self { input, output, total, cached, beyond_input } = later;
        let fields =
            [(&mut self.input, input), (&mut self.output, output), (&mut self.beyond_input, beyond_input)];
        for (field, later) in fields {
            if later > 0 {
                *field = later;
            }
        }
        let has_total = input > 0 && output > 0 && total > 0;
        self.total = if has_total { total } else { self.input.saturating_add(self.output) };
        // A later 0 does not replace a number, but shows that the server reports cached tokens.
        self.cached = cached.filter(|&cached| cached > 0).or(self.cached).or(cached);
    }
}

fn mean(time: Duration, tokens: u64) -> Option<Duration> {
    time.checked_div(u32::try_from(tokens).ok()?)
}

/// A thousand times the longest context of any model: a larger number is not a number of tokens.
pub(super) const MAX_TOKENS: u64 = 1_000_000_000;

/// Reads the object. Text that is not JSON has no usage.
pub(super) fn read_usage(object: &[u8]) -> Usage {
    let text = core::str::from_utf8(object).unwrap_or_default();
    json::read(text, UsageFields).unwrap_or_default()
}

struct UsageFields;

impl<'a> Reader<'a> for UsageFields {
    type Value = Usage;

    fn other(self) -> Usage {
        Usage::default()
    }

    fn object(self, mut object: Object<'_, 'a>) -> json::Result<Usage> {
        let (mut input_tokens, mut prompt_tokens) = (None, None);
        let (mut output_tokens, mut completion_tokens) = (None, None);
        let (mut input_details, mut prompt_details) = (None, None);
        let (mut cache_read, mut cache_creation, mut total) = (None, None, None);
        while let Some(name) = key(&mut object)? {
            match &*name {
                "prompt_tokens" => prompt_tokens = value(&mut object, TokenCount)?,
                "input_tokens" => input_tokens = value(&mut object, TokenCount)?,
                "completion_tokens" => completion_tokens = value(&mut object, TokenCount)?,
                "output_tokens" => output_tokens = value(&mut object, TokenCount)?,
                "total_tokens" => total = value(&mut object, TokenCount)?,
                "input_tokens_details" => input_details = value(&mut object, Details)?,
                "prompt_tokens_details" => prompt_details = value(&mut object, Details)?,
                "cache_read_input_tokens" => cache_read = value(&mut object, TokenCount)?,
                "cache_creation_input_tokens" => cache_creation = value(&mut object, TokenCount)?,
                _ => value(&mut object, Pass)?,
            }
        }
        // `prompt_tokens` and inputs with details include the cached tokens.
        let excludes_cached = prompt_tokens.is_none() && input_details.is_none();
        let cached = [cache_read, cache_creation].into_iter().flatten().filter(|_| excludes_cached);
        // Of several names for one number the EPP takes the first in this order.
        Ok(Usage {
            input: prompt_tokens.or(input_tokens).unwrap_or(0),
            output: completion_tokens.or(output_tokens).unwrap_or(0),
            total: total.unwrap_or(0),
            cached: input_details.or(prompt_details).or(cache_read),
            beyond_input: cached.sum(),
        })
    }
}

/// The cached tokens in the details of a prompt.
struct Details;

impl<'a> Reader<'a> for Details {
    type Value = Option<u64>;

    fn other(self) -> Self::Value {
        None
    }

    fn object(self, mut object: Object<'_, 'a>) -> json::Result<Self::Value> {
        let mut cached = None;
        while let Some(name) = key(&mut object)? {
            if &*name == "cached_tokens" {
                cached = value(&mut object, TokenCount)?;
            } else {
                value(&mut object, Pass)?;
            }
        }
        Ok(cached)
    }
}

/// A number of tokens; also in a string. A fraction is cut off.
struct TokenCount;

impl<'a> Reader<'a> for TokenCount {
    type Value = Option<u64>;

    fn other(self) -> Self::Value {
        None
    }

    fn number(self, number: Number) -> Self::Value {
        let number = number.as_f64();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the range")]
        (0.0..=MAX_TOKENS as f64).contains(&number).then_some(number as u64)
    }

    fn string(self, text: Str<'a, '_>) -> Self::Value {
        self.number(Number::Float(text.parse().ok()?))
    }
}
