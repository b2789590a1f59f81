//! Anthropic messages: tools, the system text, then role and content of every message, without separators.

mod content;
mod source;
mod tools;

use serde::de::MapAccess;

use content::{Content, ContentReader, Place};
use tools::Tools;

use super::messages::{MessageContent, MessageList};
use super::{Format, Rules};
use crate::json::{Pass, value};
use crate::request::body::Parser;
use crate::request::body::field::{IfCount, Scope};
use crate::request::prompt::{Pieces, Prompt, Text};

#[derive(Default)]
pub(super) struct Messages<'a> {
    tools: Option<Text<'a>>,
    system: Content<'a>,
    messages: Option<Pieces<'a>>,
    max_tokens: Option<u64>,
}

impl<'a> Format<'a> for Messages<'a> {
    const RULES: Rules = Rules {
        serves: |path| path.ends_with("/messages"),
        not_served: "unsupported API endpoint",
        not_an_object: "error unmarshaling request body: ",
        incomplete: "invalid messages request: must have at least one message",
        broken_field: Some("error parsing messages request: "),
        ..Rules::new(Parser::Anthropic, &["messages"])
    };

    fn member<A: MapAccess<'a>>(
        &mut self,
        name: &str,
        object: &mut A,
        scope: &Scope<'_, 'a>,
    ) -> Result<(), A::Error> {
        match name {
            "messages" => self.messages = value(object, MessageList::<Content<'_>>::new(scope))?,
            "system" => self.system = value(object, ContentReader { scope, place: Place::System })?,
            "tools" => self.tools = value(object, Tools { scope })?,
            "max_tokens" => self.max_tokens = value(object, IfCount)?,
            _ => value(object, Pass)?,
        }
        Ok(())
    }

    fn max_output_tokens(&self) -> Option<u64> {
        self.max_tokens
    }

    fn prompt(self, scope: &Scope<'_, 'a>) -> Option<Prompt<'a>> {
        let messages = self.messages?;
        let mut pieces = Pieces::new(scope.options.keep_bytes);
        if let Some(tools) = self.tools {
            pieces.text(tools);
        }
        self.system.append_to(&mut pieces);
        pieces.append(messages);
        Some(Prompt::one(pieces))
    }
}
