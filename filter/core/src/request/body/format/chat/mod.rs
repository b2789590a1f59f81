//! Chat completions: tools, then role and content of every message, without separators.

mod block;

use serde::de::{MapAccess, SeqAccess};

use block::Block;

use super::messages::{MessageContent, MessageList};
use super::{Format, Rules};
use crate::json::{Pass, Reader, Str, element, value};
use crate::request::body::field::{IfCount, Kind, Scope, Typed};
use crate::request::body::text::canonical;
use crate::request::body::{Fault, Parser};
use crate::request::prompt::{Pieces, Prompt, Text};

#[derive(Default)]
pub(super) struct Chat<'a> {
    tools: Option<Text<'a>>,
    messages: Option<Pieces<'a>>,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
}

impl<'a> Format<'a> for Chat<'a> {
    const RULES: Rules = Rules {
        incomplete: "invalid chat completions request: must have valid messages field",
        ..Rules::new(Parser::OpenAi, &["chat/completions", "chat/completions/render"])
    };

    fn member<A: MapAccess<'a>>(
        &mut self,
        name: &str,
        object: &mut A,
        scope: &Scope<'_, 'a>,
    ) -> Result<(), A::Error> {
        // The EPP decodes some fields for other tokenizers, and so refuses a wrong type in them.
        let typed = |kind| Typed { scope, kind, rule: "a field has the wrong type" };
        match name {
            "messages" => self.messages = value(object, MessageList::<Content<'_>>::new(scope))?,
            "tools" => self.tools = tools(canonical::member(object, scope)?, scope),
            "max_tokens" => self.max_tokens = value(object, IfCount)?,
            "max_completion_tokens" => self.max_completion_tokens = value(object, IfCount)?,
            "chat_template" => value(object, typed(Kind::Text))?,
            "chat_template_kwargs" => value(object, typed(Kind::Object))?,
            "documents" => value(object, typed(Kind::Array))?,
            "add_generation_prompt" | "continue_final_message" | "return_assistant_tokens_mask" => {
                value(object, typed(Kind::Boolean))?;
            }
            _ => value(object, Pass)?,
        }
        Ok(())
    }

    fn max_output_tokens(&self) -> Option<u64> {
        self.max_completion_tokens.or(self.max_tokens)
    }

    fn prompt(self, scope: &Scope<'_, 'a>) -> Option<Prompt<'a>> {
        let messages = self.messages?;
        let Some(tools) = self.tools else { return Some(Prompt::one(messages)) };
        let mut pieces = Pieces::new(scope.options.keep_bytes);
        pieces.text(tools);
        pieces.append(messages);
        Some(Prompt::one(pieces))
    }
}

/// The text of the tools; `None` if there are none.
fn tools<'a>(tools: Text<'a>, scope: &Scope<'_, 'a>) -> Option<Text<'a>> {
    if canonical::is_null(&tools) || canonical::is_empty_array(&tools) {
        return None;
    }
    if !canonical::is_array(&tools) {
        scope.fault(Fault::Field("tools must be an array"));
    }
    Some(tools)
}

/// A string, or the pieces of blocks.
enum Content<'a> {
    Text(Text<'a>),
    Blocks(Pieces<'a>),
}

impl Default for Content<'_> {
    fn default() -> Self {
        Self::Text(Text::default())
    }
}

impl<'a> MessageContent<'a> for Content<'a> {
    fn member<A: MapAccess<'a>>(
        &mut self,
        name: &str,
        message: &mut A,
        scope: &Scope<'_, 'a>,
    ) -> Result<(), A::Error> {
        match name {
            "content" => *self = value(message, ContentReader { scope })?,
            "tool_calls" => {
                let rule = "a message's tool_calls must be an array";
                value(message, Typed { scope, kind: Kind::Array, rule })?;
            }
            _ => value(message, Pass)?,
        }
        Ok(())
    }

    fn append_to(self, pieces: &mut Pieces<'a>) {
        match self {
            Self::Text(text) => pieces.text(text),
            Self::Blocks(blocks) => pieces.append(blocks),
        }
    }
}

struct ContentReader<'s, 'c, 'a> {
    scope: &'s Scope<'c, 'a>,
}

impl<'a> Reader<'a> for ContentReader<'_, '_, 'a> {
    type Value = Content<'a>;

    fn other(self) -> Self::Value {
        self.scope.fault(Fault::Field("a message's content must be a string, null or an array of blocks"));
        Content::default()
    }

    fn null(self) -> Self::Value {
        Content::default()
    }

    fn string(self, value: Str<'a, '_>) -> Self::Value {
        Content::Text(self.scope.text_of(value))
    }

    fn array<A: SeqAccess<'a>>(self, mut array: A) -> Result<Self::Value, A::Error> {
        let scope = self.scope;
        let mut pieces = Pieces::new(scope.options.keep_bytes);
        while element(&mut array, Block { scope, pieces: &mut pieces })?.is_some() {}
        Ok(Content::Blocks(pieces))
    }
}
