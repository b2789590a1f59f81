//! Producers and parsers.

use endpoint_picker::config::PickerConfig;
use endpoint_picker::decision::PromptBlocks;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::plugin::Instance;
use endpoint_picker::plugin::registry::read_plugin;
use endpoint_picker::pool::reading::Reading;
use endpoint_picker::request::body::Api;
use serde_json::{Value, json};

use super::{kept, load, plain};
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{Fixture, destinations, fresh};

fn prompt_tokens(config: &Value, api: Api, body: &Value) -> u64 {
    Fixture::idle(config, 1).send_body(api, &body.to_string(), &[]).reservations[0].prefill.tokens
}

#[test]
fn token_producer() {
    let tokens = |estimate: &Value, api, body: &Value| {
        let producer = json!({"type": "token-producer", "parameters": {"estimate": estimate}});
        prompt_tokens(&json!({"plugins": [producer, {"type": "queue-scorer"}]}), api, body)
    };
    assert_eq!(tokens(&json!({}), Api::Completions, &json!({"model": "m", "prompt": "hello world"})), 3);
    let image = json!([{"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]);
    let chat = json!({"model": "m", "messages": [{"role": "user", "content": image}]});
    // The role `user` is a token of its own.
    assert_eq!(tokens(&json!({}), Api::Chat, &chat), 1 + 225);
    let fixed = json!({"image": {"mode": "static", "static": {"staticToken": 99}}});
    assert_eq!(tokens(&fixed, Api::Chat, &chat), 1 + 99);
}

#[test]
fn approx_prefix_cache_producer() {
    let blocks = |block_size| {
        let reading = Reading { block_size, ..fresh() };
        let decision = Fixture::new(&plain("prefix-cache-scorer"), vec![reading]).send(&"x".repeat(360), &[]);
        // The first word is the capacity.
        decision.changes[0].words.len() - 1
    };
    assert_eq!(blocks(None), 2);
    assert_eq!(blocks(Some(128)), 1);
    let mut fixture = Fixture::new(&plain("prefix-cache-scorer"), vec![fresh()]);
    let mut seen = |prompt: &str| fixture.send(prompt, &[]).prompt;
    assert_eq!(seen(&"x".repeat(360)), PromptBlocks { matched: 0, total: 2 });
    assert_eq!(seen(&format!("{}y", "x".repeat(359))), PromptBlocks { matched: 1, total: 2 });
}

#[test]
fn inflight_load_producer() {
    let reservation = |parameters: &Value| {
        let plugins = json!([
            {"type": "inflight-load-producer", "parameters": parameters}, {"type": "prefix-cache-scorer"},
        ]);
        let mut fixture = Fixture::idle(&json!({"plugins": plugins}), 1);
        fixture.send(&"x".repeat(256), &[]);
        let reservation = fixture.send(&"x".repeat(400), &[]).reservations[0];
        (reservation.prefill, reservation.response)
    };
    assert_eq!(reservation(&json!({})), (load(0, 64), load(1, 0)));
    assert_eq!(reservation(&json!({"addEstimatedOutputTokens": true})), (load(0, 0), load(1, 214)));
}

#[test]
fn session_id_producer() {
    let source = json!({"attribute": "SessionIDDataKey", "producer": "session-id-producer"});
    let affinity = json!({"strategy": "session_id", "sessionIdConfig": {"sources": [source]}});
    let plugins = json!([
        {"type": "session-id-producer", "parameters": {"cookieName": "sid"}},
        {"type": "session-affinity-filter", "parameters": affinity},
    ]);
    let mut fixture = Fixture::idle(&json!({"plugins": plugins}), 3);
    let first = destinations(&fixture.send("x", &[("cookie", "theme=dark; sid=abc")]));
    assert_eq!(kept(&mut fixture, &[("cookie", "sid=abc")]), first);
}

#[test]
fn parsers() {
    let api = |parser: Option<&str>, path: &str| {
        let plugins = parser
            .map(|parser| Instance { name: parser.to_owned(), plugin: read_plugin(parser, "{}").unwrap() });
        let config = PickerConfig {
            plugins: plugins.into_iter().collect(),
            parsers: parser.map(str::to_owned).into_iter().collect(),
            ..PickerConfig::default()
        };
        Pipeline::compile(config).unwrap().api(path)
    };
    assert_eq!(api(None, "/v1/chat/completions"), Ok(Api::Chat));
    assert_eq!(api(None, "/v1/messages"), Ok(Api::Messages));
    assert_eq!(api(None, "/inference/v1/generate"), Ok(Api::Generate));
    assert_eq!(api(Some("sglanghttp-parser"), "/generate"), Ok(Api::SglangGenerate));
    assert_eq!(api(None, "/tokenize"), Ok(Api::ModelOnly));
    assert_eq!(api(None, "/v1/audio/transcriptions"), Ok(Api::Upload));
    assert_eq!(api(None, "/v1/models/load"), Ok(Api::Raw));
}
