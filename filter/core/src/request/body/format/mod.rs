//! The APIs whose requests are picked for: a file for each, and the table of them.
//!
//! To add one, see `docs/design/adding-an-api.md`.

pub(super) mod anthropic;
pub(super) mod chat;
pub(super) mod completions;
pub(super) mod generate;
mod given;
pub(super) mod invocations;
pub(super) mod items;
mod messages;
pub(super) mod model_only;

use std::borrow::Cow;

use serde::de::MapAccess;

use super::field::Scope;
use super::object::read;
use super::{Body, BodyError, Options, Parser};
use crate::json::{Pass, value};
use crate::request::prompt::Prompt;

/// The fields of one API while a body is read, and the [`Rules`] of the API.
///
/// The model, `stream` and `cache_salt` are read for every API. An API whose other fields no decision needs keeps all defaults.
pub(super) trait Format<'a>: Default {
    /// The paths of the API, and the rules for all of its bodies.
    const RULES: Rules;

    /// Reads the value of the member `name`, which is not common to all APIs. `name` is borrowed from the body unless it
    /// is spelled with escapes.
    fn member<A: MapAccess<'a>>(
        &mut self,
        _name: &str,
        object: &mut A,
        _scope: &Scope<'_, 'a>,
    ) -> Result<(), A::Error> {
        value(object, Pass)
    }

    /// The client's limit on generated tokens.
    fn max_output_tokens(&self) -> Option<u64> {
        None
    }

    /// A salt whose field is not `cache_salt`.
    fn take_salt(&mut self) -> Option<Cow<'a, str>> {
        None
    }

    /// The prompt; `None` if a required field is missing.
    fn prompt(self, _scope: &Scope<'_, 'a>) -> Option<Prompt<'a>> {
        Some(Prompt::default())
    }

    /// Reads a body of the API, which is JSON.
    fn read(text: &'a str, api: Api, options: &Options<'_>) -> Result<Body<'a>, BodyError> {
        read::<Self>(text, api, options)
    }
}

/// The rules of an API that do not depend on a body.
pub(super) struct Rules {
    /// The parser that claims the paths.
    pub(super) parser: Parser,
    /// The ends of the API's paths. `passthrough-parser` claims whole segments, of which `*` stands for any; the other parsers, as in
    /// the EPP, any text with such an end.
    pub(super) paths: &'static [&'static str],
    /// Whether a claimed path is served: some parsers check it more strictly than by its end.
    pub(super) serves: fn(&str) -> bool,
    /// The model in bodies.
    pub(super) model: Model,
    /// Whether the field `cache_salt` is read.
    pub(super) has_cache_salt: bool,
    /// Whether a `stream` that is not a boolean is refused.
    pub(super) checks_stream: bool,
    /// Whether a body may be a form.
    pub(super) may_be_form: bool,
    /// The beginning of the message about a path that is claimed but not served.
    pub(super) not_served: &'static str,
    /// The beginning of the message about a body that is not a JSON object.
    pub(super) not_an_object: &'static str,
    /// The message about a body that lacks a required field.
    pub(super) incomplete: &'static str,
    /// The beginning of the message about a field that breaks a rule; `None`: `incomplete` is the message about such a field too.
    pub(super) broken_field: Option<&'static str>,
}

/// The model in the bodies of an API.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Model {
    /// A body without one is refused.
    Required,
    /// A body without one is passed on.
    Optional,
    /// Nothing else is read of a body, and one without it is passed on.
    Only,
    /// It is not read.
    Unread,
}

impl Rules {
    /// The rules of most APIs.
    const fn new(parser: Parser, paths: &'static [&'static str]) -> Self {
        Self {
            parser,
            paths,
            serves: |_| true,
            model: Model::Required,
            has_cache_salt: true,
            checks_stream: false,
            may_be_form: false,
            not_served: "unsupported path",
            not_an_object: "error unmarshaling request bodyMap: ",
            incomplete: "invalid request: body cannot be read",
            broken_field: None,
        }
    }

    /// The rules of an API of whose bodies only the model is read.
    const fn model_only(parser: Parser, paths: &'static [&'static str]) -> Self {
        Self { model: Model::Only, has_cache_salt: false, ..Self::new(parser, paths) }
    }
}

/// Declares the APIs, one a line: the name and the type that reads its bodies.
macro_rules! apis {
    ($($(#[$doc:meta])* $api:ident = $format:ty,)*) => {
        /// The API that a request body belongs to.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Api {
            $($(#[$doc])* $api,)*
        }

        impl Api {
            /// Every API. Of several with a segment of a path, `passthrough-parser` takes the first.
            pub const ALL: &'static [Self] = &[$(Self::$api),*];

            pub(super) fn rules(self) -> &'static Rules {
                match self { $(Self::$api => &<$format>::RULES,)* }
            }

            /// Reads the body of a request to this API, which is JSON.
            pub(super) fn read<'a>(self, text: &'a str, options: &Options<'_>) -> Result<Body<'a>, BodyError> {
                match self { $(Self::$api => <$format>::read(text, self, options),)* }
            }
        }
    };
}

apis! {
    /// OpenAI chat completions, and their rendering.
    Chat = chat::Chat<'_>,
    /// OpenAI completions, and their rendering.
    Completions = completions::Completions<'_>,
    /// OpenAI embeddings.
    Embeddings = completions::Embeddings<'_>,
    /// OpenAI responses.
    Responses = items::Responses<'_>,
    /// OpenAI conversations.
    Conversations = items::Conversations<'_>,
    /// OpenAI image generation; has no prompt tokens.
    Images = completions::Images,
    /// Anthropic messages.
    Messages = anthropic::Messages<'_>,
    /// Anthropic token counting; only its model is read.
    CountTokens = model_only::CountTokens,
    /// vLLM's own generation from token ids.
    Generate = generate::Generate,
    /// SGLang's own generation from token ids.
    SglangGenerate = generate::SglangGenerate<'_>,
    /// `/invocations`, as on Amazon's platform for models, whose bodies are chats, completions, embeddings, or others.
    Invocations = invocations::Invocations,
    /// Other paths with a model: `/tokenize` and `/detokenize`, `/rerank`, `/score`, `/classify`, `/pooling` and `/embed`; only the
    /// model is read.
    ModelOnly = model_only::ModelOnly,
    /// OpenAI audio and edits of images, whose bodies are forms or JSON; only the model is read.
    Upload = model_only::Upload,
    /// Any other; the body is passed on unread.
    Raw = model_only::Raw,
}

impl Api {
    /// Whether the decision depends on a model named in the body, which a policy may replace.
    pub fn names_model(self) -> bool {
        self.rules().model != Model::Unread
    }

    /// Whether only the model of the body is read.
    pub fn reads_only_model(self) -> bool {
        self.rules().model == Model::Only
    }

    /// Whether a body without a model is passed on as it is.
    pub fn may_lack_model(self) -> bool {
        matches!(self.rules().model, Model::Only | Model::Optional)
    }
}
