//! Reading one text of about 60 KB, as it arrives from a socket.

use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use metrics_agent_catalogue::dialect::{Dialects, TextRules};
use metrics_agent_scrape::exposition::Reader;

fn read(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("read");
    for (name, engine, text) in [
        ("vllm, 54 KB", "vllm", &include_bytes!("../tests/captures/vllm-0.32.0-lora-busy.prom")[..]),
        ("sglang, 74 KB", "sglang", include_bytes!("../tests/captures/sglang-0.5.23-busy.prom")),
    ] {
        let mut reader = Reader::new(Dialects::built_in().of_engine(engine), TextRules::default());
        group.throughput(Throughput::Bytes(text.len() as u64));
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                reader.start();
                for chunk in black_box(text).chunks(16 * 1024) {
                    reader.feed(chunk);
                }
                reader.finish()
            });
        });
    }
    group.finish();
}

criterion_group!(benches, read);
criterion_main!(benches);
