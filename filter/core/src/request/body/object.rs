//! The object of a body: the fields that are common to all APIs, and the others by the [`Format`] of the API.

use std::borrow::Cow;

use super::field::{IfString, IsTrue, Scope};
use super::message::Messages;
use super::{Body, Fault, Options, Parser};
use crate::json::{self, Array, Number, Object, Pass, Reader, Str, key, pass_array, value, value_and_place};
use crate::request::prompt::Prompt;
use crate::request::session::{MetadataReader, NameReader, SessionName, SessionSource};
use crate::request::stored::ServerState;

/// The fields of one API while a body is read, and the [`Rules`] of the API.
///
/// The model, `stream` and `cache_salt` are read for every API. An API whose other fields no decision needs
/// keeps all defaults.
pub(super) trait Format<'a>: Default {
    /// The paths of the API, and the rules for all of its bodies.
    const RULES: Rules;

    /// Reads the value of the member `name`, which is not common to all APIs. `name` is borrowed from the
    /// body unless it is spelled with escapes.
    fn member(&mut self, _name: &str, object: &mut Object<'_, 'a>, _scope: &Scope<'_>) -> json::Result<()> {
        value(object, Pass)
    }

    /// The client's limit on generated tokens.
    fn max_output_tokens(&self) -> Option<u64> {
        None
    }

    /// The state at a server that the request needs or leaves.
    fn state(&self) -> ServerState {
        ServerState::default()
    }

    /// A salt whose field is not `cache_salt`.
    fn take_salt(&mut self) -> Option<Cow<'a, str>> {
        None
    }

    /// The prompt; `None` if a required field is missing.
    fn prompt(self, _scope: &Scope<'_>) -> Option<Prompt<'a>> {
        Some(Prompt::default())
    }

    /// Reads a body of the API, which is JSON.
    fn read(text: &'a str, options: &Options<'_>) -> Result<Body<'a>, Refusal> {
        let (mut body, refusal) = read_parts::<Self>(text, options)?;
        body.lacks_prompt = refusal.is_some();
        match refusal.filter(|_| options.refuses_as_epp) {
            Some(refusal) => Err(refusal),
            None => Ok(body),
        }
    }
}

/// The rules of an API that do not depend on a body.
#[expect(clippy::struct_excessive_bools, reason = "each is a rule by itself")]
pub(super) struct Rules {
    /// The parser that claims the paths.
    pub(super) parser: Parser,
    /// The ends of the API's paths. `passthrough-parser` claims whole segments; the other parsers, as in the
    /// EPP, any text with such an end, unless our own rules decide.
    pub(super) paths: &'static [&'static str],
    /// The segment that is before the end of a path by our own rules, unless the end is the whole path;
    /// `None`: any.
    pub(super) follows: Option<&'static str>,
    /// Whether a claimed path is served: some parsers check it more strictly than by its end.
    pub(super) serves: fn(&str) -> bool,
    /// The model in bodies.
    pub(super) model: Model,
    /// How a body is read whose first message is the request; `None`: it is JSON.
    pub(super) messages: Option<Messages>,
    /// Whether a server's engine works for the response.
    pub(super) is_generation: bool,
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
    /// The beginning of the message about a field that breaks a rule; `None`: `incomplete` is the message
    /// about such a field too.
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
    /// It is not replaced, and only a header names the model that serves.
    InHeader,
}

impl Rules {
    /// The rules of most APIs.
    pub(super) const fn new(parser: Parser, paths: &'static [&'static str]) -> Self {
        Self {
            parser,
            paths,
            follows: None,
            serves: |_| true,
            model: Model::Required,
            messages: None,
            is_generation: true,
            has_cache_salt: true,
            checks_stream: false,
            may_be_form: false,
            not_served: "unsupported path",
            not_an_object: "error unmarshaling request bodyMap: ",
            incomplete: "invalid request: body cannot be read",
            broken_field: None,
        }
    }

    /// The rules of an API of whose bodies only the model is read. Some requests of these count tokens.
    pub(super) const fn model_only(parser: Parser, paths: &'static [&'static str]) -> Self {
        Self { model: Model::Only, is_generation: false, has_cache_salt: false, ..Self::new(parser, paths) }
    }
}

