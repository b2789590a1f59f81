//! Time that a snapshot with newer readings takes on the thread that polls the agent, from the response's
//! bytes to the snapshot's use in decisions.

#![allow(clippy::unwrap_used, reason = "a bench that cannot go on has failed")]
#![allow(missing_docs, reason = "the macros of the bench harness make public functions")]

use core::time::Duration;
use std::sync::Arc;

use criterion::{BatchSize, Criterion, criterion_group, criterion_main};
use endpoint_picker_engine::agent::{AgentResponse, PollOutcome, PollTimes, SnapshotClient};
use endpoint_picker_engine::pool_view::{PoolView, Topology};
use endpoint_picker_engine::testing;
use endpoint_picker_native::pool::SharedPool;
use endpoint_picker_wire::{Message, v1};

const NOW: Duration = Duration::from_secs(1_000);

const TIMES: PollTimes = PollTimes { wait: Duration::from_secs(1), timeout: Duration::from_secs(2) };

fn readings(endpoints: u16) -> v1::Snapshot {
    let reading = |number| v1::Reading {
        age_ms: Some(u64::from(number % 50)),
        cached_since_ms: Some(1_700_000_000_000),
        ..testing::busy_reading(number)
    };
    testing::snapshot((0..endpoints).map(reading))
}

fn snapshots(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("a snapshot with newer readings");
    for endpoints in [10, 100, 1000, 5000] {
        let pool = SharedPool::default();
        let compiled =
            Arc::new(Topology::compile(testing::topology("p", 0..endpoints, v1::Policy::default())).unwrap());
        pool.adopt(Arc::new(PoolView::new(compiled, readings(endpoints), NOW)));
        let bytes = readings(endpoints).encode_to_vec();
        let mut client = SnapshotClient::new("p", TIMES);
        let mut adopt = |body| {
            let response = Ok(AgentResponse { status: 200, body });
            let outcome = client.finish(response, &pool.view(), NOW, |newer| {
                pool.adopt(Arc::new(newer.view));
                Ok(())
            });
            assert!(matches!(outcome, PollOutcome::Published), "{outcome:?}");
        };
        group.bench_function(format!("{endpoints} endpoints"), |bencher| {
            bencher.iter_batched(|| bytes.clone(), &mut adopt, BatchSize::SmallInput);
        });
    }
    group.finish();
}

criterion_group!(benches, snapshots);
criterion_main!(benches);
