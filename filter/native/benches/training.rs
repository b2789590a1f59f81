//! Requests of many kinds for a build of the module that counts which code they run: `tools/release/profile`
//! loads the build into this program with `LD_PRELOAD`. Alone the program does not start.
//!
//! The counts decide which code lies next to each other, so the mix is that of a busy pool: most requests are
//! chats by the default rules, a third are chats by the EPP's rules, and each rarer API, rule and course of a
//! response has a few.

#![allow(clippy::unwrap_used, reason = "a training that cannot continue has failed")]

#[allow(dead_code, unused_imports, reason = "the tests use the rest")]
#[path = "../tests/module/envoy/mod.rs"]
mod envoy;
#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../tests/module/pool.rs"]
mod pool;
#[path = "../tests/budget/rules.rs"]
mod rules;

use endpoint_picker_engine::testing::{busy_reading, picker_config, snapshot, topology};
use endpoint_picker_wire::v1;
use serde_json::{Value, json};

use envoy::{Config, Request};
use pool::Pool;

/// Requests to a pool with the default rules.
const MOST: usize = 4_000;
/// Requests to a pool with the EPP's default rules.
const MANY: usize = 2_000;
/// Requests to a pool with rules that are used less.
const FEW: usize = 250;
/// Different prompts, so that most of a pool's requests find theirs in the prefix index.
const PROMPTS: usize = 300;

const CHAT: &str = "/v1/chat/completions";
const STREAM_BEGIN: &[u8] =
    br#"data: {"id":"c","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}

"#;
const STREAM_TOKEN: &[u8] = br#"data: {"id":"c","choices":[{"index":0,"delta":{"content":" word"}}]}

"#;
const STREAM_USAGE: &[u8] =
    br#"data: {"id":"c","choices":[],"usage":{"prompt_tokens":400,"completion_tokens":20,"total_tokens":420}}

"#;
const STREAM_END: &[u8] = b"data: [DONE]\n\n";

/// The text of a prompt, of this many KB.
fn prompt(number: usize, kilobytes: usize) -> String {
    format!("The quick brown fox {number} jumps over the lazy dog. ").repeat(20 * kilobytes)
}

fn chat(model: &str, number: usize) -> Value {
    let kilobytes = [2, 2, 2, 1, 1, 8][number % 6];
    let message = json!({"role": "user", "content": prompt(number % PROMPTS, kilobytes)});
    json!({"model": model, "messages": [message], "max_tokens": 64, "stream": is_streamed(number)})
}

fn is_streamed(number: usize) -> bool {
    number % 8 < 3
}

