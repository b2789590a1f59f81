//! APIs whose prompt is token ids: the engines' own generation.

use std::borrow::Cow;

use serde::de::{MapAccess, SeqAccess};

use super::given::{Ids, token_id};
use crate::json::{Number, Pass, Reader, element, key, value};
use crate::request::body::field::{IfCount, Scope};
use crate::request::body::object::{Format, Model, Rules};
use crate::request::body::{Fault, Parser};
use crate::request::prompt::{BYTES_PER_TOKEN, Pieces, Prompt};

impl Ids {
    fn prompt<'a>(self, scope: &Scope<'_, 'a>) -> Option<Prompt<'a>> {
        let mut pieces = Pieces::new(scope.options.keep_bytes);
        pieces.ids(self.ids, self.count);
        (self.count > 0).then(|| Prompt::one(pieces))
    }
}

/// vLLM: `token_ids` and `sampling_params.max_tokens`.
#[derive(Default)]
pub(super) struct Generate {
    ids: Ids,
    max_tokens: Option<u64>,
}

impl<'a> Format<'a> for Generate {
    const RULES: Rules = Rules {
        serves: |path| path.ends_with("inference/v1/generate"),
        not_an_object: "",
        incomplete: "invalid generate request: must have non-empty token_ids field",
        broken_field: Some("invalid generate request: "),
        ..Rules::new(Parser::VllmHttp, &["inference/v1/generate"])
    };

    fn member<A: MapAccess<'a>>(
        &mut self,
        name: &str,
        object: &mut A,
        scope: &Scope<'_, 'a>,
    ) -> Result<(), A::Error> {
        match name {
            "token_ids" => self.ids = value(object, TokenIds { scope })?,
            "sampling_params" => self.max_tokens = value(object, Limit("max_tokens"))?,
            _ => value(object, Pass)?,
        }
        Ok(())
    }

    fn max_output_tokens(&self) -> Option<u64> {
        self.max_tokens
    }

    fn prompt(self, scope: &Scope<'_, 'a>) -> Option<Prompt<'a>> {
        self.ids.prompt(scope)
    }
}

/// SGLang: `input_ids`, `sampling_params.max_new_tokens`, and `extra_key` for a salt.
#[derive(Default)]
pub(super) struct SglangGenerate<'a> {
    ids: Option<Ids>,
    max_new_tokens: Option<u64>,
    extra_key: Option<Cow<'a, str>>,
}

impl<'a> Format<'a> for SglangGenerate<'a> {
    const RULES: Rules = Rules {
        serves: |path| {
            let path = path.trim();
            matches!(path.strip_suffix('/').unwrap_or(path), "generate" | "/generate")
        },
        model: Model::Unread,
        has_cache_salt: false,
        checks_stream: true,
        not_an_object: "invalid generate request: ",
        incomplete: "invalid generate request: input_ids must be provided",
        broken_field: Some("invalid generate request: "),
        ..Rules::new(Parser::SglangHttp, &["generate"])
    };

    fn member<A: MapAccess<'a>>(
        &mut self,
        name: &str,
        object: &mut A,
        scope: &Scope<'_, 'a>,
    ) -> Result<(), A::Error> {
        match name {
            "input_ids" => self.ids = value(object, InputIds { scope })?,
            "sampling_params" => self.max_new_tokens = value(object, Limit("max_new_tokens"))?,
            "extra_key" => {
                let rule = "extra_key must be a string";
                self.extra_key = value(object, scope.name(rule))?;
            }
            _ => value(object, Pass)?,
        }
        Ok(())
    }

    fn max_output_tokens(&self) -> Option<u64> {
        self.max_new_tokens
    }

    fn take_salt(&mut self) -> Option<Cow<'a, str>> {
        self.extra_key.take()
    }

    fn prompt(self, scope: &Scope<'_, 'a>) -> Option<Prompt<'a>> {
        let ids = self.ids?;
        if ids.count == 0 {
            scope.fault(Fault::Field("input_ids cannot be empty"));
        }
        ids.prompt(scope)
    }
}

/// Integers from 0 to 2³²−1, in any spelling; the message names the first other element.
struct TokenIds<'s, 'c, 'a> {
    scope: &'s Scope<'c, 'a>,
}

impl<'a> Reader<'a> for TokenIds<'_, '_, 'a> {
    type Value = Ids;

    fn other(self) -> Ids {
        self.scope.fault(Fault::Field("token_ids must be an array of numbers"));
        Ids::default()
    }

    fn null(self) -> Ids {
        Ids::default()
    }

    fn array<A: SeqAccess<'a>>(self, mut array: A) -> Result<Ids, A::Error> {
        let mut ids = Ids::default();
        let room = self.scope.options.keep_bytes / BYTES_PER_TOKEN;
        while let Some(number) = element(&mut array, IfNumber)? {
            let id = number.and_then(token_id).unwrap_or_else(|| {
                self.scope.fault(match number {
                    Some(number) => Fault::TokenId { index: ids.count, value: number.as_f64() },
                    None => Fault::Field("token_ids must be an array of numbers"),
                });
                0
            });
            ids.add(id, room);
        }
        Ok(ids)
    }
}

/// Integers from 0 to 2³²−1, spelled without fraction and exponent.
struct InputIds<'s, 'c, 'a> {
    scope: &'s Scope<'c, 'a>,
}

impl<'a> Reader<'a> for InputIds<'_, '_, 'a> {
    type Value = Option<Ids>;

    fn other(self) -> Self::Value {
        self.scope.fault(Fault::Field("input_ids must be an array of uint32 integers"));
        None
    }

    fn null(self) -> Self::Value {
        None
    }

    fn array<A: SeqAccess<'a>>(self, mut array: A) -> Result<Self::Value, A::Error> {
        let mut ids = Ids::default();
        let room = self.scope.options.keep_bytes / BYTES_PER_TOKEN;
        let mut wrong = false;
        while let Some(number) = element(&mut array, IfNumber)? {
            let id = match number {
                Some(Number::Unsigned(id)) => u32::try_from(id).ok(),
                Some(Number::Negative(_) | Number::Float(_)) | None => None,
            };
            match id {
                Some(id) => ids.add(id, room),
                None => wrong = true,
            }
        }
        Ok(if wrong { self.other() } else { Some(ids) })
    }
}

struct IfNumber;

impl Reader<'_> for IfNumber {
    type Value = Option<Number>;

    fn other(self) -> Self::Value {
        None
    }

    fn number(self, value: Number) -> Self::Value {
        Some(value)
    }
}

/// The integer in the member with this name of an object.
struct Limit(&'static str);

impl<'a> Reader<'a> for Limit {
    type Value = Option<u64>;

    fn other(self) -> Self::Value {
        None
    }

    fn object<A: MapAccess<'a>>(self, mut object: A) -> Result<Self::Value, A::Error> {
        let mut limit = None;
        while let Some(name) = key(&mut object)? {
            if *name == *self.0 {
                limit = value(&mut object, IfCount)?;
            } else {
                value(&mut object, Pass)?;
            }
        }
        Ok(limit)
    }
}
