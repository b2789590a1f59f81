//! Writing another model's name into request bodies, writing the client's name back into responses, and
//! finding out which one.

#![allow(clippy::unwrap_used, reason = "a bench that cannot go on has failed")]
#![allow(missing_docs, reason = "the macros of the bench harness make public functions")]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use endpoint_picker::headers::Headers;
use endpoint_picker::policy::{Member, Policy, RewriteRule, Rewrites, Target, with_members};
use endpoint_picker::response::restore::Restore;
use endpoint_picker::rng::SplitMix64;

const SIZES: [(&str, usize); 3] = [("8KB", 8 << 10), ("1MiB", 1 << 20), ("8MiB", 8 << 20)];

fn bodies(c: &mut Criterion) {
    let mut group = c.benchmark_group("name model");
    for (name, size) in SIZES {
        let head = r#"{"model":"llama","prompt":""#;
        let body = format!(r#"{head}{}"}}"#, "The quick brown fox. ".repeat(size / 21));
        group.throughput(Throughput::Bytes(body.len() as u64));
        for (kind, span) in [("replaced", Some(9..16)), ("added", None)] {
            group.bench_function(BenchmarkId::new(kind, name), |b| {
                let member = || Member::model(span.clone(), "llama-canary");
                b.iter(|| with_members(black_box(body.as_bytes()), vec![member()]));
            });
        }
    }
    group.finish();
}

fn answers(c: &mut Criterion) {
    let event = br#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"llama-canary","choices":[{"index":0,"delta":{"content":" fox"},"finish_reason":null}]}"#;
    let mut group = c.benchmark_group("restore");
    group.throughput(Throughput::Bytes(event.len() as u64));
    group.bench_function("event", |b| {
        let mut restore = Restore::new("llama-canary", "llama").unwrap();
        b.iter(|| restore.chunk(black_box(event), false));
    });
    for (name, size) in SIZES {
        for (kind, answer) in [
            ("events", event.repeat(size / event.len())),
            ("text", "The quick brown fox. ".repeat(size / 21).into_bytes()),
            // The worst case of a response: beginnings of the text that is searched.
            ("beginnings", br#""model":"llama-canar"#.repeat(size / 20)),
        ] {
            group.throughput(Throughput::Bytes(answer.len() as u64));
            group.bench_function(BenchmarkId::new(kind, name), |b| {
                let mut restore = Restore::new("llama-canary", "llama").unwrap();
                b.iter(|| restore.chunk(black_box(&answer), true));
            });
        }
    }
    group.finish();
}

fn resolution(c: &mut Criterion) {
    let mut group = c.benchmark_group("resolution");
    for rules in [1, 1000] {
        let target = |model: &str, weight| Target { model: model.to_owned(), weight: Some(weight) };
        let rule = |index| RewriteRule {
            resource: "canary".to_owned(),
            models: vec![format!("model-{index}")],
            targets: vec![target("canary", 10), target("stable", 90)],
        };
        let policy = Policy { rewrites: Rewrites::new((0..rules).map(rule)), ..Policy::default() };
        let headers = [("x-llm-d-inference-objective", "high")].into_iter().collect();
        let asked = format!("model-{}", rules - 1);
        let mut rng = SplitMix64::new(1);
        group.bench_function(BenchmarkId::new("of rules", rules), |b| {
            b.iter(|| {
                policy.resolve(Headers(&headers), Some(black_box(&asked)), &mut rng).unwrap().model.len()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, bodies, answers, resolution);
criterion_main!(benches);
