//! The fields of a request body on which the decision depends, read in one pass and without a tree.
//!
//! The [path](Parsers::api) determines the [`Api`] of a body, [`Body::read`] reads it. Strings without escapes are
//! borrowed from the body. Rules, field names and messages are the EPP's, with three intended differences: bodies that are not
//! UTF-8 are refused instead of repaired, nesting is limited to 127 levels, and field names must have the exact spelling.

mod api;
mod beginning;
mod error;
mod field;
mod form;
mod format;
mod path;
mod text;

use core::ops::Range;
use std::borrow::Cow;

use serde::de::{MapAccess, SeqAccess};

use crate::json::{self, Number, Reader, Str, key, pass_array, value};
use crate::request::prompt::{Media, Prompt, VideoHints};
pub use api::{Api, Parser, Parsers, opens_tunnel};
pub use error::{BodyError, Fault};
use field::{IfString, IsTrue, Scope};
use form::{Boundary, is_form};
use format::{anthropic, chat, completions, generate, invocations, items, model_only};
pub use path::request_path;

/// How bodies are read.
#[derive(Clone, Copy, Debug)]
pub struct Options<'h> {
    /// Bytes of the prompt that are kept for hashing; the rest is only counted.
    pub keep_bytes: usize,
    /// How images, videos and audio are counted.
    pub media: Media,
    /// Properties of this request's videos, from its headers.
    pub video: VideoHints,
    /// The request's content type, by which an upload is a form or JSON.
    pub content_type: Option<&'h str>,
}

impl Options<'_> {
    /// The boundary of the parts, if the body of a request to `api` is a form.
    fn boundary(&self, api: Api) -> Option<Result<Boundary<'_>, BodyError>> {
        let content_type =
            self.content_type.filter(|content_type| api == Api::Upload && is_form(content_type));
        content_type.map(Boundary::of)
    }
}

impl Default for Options<'_> {
    /// Keeps 131 072 tokens, the default of the EPP's prefix producer.
    fn default() -> Self {
        let keep_bytes = 131_072 * crate::request::prompt::BYTES_PER_TOKEN;
        Self { keep_bytes, media: Media::default(), video: VideoHints::default(), content_type: None }
    }
}

/// The fields of a request body on which the decision depends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body<'a> {
    /// The client's model; `None` if it is missing, empty or not a string.
    pub model: Option<Cow<'a, str>>,
    /// The offsets of the value of the last top-level `model` in the body, with the quotes if it is a string. `None` if
    /// there is no such member, or its key is spelled with escapes; to name a model in such a body, add a member at
    /// its end: the last of several counts. In a form, the offsets of the value of its field.
    pub model_span: Option<Range<usize>>,
    /// Whether the body is a form and not JSON.
    pub is_form: bool,
    /// Whether the client requests a streamed answer.
    pub stream: bool,
    /// The client's limit on generated tokens.
    pub max_output_tokens: Option<u64>,
    /// Prefixes of requests with different salts do not match.
    pub cache_salt: Option<Cow<'a, str>>,
    /// The prompt.
    pub prompt: Prompt<'a>,
}

impl<'a> Body<'a> {
    /// Reads the body of a request to `api` from its bytes.
    pub fn read_bytes(bytes: &'a [u8], api: Api, options: &Options<'_>) -> Result<Self, BodyError> {
        if let Some(boundary) = options.boundary(api) {
            return form::read(bytes, &boundary?);
        }
        if api == Api::Raw {
            return Ok(Self::default());
        }
        Self::read(utf8(bytes)?, api, options)
    }

    /// Reads the body of a request to `api`, which is JSON. The body of a request to [`Api::Raw`] is not read. Half a surrogate
    /// pair is read as U+FFFD.
    pub fn read(text: &'a str, api: Api, options: &Options<'_>) -> Result<Self, BodyError> {
        let mut read = Self::read_text(text, api, options);
        // Halves of pairs are rare, and `serde_json` refuses them: only a refused body is searched for them.
        if let Err(BodyError::NotAnObject { .. }) = read
            && let Some(text) = json::without_lone_surrogates(text)
        {
            read = Body::read_text(&text, api, options).map(Body::into_owned);
        }
        read
    }

    fn into_owned(self) -> Body<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        Body {
            model: self.model.map(owned),
            model_span: self.model_span,
            is_form: self.is_form,
            stream: self.stream,
            max_output_tokens: self.max_output_tokens,
            cache_salt: self.cache_salt.map(owned),
            prompt: self.prompt.into_owned(),
        }
    }

    fn read_text(text: &'a str, api: Api, options: &Options<'_>) -> Result<Self, BodyError> {
        match api {
            Api::Invocations => invocations::read(text, options),
            Api::Chat => read::<chat::Chat<'_>>(text, api, options),
            Api::Completions => read::<completions::Completions<'_>>(text, api, options),
            Api::Embeddings => read::<completions::Embeddings<'_>>(text, api, options),
            Api::Images => read::<completions::Images>(text, api, options),
            Api::Responses => read::<items::Responses<'_>>(text, api, options),
            Api::Conversations => read::<items::Conversations<'_>>(text, api, options),
            Api::Messages => read::<anthropic::Messages<'_>>(text, api, options),
            Api::Generate => read::<generate::Generate>(text, api, options),
            Api::SglangGenerate => read::<generate::SglangGenerate<'_>>(text, api, options),
            Api::CountTokens | Api::ModelOnly | Api::Upload => {
                read::<model_only::ModelOnly>(text, api, options)
            }
            Api::Raw => Ok(Self::default()),
        }
    }
}

