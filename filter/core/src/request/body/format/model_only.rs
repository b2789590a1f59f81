//! APIs of whose bodies nothing but the model is read, or nothing at all.

use super::{Api, Format, Model, Rules};
use crate::request::body::{Body, BodyError, Options, Parser};

/// Paths of inference servers with a model in the body.
#[derive(Default)]
pub(super) struct ModelOnly;

impl Format<'_> for ModelOnly {
    const RULES: Rules = Rules::model_only(
        Parser::Passthrough,
        &["tokenize", "detokenize", "rerank", "score", "classify", "pooling", "embed"],
    );
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

    fn read(text: &'a str, api: Api, options: &Options<'_>) -> Result<Body<'a>, BodyError> {
        ModelOnly::read(text, api, options)
    }
}

/// OpenAI's uploads of audio and images.
#[derive(Default)]
pub(super) struct Upload;

impl<'a> Format<'a> for Upload {
    const RULES: Rules = Rules {
        may_be_form: true,
        ..Rules::model_only(Parser::Passthrough, &["audio/*", "images/edits", "images/variations"])
    };

    fn read(text: &'a str, api: Api, options: &Options<'_>) -> Result<Body<'a>, BodyError> {
        ModelOnly::read(text, api, options)
    }
}

/// Bodies that are passed on unread.
#[derive(Default)]
pub(super) struct Raw;

impl<'a> Format<'a> for Raw {
    const RULES: Rules =
        Rules { model: Model::Unread, has_cache_salt: false, ..Rules::new(Parser::Passthrough, &[]) };

    fn read(_: &'a str, _: Api, _: &Options<'_>) -> Result<Body<'a>, BodyError> {
        Ok(Body::default())
    }
}
