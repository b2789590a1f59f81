//! Answers in the shapes of OpenAI's responses and Anthropic's messages, whose events have types.

use super::agent;
use super::body::{Body, body, error, json_body};
use super::event_stream;
use super::protocol::MODEL;
use super::request::ReceivedRequest;
use super::state::State;
use super::stored;
use bytes::Bytes;
use http_body_util::BodyExt;
use http_body_util::channel::Channel;
use hyper::{Response, StatusCode};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

const WORDS: [&str; 3] = ["The", " quick", " fox"];

/// Counts a token for each byte of the prompt, half of them cached, and one for each word of the response.
/// The events that announce a stream come at once, as vLLM sends them, and the others when the engine has
/// read the prompt, each after a pause.
pub(crate) fn answer(
    shared: Arc<State>,
    path: &str,
    request: &ReceivedRequest,
    pause: Duration,
) -> Response<Body> {
    let Ok(request_json) = serde_json::from_slice::<Value>(&request.body) else {
        return error(StatusCode::BAD_REQUEST, "the body is not JSON");
    };
    if let Some(refusal) = stored::refusal(&shared, &request_json) {
        return refusal;
    }
    if request_json["stream"] == true && agent::is_agents(&request_json) {
        return event_stream::agents(shared, path, &request_json, pause);
    }
    let prompt = if path == "/v1/responses" { &request_json["input"] } else { &request_json["messages"] };
    let prompt = prompt.to_string();
    let (input, output) = (prompt.len(), WORDS.len());
    let model = request_json["model"].as_str().unwrap_or(MODEL).to_owned();
    let (whole, events) = if path == "/v1/responses" {
        responses(&stored::store(&shared, "resp"), &model, input, output)
    } else {
        messages(&model, input, output)
    };
    if request_json["stream"] != true {
        return json_body(StatusCode::OK, &whole);
    }
    let name = |event: &Value| event["type"].as_str().unwrap_or_default().to_owned();
    let mut events: Vec<String> =
        events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", name(event))).collect();
    let mut response = body("text/event-stream; charset=utf-8", "");
    if pause.is_zero() && shared.engine.is_none() {
        return response.map(|_| body("", events.concat()).into_body());
    }
    let (mut sender, receiver) = Channel::new(1);
    *response.body_mut() = receiver.boxed_unsync();
    tokio::spawn(async move {
        let mut work =
            shared.engine.as_ref().map(|engine| engine.submit(&model, prompt.as_bytes(), output as u64));
        let rest = events.split_off(ANNOUNCEMENTS);
        let mut is_open = sender.send_data(Bytes::from(events.concat())).await.is_ok();
        for event in rest {
            tokio::time::sleep(pause).await;
            if let Some(work) = &mut work {
                work.tokens().await;
            }
            is_open = is_open && sender.send_data(Bytes::from(event)).await.is_ok();
        }
    });
    response
}

/// The number of events that announce a stream.
const ANNOUNCEMENTS: usize = 2;

/// The whole response, and its events.
fn responses(id: &str, model: &str, input: usize, output: usize) -> (Value, Vec<Value>) {
    let content = json!([{"type": "output_text", "text": WORDS.concat()}]);
    let whole = json!({
        "id": id, "object": "response", "status": "completed", "model": model,
        "output": [{"type": "message", "role": "assistant", "content": content}],
        "usage": {
            "input_tokens": input,
            "input_tokens_details": {"cached_tokens": input / 2},
            "output_tokens": output,
            "total_tokens": input + output,
        },
    });
    let begun =
        json!({"id": id, "object": "response", "status": "in_progress", "model": model, "usage": null});
    let mut events = vec![
        json!({"type": "response.created", "response": begun}),
        json!({"type": "response.in_progress", "response": begun}),
    ];
    events.extend(WORDS.map(|word| json!({"type": "response.output_text.delta", "delta": word})));
    events.push(json!({"type": "response.completed", "response": &whole}));
    (whole, events)
}

/// The whole response, and its events.
fn messages(model: &str, input: usize, output: usize) -> (Value, Vec<Value>) {
    let message = |text: &str, output: usize| {
        json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": model,
            "content": [{"type": "text", "text": text}],
            "usage": {"input_tokens": input, "cache_read_input_tokens": input / 2, "output_tokens": output},
        })
    };
    let mut events =
        vec![json!({"type": "message_start", "message": message("", 1)}), json!({"type": "ping"})];
    events.extend(WORDS.map(|word| {
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}})
    }));
    let end = json!({"stop_reason": "end_turn"});
    events.push(json!({"type": "message_delta", "delta": end, "usage": {"output_tokens": output}}));
    events.push(json!({"type": "message_stop"}));
    (message(&WORDS.concat(), output), events)
}
