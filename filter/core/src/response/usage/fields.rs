//! The members of a `usage` object.

use serde::de::MapAccess;

use super::Usage;
use crate::json::{self, Number, Pass, Reader, Str, key, value};

/// A thousand times the longest context of any model: a larger number is not a number of tokens.
const MOST_TOKENS: u64 = 1_000_000_000;

/// Reads the object. Text that is not JSON has no usage.
pub(super) fn read(object: &[u8]) -> Usage {
    let text = core::str::from_utf8(object).unwrap_or_default();
    json::read(text, Fields).unwrap_or_default()
}

struct Fields;

impl<'a> Reader<'a> for Fields {
    type Value = Usage;

    fn other(self) -> Usage {
        Usage::default()
    }

    fn object<A: MapAccess<'a>>(self, mut object: A) -> Result<Usage, A::Error> {
        let (mut input_tokens, mut prompt_tokens) = (None, None);
        let (mut output_tokens, mut completion_tokens) = (None, None);
        let (mut input_details, mut prompt_details, mut cache_read) = (None, None, None);
        while let Some(name) = key(&mut object)? {
            match &*name {
                "prompt_tokens" => prompt_tokens = value(&mut object, Tokens)?,
                "input_tokens" => input_tokens = value(&mut object, Tokens)?,
                "completion_tokens" => completion_tokens = value(&mut object, Tokens)?,
                "output_tokens" => output_tokens = value(&mut object, Tokens)?,
                "input_tokens_details" => input_details = value(&mut object, Details)?,
                "prompt_tokens_details" => prompt_details = value(&mut object, Details)?,
                "cache_read_input_tokens" => cache_read = value(&mut object, Tokens)?,
                _ => value(&mut object, Pass)?,
            }
        }
        // Of several names for one number the EPP takes the first in this order.
        Ok(Usage {
            input: prompt_tokens.or(input_tokens).unwrap_or(0),
            output: completion_tokens.or(output_tokens).unwrap_or(0),
            cached: input_details.or(prompt_details).or(cache_read),
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

    fn object<A: MapAccess<'a>>(self, mut object: A) -> Result<Self::Value, A::Error> {
        let mut cached = None;
        while let Some(name) = key(&mut object)? {
            if name == "cached_tokens" {
                cached = value(&mut object, Tokens)?;
            } else {
                value(&mut object, Pass)?;
            }
        }
        Ok(cached)
    }
}

/// A number of tokens; also in a string. A fraction is cut off.
struct Tokens;

impl<'a> Reader<'a> for Tokens {
    type Value = Option<u64>;

    fn other(self) -> Self::Value {
        None
    }

    fn number(self, number: Number) -> Self::Value {
        let number = number.as_f64();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the range")]
        (0.0..=MOST_TOKENS as f64).contains(&number).then_some(number as u64)
    }

    fn string(self, text: Str<'a, '_>) -> Self::Value {
        self.number(Number::Float(text.parse().ok()?))
    }
}
