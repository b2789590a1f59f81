//! Processor time of the module's own code for one request, from its head to the end of its response; other
//! work on the machine hardly changes it. The mock of Envoy, which stores headers and metadata, is a part of
//! it.

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

use core::time::Duration;

use criterion::measurement::{Measurement, ValueFormatter, WallTime};
use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use endpoint_picker_native as _;
use endpoint_picker_wire::v1;
use rustix::time::{ClockId, clock_gettime};
use serde_json::json;

use envoy::{Next, Request};

/// Different prompts, of 2 KB each.
const PROMPTS: usize = 500;

/// The processor time of the thread.
struct ProcessorTime;

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.try_into().unwrap(), time.tv_nsec.try_into().unwrap())
}

impl Measurement for ProcessorTime {
    type Intermediate = Duration;
    type Value = Duration;

    fn start(&self) -> Duration {
        processor_time()
    }

    fn end(&self, start: Duration) -> Duration {
        processor_time().saturating_sub(start)
    }

    fn add(&self, one: &Duration, other: &Duration) -> Duration {
        *one + *other
    }

    fn zero(&self) -> Duration {
        Duration::ZERO
    }

    fn to_f64(&self, value: &Duration) -> f64 {
        WallTime.to_f64(value)
    }

    fn formatter(&self) -> &dyn ValueFormatter {
        WallTime.formatter()
    }
}

fn chats() -> Vec<Vec<u8>> {
    let chat = |number| {
        let text = format!("The quick brown fox {number} jumps over the lazy dog. ").repeat(40);
        let body = json!({"model": "n", "messages": [{"role": "user", "content": text}], "max_tokens": 64});
        body.to_string().into_bytes()
    };
    (0..PROMPTS).map(chat).collect()
}

fn requests(criterion: &mut Criterion<ProcessorTime>) {
    let chats = chats();
    let mut group = criterion.benchmark_group("a chat of 2 KB, from its head to its end");
    for endpoints in [10, 100, 1000, 5000] {
        let name = format!("bench-{endpoints}");
        // The EPP's default rules.
        let waiting: Vec<u64> = (0..endpoints).map(|number| number % 8).collect();
        let config = pool::with_policy(&name, &json!({}), v1::Policy::default(), &waiting);
        let mut number = 0;
        group.bench_function(format!("{endpoints} endpoints"), |bencher| {
            bencher.iter_batched(
                || {
                    number += 1;
                    (Request::chat(&config, 0), &chats[number % PROMPTS])
                },
                |(request, chat)| {
                    request.headers(false);
                    assert_eq!(request.body(chat, true), Next::Continue);
                    let chosen = request.destinations().unwrap();
                    request.answer_headers(&chosen, &[(":status", "200")], false);
                    request.answer_body(b"", true);
                    request
                },
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().with_measurement(ProcessorTime);
    targets = requests
}
criterion_main!(benches);
