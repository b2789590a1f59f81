//! Any key and any string of a body may be spelled with escapes, and nothing that is read of it changes.
//!
//! Alone the values of a tool's `input_schema` and of a call's `input` are read as the client wrote them, as
//! the EPP does.

use core::cell::Cell;
use core::fmt::Write;

use endpoint_picker::request::body::{Api, Body, Options};
use endpoint_picker::request::prompt::block_hashes;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};
use serde_json::{Value, json};

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;

/// Bodies with every field that is read.
fn bodies() -> Vec<(Api, Value)> {
    let chat_blocks = json!([
        {"type": "text", "text": "a text of some words"},
        {"type": "image_url", "image_url": {"url": "https://images.example/1.png"}},
        {"type": "video_url", "video_url": {"url": "https://videos.example/1.mp4"}},
        {"type": "input_audio", "input_audio": {"data": "AAAAAAAAAAAAAAAA", "format": "wav"}},
        {"type": "audio_url", "input_audio": {"data": "BBBBBBBB", "format": "mp3"}},
    ]);
    let image =
        json!({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "CCCC"}});
    let schema = json!({"type": "object", "properties": {"city": {"type": "string"}}});
    let items = json!([{"type": "message", "role": "user", "content": "an item of some words"}]);
    vec![
        (
            Api::Chat,
            json!({
                "model": "a-model", "stream": true, "max_tokens": 7, "cache_salt": "a-salt",
                "tools": [{"type": "function", "function": {"name": "weather", "parameters": schema}}],
                "messages": [
                    {"role": "system", "content": "instructions of some words"},
                    {"role": "user", "content": chat_blocks},
                ],
            }),
        ),
        (Api::Completions, json!({"model": "m", "max_tokens": 7, "prompt": "a prompt of some words"})),
        (Api::Completions, json!({"model": "m", "prompt": ["one of several prompts", "and another one"]})),
        (Api::Embeddings, json!({"model": "m", "input": "an input of some words"})),
        (Api::Embeddings, json!({"model": "m", "input": ["one of several inputs", "and another one"]})),
        (
            Api::Responses,
            json!({
                "model": "m", "max_output_tokens": 7, "instructions": "be brief",
                "tools": [{"type": "function", "name": "weather", "parameters": schema}], "input": items,
            }),
        ),
        (Api::Conversations, json!({"model": "m", "metadata": {"a": "b"}, "items": items})),
        (Api::Images, json!({"model": "m", "prompt": "a picture", "size": "1x1", "n": 1})),
        (
            Api::Messages,
            json!({
                "model": "m", "stream": true, "max_tokens": 7,
                "system": [
                    {"type": "text", "text": "x-anthropic-billing-header: another one with each request"},
                    {"type": "text", "text": "instructions of some words"},
                ],
                "tools": [{"name": "weather", "description": "tells the weather", "input_schema": schema, "strict": true}],
                "messages": [
                    {"role": "user", "content": "a question of some words"},
                    {"role": "assistant", "content": [
                        {"type": "thinking", "thinking": "a thought of some words"},
                        {"type": "tool_use", "id": "call-1", "name": "weather", "input": {"city": "Bern"}},
                    ]},
                    {"role": "user", "content": [
                        {"type": "tool_result", "tool_use_id": "call-1", "content": [
                            {"type": "text", "text": "a result of some words"}, image,
                        ]},
                        {"type": "image", "source": {"type": "url", "url": "https://images.example/1.png"}},
                        {"type": "text", "text": "a text of some words"},
                    ]},
                ],
            }),
        ),
        (Api::Generate, json!({"model": "m", "token_ids": [1, 2, 3], "sampling_params": {"max_tokens": 7}})),
        (
            Api::SglangGenerate,
            json!({"input_ids": [1, 2, 3], "sampling_params": {"max_new_tokens": 7}, "extra_key": "a-salt"}),
        ),
        (Api::CountTokens, json!({"model": "m", "messages": []})),
        (Api::ModelOnly, json!({"model": "m", "prompt": "a prompt"})),
    ]
}