/// The reason why a body cannot be read as the body of an API.
pub(super) enum Refusal {
    /// It is not one JSON object: the message of `serde_json`, or the type that the body has.
    NotAnObject(String),
    /// A field that the API requires is missing or empty, or has the wrong type.
    Invalid(Option<Fault>),
}

/// Reads a body. Returns also its refusal if it breaks a rule: then it has no prompt.
pub(super) fn read_parts<'a, F: Format<'a>>(
    text: &'a str,
    options: &Options<'_>,
) -> Result<(Body<'a>, Option<Refusal>), Refusal> {
    let scope = Scope::new(options);
    let (mut body, mut fields) = (Body::default(), F::default());
    let top = Top { scope: &scope, body: &mut body, fields: &mut fields };
    json::read(text, top).and_then(|read| read).map_err(Refusal::NotAnObject)?;

    body.max_output_tokens = fields.max_output_tokens();
    body.state = fields.state();
    if let Some(salt) = fields.take_salt() {
        body.cache_salt = Some(salt);
    }
    let refusal = match (fields.prompt(&scope), scope.take_fault()) {
        (Some(prompt), fault) if fault.is_none() || !options.refuses_as_epp => {
            body.prompt = prompt;
            None
        }
        (_, fault) => Some(Refusal::Invalid(fault)),
    };
    Ok((body, refusal))
}

/// Reads the object of a body into its fields. JSON of another type is refused after reading, with the name
/// of the type.
struct Top<'s, 'c, 'a, F> {
    scope: &'s Scope<'c>,
    body: &'s mut Body<'a>,
    fields: &'s mut F,
}

impl<'a, F: Format<'a>> Top<'_, '_, 'a, F> {
    /// The outcome for a value of another type: it names no model, and has nothing else that is read where
    /// only the model is.
    fn not(type_name: &str) -> Result<(), String> {
        if F::RULES.model == Model::Only {
            return Ok(());
        }
        Err(format!("body must be a JSON object, not {type_name}"))
    }
}

impl<'a, F: Format<'a>> Reader<'a> for Top<'_, '_, 'a, F> {
    type Value = Result<(), String>;

    fn other(self) -> Self::Value {
        Self::not("another value")
    }

    // For the EPP, null is an object without members.
    fn null(self) -> Self::Value {
        Ok(())
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

    fn array(self, array: Array<'_, 'a>) -> json::Result<Self::Value> {
        pass_array(array)?;
        Ok(Self::not("an array"))
    }

    fn object(self, mut object: Object<'_, 'a>) -> json::Result<Self::Value> {
        let Self { scope, body, fields } = self;
        while let Some(name) = key(&mut object)? {
            match &*name {
                "model" if F::RULES.model != Model::Unread => {
                    let (model, place) = value_and_place(&mut object, IfString)?;
                    body.model = model.filter(|model| !model.is_empty());
                    body.model_span = name.is_plain().then_some(place);
                }
                "priority" => {
                    let ((), place) = value_and_place(&mut object, Pass)?;
                    body.priority_span = name.is_plain().then_some(place);
                }
                "stream" => {
                    let strict = F::RULES.checks_stream.then_some(scope);
                    body.stream = value(&mut object, IsTrue { strict })?;
                }
                "cache_salt" if F::RULES.has_cache_salt => {
                    let rule = "cache_salt must be a string";
                    body.cache_salt = value(&mut object, scope.name(rule))?;
                }
                "metadata" if F::RULES.is_generation => {
                    let session = value(&mut object, MetadataReader)?;
                    body.session = SessionName::first(body.session, session);
                }
                name => match source_of_member(name) {
                    Some(source) => {
                        let session = value(&mut object, NameReader(source))?;
                        body.session = SessionName::first(body.session, session);
                    }
                    None => fields.member(name, &mut object, scope)?,
                },
            }
        }
        Ok(Ok(()))
    }
}

/// The source of the session's name that a member of a body is.
fn source_of_member(name: &str) -> Option<SessionSource> {
    match name {
        "litellm_session_id" | "litellm_trace_id" => Some(SessionSource::LiteLlm),
        "session_id" => Some(SessionSource::SessionId),
        "prompt_cache_key" => Some(SessionSource::PromptCacheKey),
        _ => None,
    }
}
