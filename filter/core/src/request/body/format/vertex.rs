//! Vertex AI's service of predictions, whose requests carry the JSON of another API.

use crate::protobuf::{Payload, Value};
use crate::request::body::message::{MessageError, Messages};
use crate::request::body::object::{Format, Model, Rules};
use crate::request::body::{Api, Body, Options, Parser, beginning};
use crate::response::usage::ResponseMessage;

/// Rules of a method with a request of this name, whose JSON `read` reads.
const fn rules(messages: Messages, incomplete: &'static str, paths: &'static [&'static str]) -> Rules {
    Rules {
        model: Model::InHeader,
        messages: Some(messages),
        incomplete,
        ..Rules::new(Parser::VertexAi, paths)
    }
}

/// `ChatCompletions`, with a chat.
#[derive(Default)]
pub(super) struct VertexChat;

impl Format<'_> for VertexChat {
    const RULES: Rules = rules(
        Messages {
            request: "ChatCompletionsRequest",
            read: |request, options| read(request, Api::Chat, options),
            response: ResponseMessage::HttpBody,
        },
        "ChatCompletionsRequest has no HttpBody",
        &["PredictionService/ChatCompletions"],
    );
}

/// `RawPredict`, with a body of the responses API.
#[derive(Default)]
pub(super) struct VertexRawPredict;

impl Format<'_> for VertexRawPredict {
    const RULES: Rules = rules(
        Messages {
            request: "RawPredictRequest",
            read: |request, options| read(request, Api::Responses, options),
            response: ResponseMessage::HttpBody,
        },
        "RawPredictRequest has no HttpBody",
        &["PredictionService/RawPredict"],
    );
}

/// `StreamRawPredict`, with a body of the responses API.
#[derive(Default)]
pub(super) struct VertexStreamRawPredict;

impl Format<'_> for VertexStreamRawPredict {
    const RULES: Rules = rules(
        Messages {
            request: "StreamRawPredictRequest",
            read: |request, options| read(request, Api::Responses, options),
            response: ResponseMessage::HttpBody,
        },
        "StreamRawPredictRequest has no HttpBody",
        &["PredictionService/StreamRawPredict"],
    );
}

/// Reads the body in the `data` of the request's `google.api.HttpBody`, as a body of `api`.
fn read<'a>(request: Payload<'a>, api: Api, options: &Options<'_>) -> Result<Body<'a>, MessageError> {
    let mut http_body = None;
    for field in request.fields() {
        if let (2, Value::Payload(payload)) = field? {
            http_body = Some(payload);
        }
    }
    let mut data = Payload::default();
    for field in http_body.ok_or(MessageError::NoInput)?.fields() {
        if let (2, Value::Payload(payload)) = field? {
            data = payload;
        }
    }
    let body = if data.is_cut() {
        // A part that is refused may lack only what is still to arrive.
        let completed = beginning::complete(data.arrived.to_vec()).ok_or(MessageError::NoInput)?;
        Body::read(&completed, api, options).map_err(|_| MessageError::NoInput)?.into_owned()
    } else {
        Body::read_bytes(data.arrived, api, options).map_err(|error| MessageError::Json(error.to_string()))?
    };
    // Its offsets are those in the JSON.
    Ok(Body { model_span: None, ..body })
}
