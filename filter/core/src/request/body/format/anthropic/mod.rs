//! Anthropic messages: tools, the system text, then role and content of every message, without separators.

mod content;
mod source;
mod tools;

use serde::de::{MapAccess, SeqAccess};

use content::{Content, ContentReader, Place};
use tools::Tools;

use crate::body::field::{IfCount, Scope};
use crate::body::{Fault, Input};
use crate::json::{Pass, Reader, element, key, value};
use crate::prompt::{Pieces, Prompt, Text};

#[derive(Default)]
pub(in crate::request::body) struct Messages<'a> {
    tools: Option<Text<'a>>,
    system: Content<'a>,
    messages: Option<Pieces<'a>>,
    max_tokens: Option<u64>,
}

impl<'a> Input<'a> for Messages<'a> {
    fn member<A: MapAccess<'a>>(
        &mut self,
        name: &str,
        object: &mut A,
        scope: &Scope<'_, 'a>,
    ) -> Result<(), A::Error> {
        match name {
            "messages" => self.messages = value(object, MessageList { scope })?,
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

/// The pieces of the messages; `None` without a message.
struct MessageList<'s, 'c, 'a> {
    scope: &'s Scope<'c, 'a>,
}

impl<'a> Reader<'a> for MessageList<'_, '_, 'a> {
    type Value = Option<Pieces<'a>>;

    fn other(self) -> Self::Value {
        self.scope.fault(Fault::Field("messages must be an array"));
        None
    }

    fn null(self) -> Self::Value {
        None
    }

    fn array<A: SeqAccess<'a>>(self, mut array: A) -> Result<Self::Value, A::Error> {
        let scope = self.scope;
        let mut pieces = Pieces::new(scope.options.keep_bytes);
        let mut any = false;
        while element(&mut array, Message { scope, pieces: &mut pieces })?.is_some() {
            any = true;
        }
        Ok(any.then_some(pieces))
    }
}

struct Message<'s, 'c, 'a> {
    scope: &'s Scope<'c, 'a>,
    pieces: &'s mut Pieces<'a>,
}

impl<'a> Reader<'a> for Message<'_, '_, 'a> {
    type Value = ();

    fn other(self) {
        self.scope.fault(Fault::Field("a message must be an object"));
    }

    fn null(self) {}

    fn object<A: MapAccess<'a>>(self, mut object: A) -> Result<(), A::Error> {
        let Self { scope, pieces } = self;
        let mut role = Text::default();
        let mut content = Content::default();
        while let Some(name) = key(&mut object)? {
            match &*name {
                "role" => {
                    role = value(&mut object, scope.text("a message's role must be a string"))?;
                }
                "content" => {
                    content = value(&mut object, ContentReader { scope, place: Place::Message })?;
                }
                _ => value(&mut object, Pass)?,
            }
        }
        pieces.text(role);
        content.append_to(pieces);
        Ok(())
    }
}