/// Completes the beginning of a body whose rest was not received yet, so that it can be read. `None` if there is nothing to read
/// yet, or if the bytes are not what the API has, or nested too deep.
///
/// A body that is malformed in another way stays malformed.
pub fn complete(beginning: Vec<u8>, api: Api, options: &Options<'_>) -> Option<Vec<u8>> {
    match options.boundary(api) {
        Some(boundary) => form::complete(beginning, &boundary.ok()?),
        None => beginning::complete(beginning).map(String::into_bytes),
    }
}

fn utf8(body: &[u8]) -> Result<&str, BodyError> {
    core::str::from_utf8(body).map_err(|error| BodyError::NotUtf8 { offset: error.valid_up_to() })
}

/// The fields of one API while the body is read.
trait Input<'a>: Default {
    /// Reads the value of the member `name`, which is not common to all APIs. `name` is borrowed from the body unless it
    /// is spelled with escapes.
    fn member<A: MapAccess<'a>>(
        &mut self,
        name: &str,
        object: &mut A,
        scope: &Scope<'_, 'a>,
    ) -> Result<(), A::Error>;

    /// The client's limit on generated tokens.
    fn max_output_tokens(&self) -> Option<u64> {
        None
    }

    /// A salt whose field is not `cache_salt`.
    fn take_salt(&mut self) -> Option<Cow<'a, str>> {
        None
    }

    /// The prompt; `None` if a required field is missing.
    fn prompt(self, scope: &Scope<'_, 'a>) -> Option<Prompt<'a>>;
}

fn read<'a, I: Input<'a>>(text: &'a str, api: Api, options: &Options<'_>) -> Result<Body<'a>, BodyError> {
    let (body, prompt) = read_parts::<I>(text, api, options)?;
    Ok(Body { prompt: prompt?, ..body })
}

/// A body without its prompt, and the prompt if the body breaks no rule.
type Parts<'a> = (Body<'a>, Result<Prompt<'a>, BodyError>);

fn read_parts<'a, I: Input<'a>>(
    text: &'a str,
    api: Api,
    options: &Options<'_>,
) -> Result<Parts<'a>, BodyError> {
    let scope = Scope::new(text, options);
    let top = Top { api, scope: &scope, body: Body::default(), input: I::default() };
    let read = json::read(text, top).map_err(|error| error.to_string());
    let (mut body, mut input) =
        read.and_then(|top| top).map_err(|cause| BodyError::NotAnObject { api, cause })?;

    body.max_output_tokens = input.max_output_tokens();
    if let Some(salt) = input.take_salt() {
        body.cache_salt = Some(salt);
    }
    let prompt = match (input.prompt(&scope), scope.take_fault()) {
        (Some(prompt), None) => Ok(prompt),
        (_, fault) => Err(BodyError::Invalid { api, fault }),
    };
    Ok((body, prompt))
}

/// Reads the object of a body. JSON of another type is refused after reading, with the name of the type.
struct Top<'s, 'c, 'a, I> {
    api: Api,
    scope: &'s Scope<'c, 'a>,
    body: Body<'a>,
    input: I,
}

impl<'a, I: Input<'a>> Top<'_, '_, 'a, I> {
    fn not(type_name: &str) -> Result<(Body<'a>, I), String> {
        Err(format!("body must be a JSON object, not {type_name}"))
    }
}

impl<'a, I: Input<'a>> Reader<'a> for Top<'_, '_, 'a, I> {
    type Value = Result<(Body<'a>, I), String>;

    fn other(self) -> Self::Value {
        Self::not("another value")
    }

    // For the EPP, null is an object without members.
    fn null(self) -> Self::Value {
        Ok((self.body, self.input))
    }

    fn boolean(self, _: bool) -> Self::Value {
        Self::not("a boolean")
    }

    fn number(self, _: Number) -> Self::Value {
        Self::not("a number")
    }

    fn string(self, _: Str<'a, '_>) -> Self::Value {
        Self::not("a string")
    }

    fn array<A: SeqAccess<'a>>(self, array: A) -> Result<Self::Value, A::Error> {
        pass_array(array)?;
        Ok(Self::not("an array"))
    }

    fn object<A: MapAccess<'a>>(self, mut object: A) -> Result<Self::Value, A::Error> {
        let Self { api, scope, mut body, mut input } = self;
        while let Some(name) = key(&mut object)? {
            match &*name {
                "model" if api.names_model() => {
                    let model = value(&mut object, IfString)?;
                    body.model = model.filter(|model| !model.is_empty());
                    body.model_span = json::span_of_member(scope.text, &name);
                }
                "stream" => {
                    let strict = (api == Api::SglangGenerate).then_some(scope);
                    body.stream = value(&mut object, IsTrue { strict })?;
                }
                "cache_salt"
                    if !api.reads_only_model() && !matches!(api, Api::Images | Api::SglangGenerate) =>
                {
                    let rule = "cache_salt must be a string";
                    body.cache_salt = value(&mut object, scope.name(rule))?;
                }
                _ => input.member(&name, &mut object, scope)?,
            }
        }
        Ok(Ok((body, input)))
    }
}
