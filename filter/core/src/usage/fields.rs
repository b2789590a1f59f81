//! The members of a `usage` object.

use serde::de::MapAccess;

use super::Usage;
use crate::json::{self, Number, Pass, Reader, Str, key, value};

/// A thousand times what any model takes: more is no number of tokens.
const MOST_TOKENS: u64 = 1_000_000_000;

/// Reads the object; one that is no JSON says nothing.
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
        let (mut input, mut output, mut cached) = ([None; 2], [None; 2], [None; 3]);
        while let Some(name) = key(&mut object)? {
            match &*name {
                // The first of each wins, as in the EPP.
                "prompt_tokens" => input[0] = value(&mut object, Tokens)?,
                "input_tokens" => input[1] = value(&mut object, Tokens)?,
                "completion_tokens" => output[0] = value(&mut object, Tokens)?,
                "output_tokens" => output[1] = value(&mut object, Tokens)?,
                "input_tokens_details" => cached[0] = value(&mut object, Details)?,
                "prompt_tokens_details" => cached[1] = value(&mut object, Details)?,
                "cache_read_input_tokens" => cached[2] = value(&mut object, Tokens)?,
                _ => value(&mut object, Pass)?,
            }
        }
        let first = |spellings: &[Option<u64>]| spellings.iter().copied().flatten().next();
        Ok(Usage {
            input: first(&input).unwrap_or(0),
            output: first(&output).unwrap_or(0),
            cached: first(&cached),
        })
    }
}

/// Cached tokens among the details of a prompt.
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

/// A number of tokens, also as a string; a fraction is cut off.
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