/// Writes a value; `is_escaped` is asked for each key and each string, in order.
fn write(value: &Value, is_escaped: &mut impl FnMut() -> bool, out: &mut String) {
    match value {
        Value::String(text) => write_string(text, is_escaped(), out),
        Value::Array(elements) => {
            out.push('[');
            for (at, element) in elements.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { "," });
                write(element, is_escaped, out);
            }
            out.push(']');
        }
        Value::Object(members) => {
            out.push('{');
            for (at, (name, value)) in members.iter().enumerate() {
                out.push_str(if at == 0 { "" } else { "," });
                write_string(name, is_escaped(), out);
                out.push(':');
                let is_raw = name == "input_schema" || name == "input" && value.is_object();
                if is_raw { out.push_str(&value.to_string()) } else { write(value, is_escaped, out) }
            }
            out.push('}');
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => out.push_str(&value.to_string()),
    }
}

fn write_string(text: &str, is_escaped: bool, out: &mut String) {
    if is_escaped {
        out.push('"');
        for unit in text.encode_utf16() {
            write!(out, "\\u{unit:04x}").unwrap();
        }
        out.push('"');
    } else {
        out.push_str(&Value::from(text).to_string());
    }
}

/// Everything of a body that decides.
#[derive(Debug, PartialEq)]
struct Decisive {
    model: Option<String>,
    salt: Option<String>,
    stream: bool,
    max_output_tokens: Option<u64>,
    tokens: u64,
    is_cut: bool,
    hashes: Vec<Vec<u64>>,
}

impl Decisive {
    fn of(api: Api, json: &str, keep_bytes: usize) -> Self {
        let body = Body::read(json, api, &Options { keep_bytes, ..Options::default() })
            .unwrap_or_else(|error| panic!("{json}: {error}"));
        let salt = body.cache_salt.as_deref();
        Self {
            hashes: block_hashes(&body.prompt, "m", salt, 1, usize::MAX)
                .lists()
                .map(<[u64]>::to_vec)
                .collect(),
            model: body.model.as_deref().map(str::to_owned),
            salt: salt.map(str::to_owned),
            stream: body.stream,
            max_output_tokens: body.max_output_tokens,
            tokens: body.prompt.token_count(),
            is_cut: body.prompt.is_cut(),
        }
    }
}

const KEPT: [usize; 4] = [0, 10, 100, usize::MAX];

fn strings_of(body: &Value) -> usize {
    let mut strings = 0;
    let mut count = || {
        strings += 1;
        false
    };
    write(body, &mut count, &mut String::new());
    strings
}

fn spelled(body: &Value, is_escaped: impl Fn(usize) -> bool) -> String {
    let at = Cell::new(0);
    let mut json = String::new();
    write(body, &mut || is_escaped(at.replace(at.get() + 1)), &mut json);
    json
}

#[test]
fn each_string_of_a_body_may_be_spelled_with_escapes() {
    for (api, body) in bodies() {
        let plain = spelled(&body, |_| false);
        for keep_bytes in KEPT {
            let expected = Decisive::of(api, &plain, keep_bytes);
            for escaped in 0..strings_of(&body) {
                let json = spelled(&body, |at| at == escaped);
                assert_ne!(json, plain);
                assert_eq!(Decisive::of(api, &json, keep_bytes), expected, "{keep_bytes} bytes of {json}");
            }
        }
    }
}

#[test]
fn any_strings_of_a_body_may_be_spelled_with_escapes() {
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &[0x5e; 32]);
    let mut runner = TestRunner::new_with_rng(Config::with_cases(600), rng);
    let inputs = (select(bodies()), vec(any::<bool>(), 80), select(KEPT.to_vec()));
    let run = runner.run(&inputs, |((api, body), escaped, keep_bytes)| {
        let json = spelled(&body, |at| escaped[at]);
        let plain = spelled(&body, |_| false);
        prop_assert_eq!(
            Decisive::of(api, &json, keep_bytes),
            Decisive::of(api, &plain, keep_bytes),
            "{}",
            json
        );
        Ok(())
    });
    run.unwrap_or_else(|error| panic!("{error}"));
}
