//! The module's own code for one request, from its head to its end, behind callbacks that cost next to nothing.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a bench"
)]
#![allow(missing_docs, reason = "the macros of the bench harness make public functions")]

#[allow(dead_code, unused_imports, reason = "the tests use the rest")]
#[path = "../tests/module/envoy/mod.rs"]
mod envoy;
#[allow(dead_code, reason = "the tests use the rest")]
#[path = "../tests/module/pool.rs"]
mod pool;

use criterion::{Criterion, criterion_group, criterion_main};
use endpoint_picker_native as _;
use endpoint_picker_wire::v1;
use serde_json::json;

use envoy::{Next, Request};

/// Different prompts, of 2 KB each.
const PROMPTS: usize = 500;

fn chats() -> Vec<Vec<u8>> {
    let chat = |number| {
        let text = format!("The quick brown fox {number} jumps over the lazy dog. ").repeat(40);
        let body = json!({"model": "n", "messages": [{"role": "user", "content": text}], "max_tokens": 64});
        body.to_string().into_bytes()
    };
    (0..PROMPTS).map(chat).collect()
}

fn requests(criterion: &mut Criterion) {
    let chats = chats();
    let mut group = criterion.benchmark_group("a chat of 2 KB, from its head to its end");
    for endpoints in [10, 100, 1000, 5000] {
        let name = format!("bench-{endpoints}");
        // The EPP's default rules.
        let waiting: Vec<u64> = (0..endpoints).map(|number| number % 8).collect();
        let config = pool::with_policy(&name, &json!({}), v1::Policy::default(), &waiting);
        let mut number = 0;
        group.bench_function(format!("{endpoints} endpoints"), |bencher| {
            bencher.iter(|| {
                number += 1;
                let request = Request::chat(&config, 0);
                request.headers(false);
                let next = request.body(&chats[number % PROMPTS], true);
                assert_eq!(next, Next::Continue);
                request.answer_headers("10.0.0.1:8000", &[(":status", "200")], false);
                request.answer_body(b"", true);
            });
        });
    }
    group.finish();
}

criterion_group!(benches, requests);
criterion_main!(benches);
