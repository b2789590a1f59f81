//! The requests whose cost is budgeted: usual chats, by the rules of the EPP and by the shipped ones, in a
//! small and in a large pool.

use endpoint_picker_engine::testing::{busy_reading, picker_config, plugin, snapshot, topology};
use endpoint_picker_wire::{Message as _, v1};
use serde_json::json;

use crate::envoy::{Next, Request};
use crate::pool::{self, Pool};

/// The columns of the table.
pub(crate) const CASES: [&str; 4] = ["epp-10", "epp-100", "latency-10", "latency-100"];

/// Requests of a case before the measured ones, after which its prompt and its series of metrics are known.
pub(crate) const BEFORE: usize = 10;

const FIRST_TOKEN: &[u8] = br#"data: {"id":"c","choices":[{"index":0,"delta":{"content":"The"}}]}

"#;
const NEXT_TOKEN: &[u8] = br#"data: {"id":"c","choices":[{"index":0,"delta":{"content":" fox"}}]}

"#;

/// The pool of a case, which has its snapshot.
pub(crate) fn pool_of(case: &str) -> Pool {
    let (rules, endpoints) = case.split_once('-').unwrap();
    let policy = match rules {
        "epp" => v1::Policy::default(),
        _ => shipped(),
    };
    let pool = pool::unready(case, &json!({}));
    let numbers = 1..=endpoints.parse().unwrap();
    let topology = topology(case, numbers.clone(), policy);
    let snapshot = v1::Snapshot { topology: Some(topology), ..snapshot(numbers.map(busy_reading)) };
    pool.agent.publish(snapshot.encode_to_vec());
    pool.agent.wait_until_taken();
    pool.agent.wait_until_changes_refused();
    pool
}

/// The rules of the example that deployments start with.
fn shipped() -> v1::Policy {
    let example = include_str!("../../../../examples/choosing/expected-latency.yaml");
    // Comments, and switches that are off.
    let example: String =
        example.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect();
    let (scorer, producer, parameters) =
        ("expected-latency-scorer", "approx-prefix-cache-producer", "{ capacityInTokens: true }");
    let plugins = format!(
        "plugins:\n  - type: {scorer}\n  - type: {producer}\n    parameters: {parameters}\nscheduling"
    );
    assert!(example.contains(&plugins), "the rules of the example are others");
    let mut config = picker_config(&[(scorer, None)]);
    config.plugins.push(plugin(producer, r#"{"capacityInTokens": true}"#));
    v1::Policy { picker_config: Some(config), ..v1::Policy::default() }
}

/// The usual chat, with 2 KB of text.
pub(crate) fn body() -> Vec<u8> {
    let text = "The quick brown fox jumps over the lazy dog. ".repeat(46);
    let messages = json!([{"role": "user", "content": text}]);
    json!({"model": "n", "messages": messages, "max_tokens": 64, "stream": true}).to_string().into_bytes()
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
