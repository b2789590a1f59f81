//! Vertex AI's service of predictions, whose requests carry the JSON of another API.

use crate::protobuf::{Malformed, Payload, Value};
use crate::request::body::message::{MessageError, Messages, ReadMessage};
use crate::request::body::object::{Format, Model, Rules};
use crate::request::body::{Api, Body, Options, Parser, ResponseMessage, beginning};

/// Rules of a method at this path, whose request has this name.
const fn rules(
    path: &'static [&'static str],
    request: &'static str,
    read: ReadMessage,
    incomplete: &'static str,
) -> Rules {
    Rules {
        model: Model::InHeader,
        messages: Some(Messages { request, read, response: ResponseMessage::HttpBody }),
        incomplete,
        ..Rules::new(Parser::VertexAi, path)
    }
}

/// `ChatCompletions`, with a chat.
#[derive(Default)]
pub(super) struct VertexChat;

impl Format<'_> for VertexChat {
    const RULES: Rules = rules(
        &["PredictionService/ChatCompletions"],
        "ChatCompletionsRequest",
        read_chat,
        "ChatCompletionsRequest has no HttpBody",
    );
}

/// `RawPredict`, with a body of the responses API.
#[derive(Default)]
pub(super) struct VertexRawPredict;

impl Format<'_> for VertexRawPredict {
    const RULES: Rules = rules(
        &["PredictionService/RawPredict"],
        "RawPredictRequest",
        read_responses,
        "RawPredictRequest has no HttpBody",
    );
}

/// `StreamRawPredict`, with a body of the responses API.
#[derive(Default)]
pub(super) struct VertexStreamRawPredict;

impl Format<'_> for VertexStreamRawPredict {
    const RULES: Rules = rules(
        &["PredictionService/StreamRawPredict"],
        "StreamRawPredictRequest",
        read_responses,
        "StreamRawPredictRequest has no HttpBody",
    );
}

fn read_chat<'a>(request: Payload<'a>, options: &Options<'_>) -> Result<Body<'a>, MessageError> {
    read(request, Api::Chat, options)
}

fn read_responses<'a>(request: Payload<'a>, options: &Options<'_>) -> Result<Body<'a>, MessageError> {
    read(request, Api::Responses, options)
}

/// Reads the body in the `data` of the request's `google.api.HttpBody`, as a body of `api`.
fn read<'a>(request: Payload<'a>, api: Api, options: &Options<'_>) -> Result<Body<'a>, MessageError> {
    let http_body = last_payload(request)?.ok_or(MessageError::NoInput)?;
    let read = read_http_body(http_body, api, options);
    // The `data` that is refused may be still to arrive, or another one that takes its place.
    if request.is_cut() { read.map_err(|_| MessageError::NoInput) } else { read }
}

fn read_http_body<'a>(
    http_body: Payload<'a>,
    api: Api,
    options: &Options<'_>,
) -> Result<Body<'a>, MessageError> {
    let data = last_payload(http_body)?.unwrap_or_default();
    let body = if data.is_cut() {
        let completed = beginning::complete(data.arrived.to_vec()).ok_or(MessageError::NoInput)?;
        Body::read(&completed, api, options).map(Body::into_owned)
    } else {
        Body::read_bytes(data.arrived, api, options)
    };
    let body = body.map_err(|error| MessageError::Json(error.to_string()))?;
    // Its offsets are those in the JSON.
    Ok(Body { model_span: None, priority_span: None, ..body })
}

/// The last value of field 2, which is the `HttpBody` of a request and the `data` of an `HttpBody`.
fn last_payload(message: Payload<'_>) -> Result<Option<Payload<'_>>, Malformed> {
    let mut last = None;
    for field in message.fields() {
        if let (2, Value::Payload(payload)) = field? {
            last = Some(payload);
        }
    }
    Ok(last)
}
