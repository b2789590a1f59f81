//! Rendering of chats that are made expensive.

#![allow(clippy::unwrap_used, reason = "a bench that cannot go on has failed")]
#![allow(missing_docs, reason = "the macros of the bench harness make public functions")]

use std::hint::black_box;

use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use endpoint_picker_template::ChatTemplate;
use shapes::{SHAPES, TEMPLATE};

#[path = "../tests/hostile_chats/shapes.rs"]
mod shapes;

/// Maximum length of a text, far more than there is fuel for.
const MAX_TEXT: usize = 128 << 20;

fn hostile(c: &mut Criterion) {
    let template = ChatTemplate::compile(TEMPLATE, "", "").unwrap();
    for size in [1 << 20, 4 << 20, 28 << 20] {
        let mut group = c.benchmark_group(format!("chat of {} MiB", size >> 20));
        group.sample_size(10);
        for shape in &SHAPES {
            group.throughput(Throughput::Bytes(size as u64));
            group.bench_function(BenchmarkId::new("render", shape.name), |b| {
                let body = shape.body(size);
                b.iter(|| template.render(shape.api, black_box(body.as_bytes()), 0, MAX_TEXT).map(drop));
            });
        }
        group.finish();
    }
}

criterion_group!(benches, hostile);
criterion_main!(benches);
