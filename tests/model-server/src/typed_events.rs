//! Answers in the shapes of OpenAI's responses and Anthropic's messages, whose events have types.

use super::body::{Body, body, error, json_body};
use super::protocol::MODEL;
use super::request::ReceivedRequest;
use hyper::{Response, StatusCode};
use serde_json::{Value, json};

const WORDS: [&str; 3] = ["The", " quick", " fox"];

/// Counts a token for each byte of the prompt, half of them cached, and one for each word of the answer.
pub(crate) fn answer(path: &str, request: &ReceivedRequest) -> Response<Body> {
    let Ok(request_json) = serde_json::from_slice::<Value>(&request.body) else {
        return error(StatusCode::BAD_REQUEST, "the body is not JSON");
    };
    let prompt = if path == "/v1/responses" { &request_json["input"] } else { &request_json["messages"] };
    let (input, output) = (prompt.to_string().len(), WORDS.len());
    let model = request_json["model"].as_str().unwrap_or(MODEL);
    let (whole, events) = if path == "/v1/responses" {
        responses(model, input, output)
    } else {
        messages(model, input, output)
    };
    if request_json["stream"] != true {
        return json_body(StatusCode::OK, &whole);
    }
    let name = |event: &Value| event["type"].as_str().unwrap_or_default().to_owned();
    let events: Vec<String> =
        events.iter().map(|event| format!("event: {}\ndata: {event}\n\n", name(event))).collect();
    body("text/event-stream; charset=utf-8", events.concat())
}

/// The whole answer, and its events.
fn responses(model: &str, input: usize, output: usize) -> (Value, Vec<Value>) {
    let content = json!([{"type": "output_text", "text": WORDS.concat()}]);
    let whole = json!({
        "id": "resp_1", "object": "response", "status": "completed", "model": model,
        "output": [{"type": "message", "role": "assistant", "content": content}],
        "usage": {
            "input_tokens": input,
            "input_tokens_details": {"cached_tokens": input / 2},
            "output_tokens": output,
            "total_tokens": input + output,
        },
    });
    let begun =
        json!({"id": "resp_1", "object": "response", "status": "in_progress", "model": model, "usage": null});
    let mut events = vec![json!({"type": "response.created", "response": begun})];
    events.extend(WORDS.map(|word| json!({"type": "response.output_text.delta", "delta": word})));
    events.push(json!({"type": "response.completed", "response": &whole}));
    (whole, events)
}

/// The whole answer, and its events.
fn messages(model: &str, input: usize, output: usize) -> (Value, Vec<Value>) {
    let message = |text: &str, output: usize| {
        json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": model,
            "content": [{"type": "text", "text": text}],
            "usage": {"input_tokens": input, "cache_read_input_tokens": input / 2, "output_tokens": output},
        })
    };
    let mut events = vec![json!({"type": "message_start", "message": message("", 1)})];
    events.extend(WORDS.map(|word| {
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": word}})
    }));
    let end = json!({"stop_reason": "end_turn"});
    events.push(json!({"type": "message_delta", "delta": end, "usage": {"output_tokens": output}}));
    events.push(json!({"type": "message_stop"}));
    (message(&WORDS.concat(), output), events)
}
