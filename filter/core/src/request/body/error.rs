//! Why a request body is refused.

use core::fmt;

use super::Api;

/// Why a request body is refused with 400. The text is the message for the client: the EPP's own, except that
/// messages of Go's decoder are replaced by those of `serde_json`.
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
    /// The body is compressed, or encoded in another way that its head declares.
    Encoded {
        /// The content encodings.
        encoding: String,
    },
    /// The body is not text in UTF-8.
    NotUtf8 {
        /// Offset of the first byte that does not belong to a character.
        offset: usize,
    },
    /// The body is not a form that can be read.
    NotAForm {
        /// The rule that the form breaks.
        cause: &'static str,
    },
    /// The first message of a gRPC body has not arrived completely.
    NoMessage,
    /// The first message of a gRPC body is compressed.
    Compressed,
    /// The first message of a gRPC body cannot be read.
    Message {
        /// The step that failed.
        step: &'static str,
        /// Name of the message.
        request: &'static str,
        /// The rule that the message breaks.
        cause: String,
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
    /// The rule that the field breaks.
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

/// Maximum length of an encoding that is repeated to the client, in characters.
const MAX_ENCODING_LENGTH: usize = 64;

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
            Self::UnsupportedPath { api, path } => write!(f, "{}: {path}", api.rules().not_served),
            Self::Encoded { encoding } => {
                let shown: String = encoding.chars().take(MAX_ENCODING_LENGTH).collect();
                write!(f, "the request body has the content encoding {shown:?}, which cannot be read")
            }
            Self::NotUtf8 { offset } => {
                write!(f, "request body is not UTF-8: invalid byte at offset {offset}")
            }
            Self::NotAForm { cause } => write!(f, "the form cannot be read: {cause}"),
            Self::NoMessage => {
                f.write_str("invalid or unsupported gRPC payload: it ends within its first message")
            }
            Self::Compressed => {
                f.write_str("invalid or unsupported gRPC payload: its first message is compressed")
            }
            Self::Message { step, request, cause } => write!(f, "{step} {request}: {cause}"),
            Self::NotAnObject { api, cause } => write!(f, "{}{cause}", api.rules().not_an_object),
            Self::Invalid { api, fault } => match (api.rules().broken_field, fault) {
                (Some(broken_field), Some(fault)) => write!(f, "{broken_field}{fault}"),
                (_, _) => f.write_str(api.rules().incomplete),
            },
            Self::NoModel => f.write_str("model not found in request body"),
        }
    }
}
