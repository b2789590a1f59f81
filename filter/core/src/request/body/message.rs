//! Bodies whose first message, in the framing of gRPC, is the request.

use super::{Api, Body, BodyError, Options};
use crate::grpc::{PREFIX, Prefix};
use crate::protobuf::{Malformed, Payload};

/// Reads the first message of a body, or the part of it that has arrived.
pub(super) type ReadMessage = for<'a> fn(Payload<'a>, &Options<'_>) -> Result<Body<'a>, MessageError>;

/// How the bodies of an API of gRPC are read.
pub(super) struct Messages {
    /// Name of the request's message, for errors.
    pub(super) request: &'static str,
    pub(super) read: ReadMessage,
    /// The message with the usage in responses.
    pub(super) response: ResponseMessage,
}

/// The message with the usage in responses of an API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseMessage {
    /// vLLM's `GenerateResponse`: the counts so far in each `chunk`, and those of all in `complete`.
    Generate,
    /// vLLM's `EmbedResponse`.
    Embed,
    /// `google.api.HttpBody` with JSON.
    HttpBody,
}

/// Why a message is refused.
pub(super) enum MessageError {
    /// It is not a message of the request's type.
    Malformed(Malformed),
    /// It lacks the input, which may be still to arrive.
    NoInput,
    /// The JSON in it is refused for this reason.
    Json(String),
}

impl From<Malformed> for MessageError {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl MessageError {
    fn of(self, api: Api, request: &'static str) -> BodyError {
        match self {
            Self::Malformed(Malformed(cause)) => {
                BodyError::Message { step: "unmarshaling", request, cause: cause.to_owned() }
            }
            Self::NoInput => BodyError::Invalid { api, fault: None },
            Self::Json(cause) => BodyError::Message { step: "parsing", request, cause },
        }
    }
}

impl Messages {
    /// Reads the first message of a body to `api`. A part of the message may be missing.
    pub(super) fn read<'a>(
        &self,
        bytes: &'a [u8],
        api: Api,
        options: &Options<'_>,
    ) -> Result<Body<'a>, BodyError> {
        let prefix = Prefix::read(bytes).ok_or(BodyError::NoMessage)?;
        if prefix.is_compressed {
            return Err(BodyError::Compressed);
        }
        let rest = bytes.get(PREFIX..).unwrap_or_default();
        (self.read)(Payload::new(rest, prefix.length), options).map_err(|error| error.of(api, self.request))
    }

    /// Reads the first message of a whole body.
    pub(super) fn read_whole<'a>(
        &self,
        bytes: &'a [u8],
        api: Api,
        options: &Options<'_>,
    ) -> Result<Body<'a>, BodyError> {
        if Prefix::read(bytes).is_some_and(|prefix| prefix.end() > bytes.len()) {
            return Err(BodyError::NoMessage);
        }
        self.read(bytes, api, options)
    }
}
