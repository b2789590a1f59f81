//! `/invocations`, the only path of a server on Amazon's platform for models: its bodies are chats, completions, embeddings, or of another
//! API.

use super::{chat, completions};
use crate::json::{self, Array, Object, Reader, Str, key, pass_array, value};
use crate::request::body::object::{Format, Model, Refusal, Rules, read_parts};
use crate::request::body::{Body, Options, Parser};

/// Reads a body as the API that its fields name does. A body that breaks a rule of this API may be of another API: then it has no
/// prompt.
#[derive(Default)]
pub(super) struct Invocations;

impl<'a> Format<'a> for Invocations {
    const RULES: Rules =
        Rules { model: Model::Optional, ..Rules::new(Parser::Passthrough, &["invocations"]) };

    fn read(text: &'a str, options: &Options<'_>) -> Result<Body<'a>, Refusal> {
        let kind = json::read(text, Top).map_err(Refusal::NotAnObject)?;
        let (body, prompt) = match kind {
            Kind::Chat => read_parts::<chat::Chat<'_>>(text, options),
            Kind::Completions => read_parts::<completions::Completions<'_>>(text, options),
            Kind::Embeddings => read_parts::<completions::Embeddings<'_>>(text, options),
            Kind::Other => read_parts::<Self>(text, options),
        }?;
        Ok(Body { prompt: prompt.unwrap_or_default(), ..body })
    }
}

/// The API of a body; if the fields of several are there, the API that vLLM tries first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Other,
    Embeddings,
    Completions,
    Chat,
}

/// Finds the kind of the body's object.
struct Top;

impl<'a> Reader<'a> for Top {
    type Value = Kind;

    fn other(self) -> Kind {
        Kind::Other
    }

    fn object(self, mut object: Object<'_, 'a>) -> json::Result<Kind> {
        let mut found = Kind::Other;
        while let Some(name) = key(&mut object)? {
            let field = match &*name {
                "messages" => Field { if_string: Kind::Other, if_array: Kind::Chat },
                "prompt" => Field { if_string: Kind::Completions, if_array: Kind::Completions },
                "input" => Field { if_string: Kind::Embeddings, if_array: Kind::Embeddings },
                _ => Field { if_string: Kind::Other, if_array: Kind::Other },
            };
            found = found.max(value(&mut object, field)?);
        }
        Ok(found)
    }
}

/// The kind of a body with a field, by the type of its value.
struct Field {
    if_string: Kind,
    if_array: Kind,
}

impl<'a> Reader<'a> for Field {
    type Value = Kind;

    fn other(self) -> Kind {
        Kind::Other
    }

    fn string(self, _: Str<'a, '_>) -> Kind {
        self.if_string
    }

    fn array(self, array: Array<'_, 'a>) -> json::Result<Kind> {
        pass_array(array)?;
        Ok(self.if_array)
    }
}
