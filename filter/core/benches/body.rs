//! Reading request bodies and hashing their prompts.

#![allow(clippy::unwrap_used, reason = "a bench that cannot go on has failed")]
#![allow(missing_docs, reason = "the macros of the bench harness make public functions")]

use std::fmt::Write;
use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use endpoint_picker::request::body::{Api, Body, Options};
use endpoint_picker::request::prompt::block_hashes;

/// A chat of about `size` bytes in messages of 400 bytes; every sixth has a line break, escaped as it must be.
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

/// 8 MiB: `before` and `after`, and equal parts between them.
fn repeated(before: &str, part: &str, after: &str) -> String {
    before.to_owned() + &part.repeat((8 << 20) / part.len()) + after
}

/// Bodies that are made to cost much.
fn hostile(c: &mut Criterion) {
    let options = Options::default();
    let mut group = c.benchmark_group("hostile");
    group.sample_size(10);
    let mut keys = r#"{"messages":[{}],"tools":[{"#.to_owned();
    for count in 0_u32..800_000 {
        write!(keys, r#""{:x}":1,"#, count.wrapping_mul(0x9e37_79b1) & 0xff_ffff).unwrap();
    }
    keys.push_str(r#""z":1}]}"#);
    for (name, api, json) in [
        ("keys of a tool", Api::Chat, keys),
        ("messages", Api::Chat, repeated(r#"{"messages":["#, r#"{"role":"u"},"#, "{}]}")),
        ("token ids", Api::Completions, repeated(r#"{"prompt":["#, "12345,", "1]}")),
        ("numbers of an input", Api::Responses, repeated(r#"{"input":["#, "12345,", "1]}")),
        ("floats of an input", Api::Responses, repeated(r#"{"input":["#, "0.5,", "1]}")),
        ("great numbers of an input", Api::Responses, repeated(r#"{"input":["#, "1e300,", "1]}")),
        ("numbers of a tool in full", Api::Chat, repeated(r#"{"messages":[{}],"tools":["#, "1e16,", "1]}")),
        ("least numbers of a tool", Api::Chat, repeated(r#"{"messages":[{}],"tools":["#, "5e-324,", "1]}")),
        (
            "empty blocks of Anthropic's API",
            Api::Messages,
            repeated(r#"{"messages":[{"content":["#, "{},", "{}]}]}"),
        ),
        ("empty items", Api::Conversations, repeated(r#"{"items":["#, "{},", "{}]}")),
        ("prompts", Api::Completions, repeated(r#"{"prompt":["#, r#""a","#, r#""a"]}"#)),
        ("escapes", Api::Completions, repeated(r#"{"prompt":""#, r"\n", r#""}"#)),
        (
            "empty tools of Anthropic's API",
            Api::Messages,
            repeated(r#"{"messages":[{}],"tools":["#, "{},", "{}]}"),
        ),
    ] {
        group.throughput(Throughput::Bytes(json.len() as u64));
        group.bench_function(BenchmarkId::new("read", name), |b| {
            b.iter(|| Body::read(black_box(&json), api, &options).unwrap());
        });
    }
    group.finish();
}

criterion_group!(benches, bodies, hostile);
criterion_main!(benches);
