//! Why a request body is refused.

use core::fmt;

use super::Api;

/// Why a request body is refused with 400. The text is the message for the client: the EPP's own, except that messages of
/// Go's decoder are replaced by those of `serde_json`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyError {
    /// No parser claims the path, and none is for all other paths.
    NoParser {
        /// The path, without its query.
        path: String,
    },
    /// A parser claims the path but serves only a stricter spelling of it.
    UnsupportedPath {
        /// The API that was meant.
        api: Api,
        /// The path, without its query.
        path: String,
    },
    /// The body is not text in UTF-8.
    NotUtf8 {
        /// Offset of the first byte that does not belong to a character.
        offset: usize,
    },
    /// The body is not a form that can be read.
    NotAForm {
        /// The rule that it breaks.
        cause: &'static str,
    },
    /// The body is not one JSON object.
    NotAnObject {
        /// The API whose body it should be.
        api: Api,
        /// The message of `serde_json`, or the type that the body has.
        cause: String,
    },
    /// A field the API requires is missing or empty, or a field has the wrong type.
    Invalid {
        /// The API whose rule is broken.
        api: Api,
        /// The field at fault and what it must be, if that is known.
        fault: Option<Fault>,
    },
    /// The body names no model, and no policy gives one. Only the caller can find that.
    NoModel,
}

/// A field of the wrong type or out of range.
#[derive(Clone, Debug, PartialEq)]
pub enum Fault {
    /// What the field must be.
    Field(&'static str),
    /// A token id that is not an integer from 0 to 2³²−1.
    TokenId {
        /// Its place in the array, from 0.
        index: u64,
        /// The number in that place.
        value: f64,
    },
}

// The value comes from JSON, which has no NaN.
impl Eq for Fault {}

impl core::error::Error for BodyError {}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(rule) => f.write_str(rule),
            Self::TokenId { index, value } => write!(f, "token_ids[{index}]: invalid value {value}"),
        }
    }
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoParser { path } => write!(f, "no parser registered matching path suffix for: {path}"),
            Self::UnsupportedPath { api: Api::Messages | Api::CountTokens, path } => {
                write!(f, "unsupported API endpoint: {path}")
            }
            Self::UnsupportedPath { path, .. } => write!(f, "unsupported path: {path}"),
            Self::NotUtf8 { offset } => {
                write!(f, "request body is not UTF-8: invalid byte at offset {offset}")
            }
            Self::NotAForm { cause } => write!(f, "the form cannot be read: {cause}"),
            Self::NotAnObject { api, cause } => match api {
                Api::Messages => write!(f, "error unmarshaling request body: {cause}"),
                Api::Generate => f.write_str(cause),
                Api::SglangGenerate => write!(f, "invalid generate request: {cause}"),
                Api::Chat
                | Api::Completions
                | Api::Embeddings
                | Api::Responses
                | Api::Conversations
                | Api::Images
                | Api::CountTokens
                | Api::ModelOnly
                | Api::Upload
                | Api::Invocations
                | Api::Raw => write!(f, "error unmarshaling request bodyMap: {cause}"),
            },
            Self::Invalid { api, fault } => invalid(*api, fault.as_ref(), f),
            Self::NoModel => f.write_str("model not found in request body"),
        }
    }
}

fn invalid(api: Api, fault: Option<&Fault>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    // The OpenAI parser has one message for each API and any fault; the others name the fault.
    let (prefix, missing) = match api {
        Api::Conversations => return f.write_str("invalid conversations request: must have items field"),
        Api::Responses => return f.write_str("invalid responses request: must have input field"),
        Api::Chat => {
            return f.write_str("invalid chat completions request: must have valid messages field");
        }
        Api::Completions => return f.write_str("invalid completions request: must have prompt field"),
        Api::Embeddings => return f.write_str("invalid embeddings request: must have input field"),
        Api::Images => return f.write_str("invalid images generations request: must have prompt field"),
        Api::Messages => match fault {
            Some(fault) => return write!(f, "error parsing messages request: {fault}"),
            None => ("invalid messages request", "must have at least one message"),
        },
        Api::Generate => ("invalid generate request", "must have non-empty token_ids field"),
        Api::SglangGenerate => ("invalid generate request", "input_ids must be provided"),
        Api::CountTokens | Api::ModelOnly | Api::Upload | Api::Invocations | Api::Raw => {
            ("invalid request", "body cannot be read")
        }
    };
    match fault {
        Some(fault) => write!(f, "{prefix}: {fault}"),
        None => write!(f, "{prefix}: {missing}"),
    }
}
