//! `/invocations`, the only path of a server on Amazon's platform for models: its bodies are chats,
//! completions, embeddings, or of another API.

use super::{chat, completions};
use crate::json::{self, Array, Object, Reader, Str, key, pass_array, value};
use crate::request::body::object::{Format, Model, Refusal, Rules, read_parts};
use crate::request::body::{Body, Options, Parser};

/// Reads a body as the API that its fields name does. A body that breaks a rule of this API may be of another
/// API: then it has no prompt.
#[derive(Default)]
pub(super) struct Invocations;

impl<'a> Format<'a> for Invocations {
    const RULES: Rules =
        Rules { model: Model::Optional, ..Rules::new(Parser::Passthrough, &["invocations"]) };

    fn read(text: &'a str, options: &Options<'_>) -> Result<Body<'a>, Refusal> {
        let kind = json::read(text, KindReader).map_err(Refusal::NotAnObject)?;
        let (body, _) = match kind {
            InvocationKind::Chat => read_parts::<chat::Chat<'_>>(text, options),
            InvocationKind::Completions => read_parts::<completions::Completions<'_>>(text, options),
            InvocationKind::Embeddings => read_parts::<completions::Embeddings<'_>>(text, options),
            InvocationKind::Other => read_parts::<Self>(text, options),
        }?;
        Ok(body)
    }
}

/// The API of a body; if the fields of several are there, the API that vLLM tries first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum InvocationKind {
    Other,
    Embeddings,
    Completions,
    Chat,
}

/// Finds the kind of the body's object.
struct KindReader;

impl<'a> Reader<'a> for KindReader {
    type Value = InvocationKind;

    fn other(self) -> InvocationKind {
        InvocationKind::Other
    }

    fn object(self, mut object: Object<'_, 'a>) -> json::Result<InvocationKind> {
        let mut found = InvocationKind::Other;
        while let Some(name) = key(&mut object)? {
            let field = match &*name {
                "messages" => KindField { if_string: InvocationKind::Other, if_array: InvocationKind::Chat },
                "prompt" => KindField {
                    if_string: InvocationKind::Completions,
                    if_array: InvocationKind::Completions,
                },
                "input" => {
                    KindField { if_string: InvocationKind::Embeddings, if_array: InvocationKind::Embeddings }
                }
                _ => KindField { if_string: InvocationKind::Other, if_array: InvocationKind::Other },
            };
            found = found.max(value(&mut object, field)?);
        }
        Ok(found)
    }
}

/// The kind of a body with a field, by the type of its value.
struct KindField {
    if_string: InvocationKind,
    if_array: InvocationKind,
}

impl<'a> Reader<'a> for KindField {
    type Value = InvocationKind;

    fn other(self) -> InvocationKind {
        InvocationKind::Other
    }

    fn string(self, _: Str<'a, '_>) -> InvocationKind {
        self.if_string
    }

    fn array(self, array: Array<'_, 'a>) -> json::Result<InvocationKind> {
        pass_array(array)?;
        Ok(self.if_array)
    }
}
