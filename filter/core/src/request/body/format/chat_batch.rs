//! Batches of chats: several lists of messages with the same parameters.

use super::chat::Content;
use super::messages::MessageList;
use crate::json::{self, Array, Object, Pass, Reader, element, value};
use crate::request::body::field::{IfCount, Scope};
use crate::request::body::object::{Format, Model, Refusal, Rules, read_parts};
use crate::request::body::{Body, Options, Parser};
use crate::request::prompt::{Pieces, Prompt, PromptList};

/// vLLM's `chat/completions/batch`: `messages` has a list for each chat.
#[derive(Default)]
pub(super) struct ChatBatch<'a> {
    chats: Option<PromptList<'a>>,
    max_tokens: Option<u64>,
    max_completion_tokens: Option<u64>,
}

impl<'a> Format<'a> for ChatBatch<'a> {
    const RULES: Rules =
        Rules { model: Model::Optional, ..Rules::new(Parser::Passthrough, &["chat/completions/batch"]) };

    fn member(&mut self, name: &str, object: &mut Object<'_, 'a>, scope: &Scope<'_>) -> json::Result<()> {
        match name {
            "messages" => self.chats = value(object, Chats { scope })?,
            "max_tokens" => self.max_tokens = value(object, IfCount)?,
            "max_completion_tokens" => self.max_completion_tokens = value(object, IfCount)?,
            _ => value(object, Pass)?,
        }
        Ok(())
    }

    fn max_output_tokens(&self) -> Option<u64> {
        self.max_completion_tokens.or(self.max_tokens)
    }

    fn prompt(self, _: &Scope<'_>) -> Option<Prompt<'a>> {
        self.chats.map(Prompt::of_list)
    }

    /// Reads a body, of which none is refused for its fields: the EPP passes it on.
    fn read(text: &'a str, options: &Options<'_>) -> Result<Body<'a>, Refusal> {
        let (mut body, refusal) = read_parts::<Self>(text, options)?;
        body.lacks_prompt = refusal.is_some();
        Ok(body)
    }
}

/// The chats of a batch; `None` if they are not an array.
struct Chats<'s, 'c> {
    scope: &'s Scope<'c>,
}

impl<'a> Reader<'a> for Chats<'_, '_> {
    type Value = Option<PromptList<'a>>;

    fn other(self) -> Self::Value {
        None
    }

    fn array(self, mut array: Array<'_, 'a>) -> json::Result<Self::Value> {
        let mut chats = PromptList::new(self.scope.options.keep_bytes);
        while let Some(chat) = element(&mut array, MessageList::<Content<'_>>::new(self.scope))? {
            chats.push(chat.unwrap_or_else(|| Pieces::new(0)));
        }
        Ok(Some(chats))
    }
}
