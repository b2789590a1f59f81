//! `/invocations`, the one path of a server on Amazon's platform for models: the body is that of a chat, of completions, of embeddings,
//! or of another API.

use serde::de::{MapAccess, SeqAccess};

use super::{chat, completions, model_only};
use crate::json::{self, Pass, Reader, Str, key, pass_array, value};
use crate::request::body::{Api, Body, BodyError, Options, read_parts};

/// Reads a body as that of the API which its fields name. One that breaks a rule of this API may be of another: then it has no prompt.
pub(in crate::request::body) fn read<'a>(
    text: &'a str,
    options: &Options<'_>,
) -> Result<Body<'a>, BodyError> {
    let api = Api::Invocations;
    let (body, prompt) = match json::read(text, Top) {
        Ok(Kind::Chat) => read_parts::<chat::Chat<'_>>(text, api, options),
        Ok(Kind::Completions) => read_parts::<completions::Completions<'_>>(text, api, options),
        Ok(Kind::Embeddings) => read_parts::<completions::Embeddings<'_>>(text, api, options),
        Ok(Kind::Other) | Err(_) => read_parts::<model_only::ModelOnly>(text, api, options),
    }?;
    Ok(Body { prompt: prompt.unwrap_or_default(), ..body })
}

/// The API of a body; of several, that which vLLM tries first.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
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

    fn object<A: MapAccess<'a>>(self, mut object: A) -> Result<Kind, A::Error> {
        let mut found = Kind::Other;
        while let Some(name) = key(&mut object)? {
            let kind = match &*name {
                "messages" => value(&mut object, Given { string: Kind::Other, array: Kind::Chat })?,
                "prompt" => {
                    value(&mut object, Given { string: Kind::Completions, array: Kind::Completions })?
                }
                "input" => value(&mut object, Given { string: Kind::Embeddings, array: Kind::Embeddings })?,
                _ => {
                    value(&mut object, Pass)?;
                    continue;
                }
            };
            if kind > found {
                found = kind;
            }
        }
        Ok(found)
    }
}

/// The kind of a body with this field, by the type of its value.
struct Given {
    string: Kind,
    array: Kind,
}

impl<'a> Reader<'a> for Given {
    type Value = Kind;

    fn other(self) -> Kind {
        Kind::Other
    }

    fn string(self, _: Str<'a, '_>) -> Kind {
        self.string
    }

    fn array<A: SeqAccess<'a>>(self, array: A) -> Result<Kind, A::Error> {
        pass_array(array)?;
        Ok(self.array)
    }
}
