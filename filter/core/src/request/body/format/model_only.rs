//! APIs of whose bodies nothing but the model is read, or nothing at all.

use crate::request::body::object::{Format, Model, Refusal, Rules};
use crate::request::body::{Body, Options, Parser};

/// Any other path: servers have many with a model in the body, and get new ones.
#[derive(Default)]
pub(super) struct ModelOnly;

impl Format<'_> for ModelOnly {
    const RULES: Rules = Rules { may_be_form: true, ..Rules::model_only(Parser::Passthrough, &[]) };
}

/// Anthropic's count of tokens.
#[derive(Default)]
pub(super) struct CountTokens;

impl<'a> Format<'a> for CountTokens {
    const RULES: Rules = Rules {
        serves: |path| path.ends_with("/messages/count_tokens"),
        not_served: "unsupported API endpoint",
        ..Rules::model_only(Parser::Anthropic, &["messages/count_tokens"])
    };

    fn read(text: &'a str, options: &Options<'_>) -> Result<Body<'a>, Refusal> {
        ModelOnly::read(text, options)
    }
}

/// Bodies that are passed on unread.
#[derive(Default)]
pub(super) struct Raw;

impl<'a> Format<'a> for Raw {
    const RULES: Rules = Rules {
        model: Model::Unread,
        is_generation: false,
        has_cache_salt: false,
        ..Rules::new(Parser::Passthrough, &[])
    };

    fn read(_: &'a str, _: &Options<'_>) -> Result<Body<'a>, Refusal> {
        Ok(Body::default())
    }
}
