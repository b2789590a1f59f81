//! APIs whose prompt is one string, several strings, or token ids.

use std::borrow::Cow;

use serde::de::MapAccess;

use super::Input;
use super::field::{IfCount, Kind, Scope, TextField, Typed};
use super::given::{Given, GivenReader};
use super::json_text::JsonText;
use super::value::{Pass, value};
use crate::prompt::{Pieces, Prompt, Text};

#[derive(Default)]
pub(super) struct Completions<'a> {
    prompt: Option<Given<'a>>,
    max_tokens: Option<u64>,
}

impl<'a> Input<'a> for Completions<'a> {
    fn member<A: MapAccess<'a>>(
        &mut self,
        name: &str,
        object: &mut A,
        scope: &Scope<'_, 'a>,
    ) -> Result<(), A::Error> {
        match name {
            "prompt" => self.prompt = value(object, GivenReader { scope })?,
            "max_tokens" => self.max_tokens = value(object, IfCount)?,
            _ => value(object, Pass)?,
        }
        Ok(())
    }

    fn max_output_tokens(&self) -> Option<u64> {
        self.max_tokens
    }

    fn prompt(self, scope: &Scope<'_, 'a>) -> Option<Prompt<'a>> {
        let mut pieces = Pieces::new(scope.options.keep_bytes);
        match self.prompt? {
            Given::Text(text) => pieces.text(text),
            Given::Ids { ids, count } => pieces.ids(ids, count),
            Given::Texts { mut texts, count: 1, .. } => pieces.text(texts.pop().unwrap_or_default()),
            Given::Texts { texts, tokens, .. } => {
                return Some(Prompt::several(texts, scope.options.keep_bytes, tokens));
            }
        }
        Some(Prompt::one(pieces))
    }
}

#[derive(Default)]
pub(super) struct Embeddings<'a> {
    input: Option<Given<'a>>,
}

impl<'a> Input<'a> for Embeddings<'a> {
    fn member<A: MapAccess<'a>>(
        &mut self,
        name: &str,
        object: &mut A,
        scope: &Scope<'_, 'a>,
    ) -> Result<(), A::Error> {
        match name {
            "input" => self.input = value(object, GivenReader { scope })?,
            _ => value(object, Pass)?,
        }
        Ok(())
    }

    fn prompt(self, scope: &Scope<'_, 'a>) -> Option<Prompt<'a>> {
        let mut pieces = Pieces::new(scope.options.keep_bytes);
        let (raw, texts) = match self.input? {
            Given::Ids { ids, count } => {
                pieces.ids(ids, count);
                return Some(Prompt::one(pieces));
            }
            Given::Text(text) => (text, None),
            Given::Texts { texts, dropped, .. } => (Text::default(), Some((texts, dropped))),
        };
        // The reference encodes its own structure here, under the names its fields have in Go.
        let mut json = JsonText::new(scope.options.keep_bytes);
        json.json(r#"{"Raw":"#);
        json.string(&raw);
        json.json(r#","Strings":"#);
        if let Some((texts, dropped)) = texts {
            let mut before = "[";
            for text in texts {
                json.json(before);
                json.string(&text);
                before = ",";
            }
            json.part(&Text { kept: Cow::Borrowed(b""), bytes: dropped });
            json.json("]");
        } else {
            json.json("null");
        }
        json.json(r#","TokenIDs":null}"#);
        pieces.text(json.finish());
        Some(Prompt::one(pieces))
    }
}

/// Image generation has a prompt, but no tokens.
#[derive(Default)]
pub(super) struct Images {
    has_prompt: bool,
}

impl<'a> Input<'a> for Images {
    fn member<A: MapAccess<'a>>(
        &mut self,
        name: &str,
        object: &mut A,
        scope: &Scope<'_, 'a>,
    ) -> Result<(), A::Error> {
        let typed = |kind| Typed { scope, kind, rule: "a field has the wrong type" };
        match name {
            "prompt" => {
                let prompt = value(object, TextField { scope, rule: "prompt must be a string" })?;
                self.has_prompt = !prompt.is_empty();
            }
            "size" => value(object, typed(Kind::Text))?,
            "n" | "num_inference_steps" => value(object, typed(Kind::Integer))?,
            _ => value(object, Pass)?,
        }
        Ok(())
    }

    fn prompt(self, _: &Scope<'_, 'a>) -> Option<Prompt<'a>> {
        self.has_prompt.then(Prompt::default)
    }
}
