//! A prompt that is one string, several strings, or token ids.

use serde::de::SeqAccess;

use super::Fault;
use super::field::Scope;
use super::value::{Number, Reader, Str, element, pass_array};
use crate::prompt::{BYTES_PER_TOKEN, LEAST_PROMPT, Text, WHOLE_PROMPTS};

/// What the client gave for a prompt; never empty.
pub(super) enum Given<'a> {
    Text(Text<'a>),
    /// The kept ones of `count` strings, and the tokens of all.
    Texts {
        texts: Vec<Text<'a>>,
        count: u64,
        tokens: u64,
        /// Bytes of the others, as they would stand in an array.
        dropped: u64,
    },
    /// The kept ones of `count` token ids.
    Ids {
        ids: Vec<u32>,
        count: u64,
    },
}

pub(super) struct GivenReader<'s, 'c, 'a> {
    pub(super) scope: &'s Scope<'c, 'a>,
}

const RULE: &str = "must be a string, an array of strings, or an array of token ids";

impl<'a> Reader<'a> for GivenReader<'_, '_, 'a> {
    type Value = Option<Given<'a>>;

    fn other(self) -> Self::Value {
        self.scope.fault(Fault::Field(RULE));
        None
    }

    fn string(self, value: Str<'a, '_>) -> Self::Value {
        (!value.is_empty()).then(|| Given::Text(self.scope.text_of(value)))
    }

    fn array<A: SeqAccess<'a>>(self, mut array: A) -> Result<Self::Value, A::Error> {
        let scope = self.scope;
        // The first element decides what all of them must be.
        let given = match element(&mut array, Element { scope })? {
            None => return Ok(None),
            Some(Item::Text(first)) => texts(first, &mut array, scope)?,
            Some(Item::Id(first)) => ids(first, &mut array, scope)?,
            Some(Item::Other) => None,
        };
        pass_array(array)?;
        if given.is_none() {
            scope.fault(Fault::Field(RULE));
        }
        Ok(given)
    }
}

fn texts<'a, A: SeqAccess<'a>>(
    first: Text<'a>,
    array: &mut A,
    scope: &Scope<'_, 'a>,
) -> Result<Option<Given<'a>>, A::Error> {
    let mut texts = Vec::new();
    let limit = scope.options.keep_bytes;
    let mut room = limit.saturating_mul(WHOLE_PROMPTS);
    let (mut count, mut tokens, mut dropped) = (0, 0, 0);
    let mut next = Some(Item::Text(first));
    while let Some(item) = next {
        let Item::Text(text) = item else { return Ok(None) };
        count += 1;
        tokens += text.bytes.div_ceil(BYTES_PER_TOKEN as u64);
        // The first one may be the only one, and is then a prompt like a plain string, also where nothing is kept of it.
        if room > 0 || texts.is_empty() {
            room = room.saturating_sub(text.kept.len().min(limit).max(LEAST_PROMPT));
            texts.push(text);
        } else {
            dropped += text.bytes + 3;
        }
        next = element(array, Element { scope })?;
    }
    Ok(Some(Given::Texts { texts, count, tokens, dropped }))
}

fn ids<'a, A: SeqAccess<'a>>(
    first: u32,
    array: &mut A,
    scope: &Scope<'_, 'a>,
) -> Result<Option<Given<'a>>, A::Error> {
    let room = scope.options.keep_bytes / BYTES_PER_TOKEN;
    let mut ids = Vec::new();
    let mut count = 0;
    let mut next = Some(Item::Id(first));
    while let Some(item) = next {
        let Item::Id(id) = item else { return Ok(None) };
        count += 1;
        if ids.len() < room {
            ids.push(id);
        }
        next = element(array, Element { scope })?;
    }
    Ok(Some(Given::Ids { ids, count }))
}

/// An element of a prompt array.
enum Item<'a> {
    Text(Text<'a>),
    Id(u32),
    Other,
}

struct Element<'s, 'c, 'a> {
    scope: &'s Scope<'c, 'a>,
}

impl<'a> Reader<'a> for Element<'_, '_, 'a> {
    type Value = Item<'a>;

    fn other(self) -> Item<'a> {
        Item::Other
    }

    fn number(self, value: Number) -> Item<'a> {
        token_id(value).map_or(Item::Other, Item::Id)
    }

    fn string(self, value: Str<'a, '_>) -> Item<'a> {
        Item::Text(self.scope.text_of(value))
    }
}

/// The number as a token id, if it is a whole one from 0 to 2³²−1 however it is written.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "compared with the original")]
#[expect(clippy::float_cmp, reason = "exactly representable or not")]
pub(super) fn token_id(number: Number) -> Option<u32> {
    let number = number.as_f64();
    let id = number as u32;
    (f64::from(id) == number).then_some(id)
}
