//! The requests whose cost is budgeted: usual chats, by the rules of the EPP and by the shipped ones, in a
//! small and in a large pool.

use endpoint_picker_engine::testing::{busy_reading, snapshot, topology};
use endpoint_picker_wire::{Message as _, v1};
use serde_json::{Value, json};

use crate::envoy::{Next, Request};
use crate::pool::{self, Pool};
use crate::rules::expected_latency;

/// The columns of the table.
pub(crate) const CASES: [&str; 5] = ["epp-10", "epp-100", "latency-10", "latency-100", "recorded-10"];

/// The columns of a later chunk, each with the case whose pool it is measured in.
pub(crate) const CHUNKS: [(&str, &str); 2] = [("chunk", "latency-10"), ("recorded-chunk", "recorded-10")];

/// Requests of a case before the measured ones, after which its prompt and its series of metrics are known.
pub(crate) const BEFORE: usize = 10;

const FIRST_TOKEN: &[u8] = br#"data: {"id":"c","choices":[{"index":0,"delta":{"content":"The"}}]}

"#;
const NEXT_TOKEN: &[u8] = br#"data: {"id":"c","choices":[{"index":0,"delta":{"content":" fox"}}]}

"#;

/// The pool of a case, which has its snapshot. One that is *counted* counts the tokens of its responses.
pub(crate) fn pool_of(case: &str) -> Pool {
    let (rules, endpoints) = case.split_once('-').unwrap();
    let record = v1::RecordSample { key: 1, limit: u64::MAX };
    let policy = match rules {
        "epp" => v1::Policy::default(),
        "recorded" | "counted_recorded" => v1::Policy { record: Some(record), ..expected_latency() },
        "latency" | "counted" => expected_latency(),
        _ => panic!("{case}"),
    };
    let pool = pool::unready(case, &json!({"countTokens": rules.starts_with("counted")}));
    let numbers = 1..=endpoints.parse().unwrap();
    let topology = topology(case, numbers.clone(), policy);
    let snapshot = v1::Snapshot { topology: Some(topology), ..snapshot(numbers.map(busy_reading)) };
    pool.agent.publish(snapshot.encode_to_vec());
    pool.agent.wait_until_taken();
    pool.agent.wait_until_changes_refused();
    pool
}

/// The usual chat, with 2 KB of text.
pub(crate) fn body() -> Vec<u8> {
    chat().to_string().into_bytes()
}

/// The same with a name of its session.
#[allow(dead_code, reason = "the bench has no such column")]
pub(crate) fn named_body() -> Vec<u8> {
    let mut chat = chat();
    chat["prompt_cache_key"] = "0c9de1a5-7f0b-4f64-93dd-2b8a3d1f6a11".into();
    chat.to_string().into_bytes()
}

fn chat() -> Value {
    let text = "The quick brown fox jumps over the lazy dog. ".repeat(46);
    let messages = json!([{"role": "user", "content": text}]);
    json!({"model": "n", "messages": messages, "max_tokens": 64, "stream": true})
}

/// Sends the chat, up to the first token of its response.
pub(crate) fn begin(pool: &Pool, body: &[u8]) -> Request {
    let head = [
        (":method", "POST"),
        (":path", "/v1/chat/completions"),
        (":authority", "models"),
        (":scheme", "http"),
        ("user-agent", "openai-python/1.0"),
        ("accept", "*/*"),
        ("content-type", "application/json"),
        ("content-length", "2048"),
        ("x-request-id", "12345678-1234-1234-1234-123456789012"),
    ];
    let request = Request::new(pool, 0, &head);
    request.set_undivided();
    assert_eq!(request.headers(false), Next::Hold);
    assert_eq!(request.body(body, true), Next::Continue);
    let picked = request.destinations().unwrap();
    request.answer_headers(&picked, &[(":status", "200"), ("content-type", "text/event-stream")], false);
    request.answer_body(FIRST_TOKEN, false);
    request
}

/// Passes one more chunk of the response.
pub(crate) fn pass_chunk(request: &Request) {
    request.answer_body(NEXT_TOKEN, false);
}

/// Passes the end of the response.
pub(crate) fn end(request: Request) {
    request.answer_body(b"data: [DONE]\n\n", true);
    drop(request);
}
