//! APIs whose prompt is one string, token ids, or several of either.

use super::chat::Content;
use super::given::{Encoded, Given, GivenReader, Prompts};
use super::messages::MessageList;
use crate::json::{self, Object, Pass, value};
use crate::request::body::Parser;
use crate::request::body::field::{IfCount, Kind, Scope, Typed};
use crate::request::body::object::{Format, Rules};
use crate::request::prompt::{Pieces, Prompt};

#[derive(Default)]
pub(super) struct Completions<'a> {
    prompt: Option<Given<'a>>,
    max_tokens: Option<u64>,
}

impl<'a> Format<'a> for Completions<'a> {
    const RULES: Rules = Rules {
        incomplete: "invalid completions request: must have prompt field",
        ..Rules::new(Parser::OpenAi, &["completions", "completions/render"])
    };

    fn member(&mut self, name: &str, object: &mut Object<'_, 'a>, scope: &Scope<'_>) -> json::Result<()> {
        match name {
            "prompt" => {
                self.prompt = value(object, GivenReader { scope, strings: Prompts::default() })?;
            }
            "max_tokens" => self.max_tokens = value(object, IfCount)?,
            _ => value(object, Pass)?,
        }
        Ok(())
    }

    fn max_output_tokens(&self) -> Option<u64> {
        self.max_tokens
    }

    fn prompt(self, scope: &Scope<'_>) -> Option<Prompt<'a>> {
        self.prompt.map(|given| given.prompt(scope))
    }
}

#[derive(Default)]
pub(super) struct Embeddings<'a> {
    input: Option<Given<'a>>,
    /// A chat in the place of the input, which vLLM embeds and the EPP does not know.
    messages: Option<Pieces<'a>>,
}

impl<'a> Format<'a> for Embeddings<'a> {
    const RULES: Rules = Rules {
        incomplete: "invalid embeddings request: must have input field",
        ..Rules::new(Parser::OpenAi, &["embeddings"])
    };

    fn member(&mut self, name: &str, object: &mut Object<'_, 'a>, scope: &Scope<'_>) -> json::Result<()> {
        match name {
            "input" => self.input = value(object, GivenReader { scope, strings: Encoded::default() })?,
            "messages" if !scope.options.refuses_as_epp => {
                self.messages = value(object, MessageList::<Content<'_>>::new(scope))?;
            }
            _ => value(object, Pass)?,
        }
        Ok(())
    }

    fn prompt(self, scope: &Scope<'_>) -> Option<Prompt<'a>> {
        let chat = self.messages.map(Prompt::one);
        self.input.map(|given| given.prompt(scope)).or(chat)
    }
}

/// Image generation has a prompt, but no tokens.
#[derive(Default)]
pub(super) struct Images {
    has_prompt: bool,
}

impl<'a> Format<'a> for Images {
    const RULES: Rules = Rules {
        has_cache_salt: false,
        incomplete: "invalid images generations request: must have prompt field",
        ..Rules::new(Parser::OpenAi, &["images/generations"])
    };

    fn member(&mut self, name: &str, object: &mut Object<'_, 'a>, scope: &Scope<'_>) -> json::Result<()> {
        let typed = |kind| Typed { scope, kind, rule: "a field has the wrong type" };
        match name {
            "prompt" => {
                let prompt = value(object, scope.text("prompt must be a string"))?;
                self.has_prompt = !prompt.is_empty();
            }
            "size" => value(object, typed(Kind::Text))?,
            "n" | "num_inference_steps" => value(object, typed(Kind::Integer))?,
            _ => value(object, Pass)?,
        }
        Ok(())
    }

    fn prompt(self, _: &Scope<'_>) -> Option<Prompt<'a>> {
        self.has_prompt.then(Prompt::default)
    }
}
