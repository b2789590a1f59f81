//! The object of a body: the fields that are common to all APIs, and the others by the [`Format`] of the API.

use serde::de::{MapAccess, SeqAccess};

use super::field::{IfString, IsTrue, Scope};
use super::format::{Api, Format, Model};
use super::{Body, BodyError, Options};
use crate::json::{self, Number, Reader, Str, key, pass_array, value};
use crate::request::prompt::Prompt;

/// Reads the body of a request to `api` by the fields of `F`.
pub(super) fn read<'a, F: Format<'a>>(
    text: &'a str,
    api: Api,
    options: &Options<'_>,
) -> Result<Body<'a>, BodyError> {
    let (body, prompt) = read_parts::<F>(text, api, options)?;
    Ok(Body { prompt: prompt?, ..body })
}

/// A body without its prompt, and the prompt if the body breaks no rule.
pub(super) type Parts<'a> = (Body<'a>, Result<Prompt<'a>, BodyError>);

/// Reads a body of which the prompt may break a rule.
pub(super) fn read_parts<'a, F: Format<'a>>(
    text: &'a str,
    api: Api,
    options: &Options<'_>,
) -> Result<Parts<'a>, BodyError> {
    let scope = Scope::new(text, options);
    let top = Top { scope: &scope, body: Body::default(), fields: F::default() };
    let read = json::read(text, top).map_err(|error| error.to_string());
    let (mut body, mut fields) =
        read.and_then(|top| top).map_err(|cause| BodyError::NotAnObject { api, cause })?;

    body.max_output_tokens = fields.max_output_tokens();
    if let Some(salt) = fields.take_salt() {
        body.cache_salt = Some(salt);
    }
    let prompt = match (fields.prompt(&scope), scope.take_fault()) {
        (Some(prompt), None) => Ok(prompt),
        (_, fault) => Err(BodyError::Invalid { api, fault }),
    };
    Ok((body, prompt))
}

/// Reads the object of a body. JSON of another type is refused after reading, with the name of the type.
struct Top<'s, 'c, 'a, F> {
    scope: &'s Scope<'c, 'a>,
    body: Body<'a>,
    fields: F,
}

impl<'a, F: Format<'a>> Top<'_, '_, 'a, F> {
    fn not(type_name: &str) -> Result<(Body<'a>, F), String> {
        Err(format!("body must be a JSON object, not {type_name}"))
    }
}

impl<'a, F: Format<'a>> Reader<'a> for Top<'_, '_, 'a, F> {
    type Value = Result<(Body<'a>, F), String>;

    fn other(self) -> Self::Value {
        Self::not("another value")
    }

    // For the EPP, null is an object without members.
    fn null(self) -> Self::Value {
        Ok((self.body, self.fields))
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
        let Self { scope, mut body, mut fields } = self;
        while let Some(name) = key(&mut object)? {
            match &*name {
                "model" if F::RULES.model != Model::Unread => {
                    let model = value(&mut object, IfString)?;
                    body.model = model.filter(|model| !model.is_empty());
                    body.model_span = json::span_of_member(scope.text, &name);
                }
                "stream" => {
                    let strict = F::RULES.checks_stream.then_some(scope);
                    body.stream = value(&mut object, IsTrue { strict })?;
                }
                "cache_salt" if F::RULES.has_cache_salt => {
                    let rule = "cache_salt must be a string";
                    body.cache_salt = value(&mut object, scope.name(rule))?;
                }
                _ => fields.member(&name, &mut object, scope)?,
            }
        }
        Ok(Ok((body, fields)))
    }
}