/// A chat with all that messages may contain.
fn rich_chat(number: usize) -> Value {
    let image = json!({"type": "image_url", "image_url": {"url": "https://example.com/a.png"}});
    let call = json!({"id": "c", "type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}});
    let parameters = json!({"type": "object", "properties": {"a": {"type": "number"}}});
    json!({
        "model": "n",
        "messages": [
            {"role": "system", "content": "You are a helpful assistant."},
            {"role": "user", "content": [{"type": "text", "text": prompt(number, 2)}, image]},
            {"role": "assistant", "content": null, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "c", "content": "42 \u{e9} \n\"x\""},
        ],
        "tools": [{"type": "function", "function": {"name": "f", "parameters": parameters}}],
        "temperature": 0.7,
        "stream": true,
        "stream_options": {"include_usage": true},
    })
}

/// Sends a request and its body, and its response if an endpoint was picked.
fn send(config: &Config, number: usize, path: &str, body: &Value) {
    let request = Request::new(
        config,
        u32::try_from(number % 4).unwrap(),
        &[
            (":method", "POST"),
            (":path", path),
            (":authority", "models"),
            (":scheme", "http"),
            ("user-agent", "openai-python/1.0"),
            ("accept", "*/*"),
            ("content-type", "application/json"),
            ("content-length", "2000"),
            ("x-request-id", "12345678-1234-1234-1234-123456789012"),
        ],
    );
    request.headers(false);
    let body = body.to_string();
    if number % 16 == 5 {
        let (begin, rest) = body.as_bytes().split_at(body.len() / 2);
        request.body(begin, false);
        request.body(rest, true);
    } else {
        request.body(body.as_bytes(), true);
    }
    respond(&request, number);
}

/// The response: of eight three are streams, four are whole and one has no body or fails.
fn respond(request: &Request, number: usize) {
    let Some(destinations) = request.destinations() else { return };
    let server = destinations.split(',').next().unwrap();
    if is_streamed(number) {
        let head = [(":status", "200"), ("content-type", "text/event-stream"), ("server", "uvicorn")];
        request.answer_headers(server, &head, false);
        request.answer_body(STREAM_BEGIN, false);
        for _ in 0..20 {
            request.answer_body(STREAM_TOKEN, false);
        }
        request.answer_body(STREAM_USAGE, false);
        // One of three ends with trailers, and one is aborted by its client.
        request.answer_body(STREAM_END, number.is_multiple_of(8));
        if number % 8 == 1 {
            request.answer_trailers();
        }
    } else if number % 8 < 7 {
        let usage = json!({"prompt_tokens": 400, "completion_tokens": 64, "total_tokens": 464});
        let body =
            json!({"id": "c", "choices": [{"message": {"content": prompt(number, 1)}}], "usage": usage});
        let head = [(":status", "200"), ("content-type", "application/json")];
        request.answer_headers(server, &head, false);
        request.answer_body(body.to_string().as_bytes(), true);
    } else if number % 64 == 7 {
        request.answer_headers(server, &[(":status", "503")], true);
    } else if number % 64 == 15 {
        request.set_attempts(2);
        request.answer_headers(&pool::address(3), &[(":status", "200")], true);
    } else {
        request.answer_headers(server, &[(":status", "200")], true);
    }
}

fn send_chats(config: &Config, count: usize) {
    for number in 0..count {
        send(config, number, CHAT, &chat("n", number * 7 + number / PROMPTS));
    }
}

/// Requests of other APIs, and some without a body.
fn send_other_apis(config: &Config, count: usize) {
    let tokens: Vec<u32> = (0..500).collect();
    for number in 0..count {
        let text = prompt(number % 100, 2);
        let (path, body) = match number % 16 {
            0..=4 => ("/v1/completions", json!({"model": "n", "prompt": text, "max_tokens": 64})),
            5..=7 => {
                let content = json!([{"type": "text", "text": text}]);
                let messages = json!([{"role": "user", "content": content}]);
                ("/v1/messages", json!({"model": "n", "system": "Be brief.", "messages": messages}))
            }
            8..=9 => ("/v1/responses", json!({"model": "n", "input": text})),
            10 => ("/v1/embeddings", json!({"model": "n", "input": [text, "more"]})),
            11 => ("/v1/completions", json!({"model": "n", "prompt": tokens})),
            12 => {
                ("/inference/v1/generate", json!({"model": "n", "token_ids": tokens, "sampling_params": {}}))
            }
            13 => (CHAT, rich_chat(number % 100)),
            _ => {
                let head = [(":method", "GET"), (":path", "/v1/models"), (":authority", "models")];
                let request = Request::new(config, 0, &head);
                request.headers(true);
                respond(&request, number);
                continue;
            }
        };
        send(config, number / 16, path, &body);
    }
}

fn policy(plugins: &[(&str, Option<f64>)]) -> v1::Policy {
    v1::Policy { picker_config: Some(picker_config(plugins)), ..v1::Policy::default() }
}

/// A pool whose endpoints have different readings.
fn busy_pool(name: &str, fields: &Value, policy: v1::Policy, endpoints: u16) -> Pool {
    let pool = pool::unready(name, fields);
    let reading = |number: u16| {
        let running = vec![format!("adapter-{}", number % 5), format!("adapter-{}", number % 3 + 5)];
        v1::Reading { lora: Some(v1::Lora { running, waiting: vec![], max: 4 }), ..busy_reading(number) }
    };
    let numbers = 1..=endpoints;
    let topology = topology(name, numbers.clone(), policy);
    let snapshot = v1::Snapshot { topology: Some(topology), ..snapshot(numbers.map(reading)) };
    pool.agent.publish(endpoint_picker_wire::Message::encode_to_vec(&snapshot));
    pool.agent.wait_until_taken();
    pool
}

fn main() {
    for endpoints in [10, 100] {
        for (name, policy, count) in
            [("latency", rules::expected_latency(), MOST), ("epp", v1::Policy::default(), MANY)]
        {
            let pool = busy_pool(&format!("{name}-{endpoints}"), &json!({}), policy, endpoints);
            send_chats(&pool, count);
            send_other_apis(&pool, count / 4);
        }
    }

    let lora = policy(&[
        ("queue-scorer", None),
        ("kv-cache-utilization-scorer", None),
        ("prefix-cache-scorer", Some(3.0)),
        ("lora-affinity-scorer", None),
        ("max-score-picker", None),
    ]);
    let pool = busy_pool("lora", &json!({}), lora, 10);
    for number in 0..MANY / 2 {
        send(&pool, number, CHAT, &chat(&format!("adapter-{}", number % 12), number));
    }

    let pool = busy_pool("rewrite", &json!({}), pool::fewest_waiting(), 10);
    for number in 0..FEW {
        send(&pool, number, CHAT, &chat("m", number));
    }

    let shadow_config = picker_config(&[("queue-scorer", None), ("max-score-picker", None)]);
    let shadow = v1::Policy { shadow_config: Some(shadow_config), ..v1::Policy::default() };
    let load =
        [("active-request-scorer", None), ("load-aware-scorer", None), ("weighted-random-picker", None)];
    let session =
        [("session-affinity-scorer", None), ("no-hit-lru-scorer", None), ("max-score-picker", None)];
    for (name, policy) in [
        ("shadow", shadow),
        ("load", policy(&load)),
        ("session", policy(&session)),
        ("lmetric", policy(&[("lmetric-scorer", None), ("max-score-picker", None)])),
    ] {
        send_chats(&busy_pool(name, &json!({}), policy, 10), FEW);
    }
    let fields = json!({"explain": {"accessLog": true}, "countTokens": true, "steering": "overrideHost"});
    send_chats(&busy_pool("explained", &fields, v1::Policy::default(), 10), FEW);
}
