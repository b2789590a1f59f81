//! Reading request bodies and hashing their prompts.

#![allow(clippy::unwrap_used, reason = "a bench that cannot go on has failed")]
#![allow(missing_docs, reason = "the macros of the bench harness make public functions")]

use std::fmt::Write;
use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use endpoint_picker::request::body::{Api, Body, Options};
use endpoint_picker::request::prompt::block_hashes;

/// A chat of about `size` bytes in messages of 400 bytes; every sixth has a line break, escaped as it must
/// be.
fn chat(size: usize) -> String {
    let mut json = r#"{"model":"meta-llama/Llama-3.1-8B-Instruct","messages":["#.to_owned();
    let mut turn = 0;
    while json.len() < size.saturating_sub(150) {
        let role = ["user", "assistant"][turn % 2];
        let comma = if turn == 0 { "" } else { "," };
        let line_break = if turn % 6 == 0 { r"\n" } else { " " };
        let text = "The quick brown fox jumps over the lazy dog. ".repeat(8);
        let text = &text[..text.len().min(size - json.len())];
        write!(json, r#"{comma}{{"role":"{role}","content":"{turn}{line_break}{text}"}}"#).unwrap();
        turn += 1;
    }
    json.push_str(r#"],"temperature":0.7,"top_p":0.95,"max_tokens":256,"stream":true,"user":"someone"}"#);
    json
}

fn completions(size: usize, word: &str) -> String {
    format!(r#"{{"model":"m","max_tokens":100,"prompt":"{}"}}"#, word.repeat(size / word.len()))
}

fn bodies(c: &mut Criterion) {
    let options = Options::default();
    let mut group = c.benchmark_group("body");
    for (name, size) in [("2KB", 2 << 10), ("200KB", 200 << 10), ("1MiB", 1 << 20), ("8MiB", 8 << 20)] {
        for (kind, api, json) in [
            ("chat", Api::Chat, chat(size)),
            ("completions", Api::Completions, completions(size, "The quick brown fox. ")),
            (
                "completions with escapes",
                Api::Completions,
                completions(size, r#"The quick\nbrown \"fox\". "#),
            ),
        ] {
            group.throughput(Throughput::Bytes(json.len() as u64));
            group.bench_function(BenchmarkId::new(format!("read {kind}"), name), |b| {
                b.iter(|| Body::read(black_box(&json), api, &options).unwrap());
            });
            group.bench_function(BenchmarkId::new(format!("read and hash {kind}"), name), |b| {
                b.iter(|| {
                    let body = Body::read(black_box(&json), api, &options).unwrap();
                    let model = body.model.as_deref().unwrap_or_default();
                    block_hashes(&body.prompt, model, body.cache_salt.as_deref(), 64, 2048)
                });
            });
        }
    }
    group.finish();
}

/// Bytes of a hostile body.
const SIZE: usize = 8 << 20;

/// A body of `before`, of `part` again and again, and of `after`.
fn repeated(before: &str, part: &str, after: &str) -> String {
    before.to_owned() + &part.repeat(SIZE / part.len()) + after
}

/// A body of `before`, of parts that are each written with their number, and of `after`.
fn numbered(before: &str, part: impl Fn(&mut String, u32), after: &str) -> String {
    let mut body = before.to_owned();
    let mut number = 0;
    while body.len() < SIZE {
        part(&mut body, number);
        number += 1;
    }
    body + after
}

/// Bodies with tools that are made to cost much.
fn hostile_tools() -> Vec<(&'static str, Api, String)> {
    const TOOLS: (&str, &str) = (r#"{"messages":[{}],"tools":[{"#, r#""z":1}]}"#);
    let tool = |part: &dyn Fn(&mut String, u32)| numbered(TOOLS.0, part, TOOLS.1);
    let tools =
        |part: &str, last: &str| repeated(r#"{"messages":[{}],"tools":["#, part, &format!("{last}]}}"));
    let scattered = |number: u32| number.wrapping_mul(0x9e37_79b1) & 0xff_ffff;
    let nested = |open: &str, close: &str| {
        let value = open.repeat(100) + "1" + &close.repeat(100) + ",";
        repeated(r#"{"messages":[{}],"tools":["#, &value, "1]}")
    };
    vec![
        (
            "keys of a tool",
            Api::Chat,
            tool(&|json, key| write!(json, r#""{:x}":1,"#, scattered(key)).unwrap()),
        ),
        ("keys of a tool in order", Api::Chat, tool(&|json, key| write!(json, r#""{key:06x}":1,"#).unwrap())),
        (
            "keys of a tool in reverse",
            Api::Chat,
            tool(&|json, key| write!(json, r#""{:06x}":1,"#, 0xff_ffff - key).unwrap()),
        ),
        (
            "escaped keys of a tool",
            Api::Chat,
            tool(&|json, key| write!(json, r#""\n{:x}":1,"#, scattered(key)).unwrap()),
        ),
        (
            "escaped keys of a tool in reverse",
            Api::Chat,
            tool(&|json, key| write!(json, r#""\n{:06x}":1,"#, 0xff_ffff - key).unwrap()),
        ),
        ("short escaped keys of a tool", Api::Chat, tool(&|json, _| json.push_str(r#""\n":1,"#))),
        ("a key of a tool repeated", Api::Chat, tool(&|json, _| json.push_str(r#""a":1,"#))),
        ("two keys of a tool repeated", Api::Chat, tool(&|json, _| json.push_str(r#""b":1,"a":1,"#))),
        ("empty tools", Api::Chat, tools("{},", "{}")),
        ("tools of one key", Api::Chat, tools(r#"{"a":1},"#, "{}")),
        ("tools of one escaped key", Api::Chat, tools(r#"{"\n":1},"#, "{}")),
        ("tools of two keys in reverse", Api::Chat, tools(r#"{"b":1,"a":1},"#, "{}")),
        ("tools of two floats in reverse", Api::Chat, tools(r#"{"b":0.5,"a":0.5},"#, "{}")),
        ("empty lists in tools", Api::Chat, tools("[],", "[]")),
        ("digits in tools", Api::Chat, tools("1,", "1")),
        ("empty strings in tools", Api::Chat, tools(r#""","#, r#""""#)),
        ("escapes in tools", Api::Chat, tools(r#""\n","#, r#""""#)),
        ("numbers of a tool in full", Api::Chat, tools("1e16,", "1")),
        ("least numbers of a tool", Api::Chat, tools("5e-324,", "1")),
        ("great numbers of a tool", Api::Chat, tools("1e300,", "1")),
        ("nested lists in tools", Api::Chat, nested("[", "]")),
        ("nested objects in tools", Api::Chat, nested(r#"{"a":"#, "}")),
        ("nested objects in reverse in tools", Api::Chat, nested(r#"{"b":"#, r#","a":1}"#)),
        ("lone surrogates as keys of a tool", Api::Chat, tool(&|json, _| json.push_str(r#""\ud800":1,"#))),
    ]
}

/// Other bodies that are made to cost much.
fn hostile_bodies() -> Vec<(&'static str, Api, String)> {
    let input = |part: &str, last: &str| repeated(r#"{"input":["#, part, &format!("{last}]}}"));
    vec![
        ("messages", Api::Chat, repeated(r#"{"messages":["#, r#"{"role":"u"},"#, "{}]}")),
        ("empty messages", Api::Chat, repeated(r#"{"messages":["#, "{},", "{}]}")),
        (
            "blocks",
            Api::Chat,
            repeated(r#"{"messages":[{"content":["#, r#"{"type":"text","text":"a"},"#, "{}]}]}"),
        ),
        ("empty blocks", Api::Chat, repeated(r#"{"messages":[{"content":["#, "{},", "{}]}]}")),
        ("members that are not read", Api::Chat, repeated(r#"{"messages":[{}],"x":["#, "{},", "{}]}")),
        (
            "escaped members that are not read",
            Api::Chat,
            repeated(r#"{"messages":[{}],"x":{"#, r#""\n":1,"#, r#""a":1}}"#),
        ),
        (
            "great numbers that are not read",
            Api::Chat,
            repeated(r#"{"messages":[{}],"x":["#, "1e300,", "1]}"),
        ),
        ("escaped top-level members", Api::Chat, repeated(r#"{"messages":[{}],"#, r#""\n":1,"#, r#""a":1}"#)),
        ("models", Api::Chat, repeated(r#"{"messages":[{}],"#, r#""model":"","#, r#""a":1}"#)),
        ("lone surrogates in a text", Api::Completions, repeated(r#"{"prompt":""#, r"\ud800", r#""}"#)),
        (
            "lone surrogates in texts",
            Api::Completions,
            repeated(r#"{"prompt":["#, r#""\ud800","#, r#""a"]}"#),
        ),
        ("empty items", Api::Conversations, repeated(r#"{"items":["#, "{},", "{}]}")),
        (
            "empty tools of Anthropic's API",
            Api::Messages,
            repeated(r#"{"messages":[{}],"tools":["#, "{},", "{}]}"),
        ),
        ("token ids", Api::Completions, repeated(r#"{"prompt":["#, "12345,", "1]}")),
        ("token ids of a digit", Api::Completions, repeated(r#"{"prompt":["#, "1,", "1]}")),
        ("lists of a token id", Api::Completions, repeated(r#"{"prompt":["#, "[1],", "[1]]}")),
        ("token ids as floats", Api::Completions, repeated(r#"{"prompt":["#, "1e0,", "1]}")),
        ("token ids of vLLM", Api::Generate, repeated(r#"{"token_ids":["#, "1,", "1]}")),
        ("token ids of SGLang", Api::SglangGenerate, repeated(r#"{"input_ids":["#, "1,", "1]}")),
        ("prompts", Api::Completions, repeated(r#"{"prompt":["#, r#""a","#, r#""a"]}"#)),
        ("empty prompts", Api::Completions, repeated(r#"{"prompt":["#, r#""","#, r#""a"]}"#)),
        ("escapes", Api::Completions, repeated(r#"{"prompt":""#, r"\n", r#""}"#)),
        ("escaped units", Api::Completions, repeated(r#"{"prompt":""#, r"\u00e9", r#""}"#)),
        ("numbers of an input", Api::Responses, input("12345,", "1")),
        ("digits of an input", Api::Responses, input("1,", "1")),
        ("floats of an input", Api::Responses, input("0.5,", "1")),
        ("great numbers of an input", Api::Responses, input("1e300,", "1")),
        ("empty objects of an input", Api::Responses, input("{},", "1")),
        ("objects of one key of an input", Api::Responses, input(r#"{"a":1},"#, "1")),
        ("strings to embed", Api::Embeddings, input(r#""","#, r#""a""#)),
        (
            "empty blocks of Anthropic's API",
            Api::Messages,
            repeated(r#"{"messages":[{"content":["#, "{},", "{}]}]}"),
        ),
    ]
}

fn hostile(c: &mut Criterion) {
    let options = Options::default();
    let mut group = c.benchmark_group("hostile");
    group.sample_size(10);
    for (name, api, json) in hostile_tools().into_iter().chain(hostile_bodies()) {
        group.throughput(Throughput::Bytes(json.len() as u64));
        group.bench_function(BenchmarkId::new("read", name), |b| {
            b.iter(|| Body::read(black_box(&json), api, &options).map(drop));
        });
    }
    group.finish();
}

criterion_group!(benches, bodies, hostile);
criterion_main!(benches);
