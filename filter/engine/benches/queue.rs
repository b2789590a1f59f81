//! Cost of flow control for a request while no request waits.

#![allow(clippy::unwrap_used, reason = "a bench that cannot go on has failed")]
#![allow(missing_docs, reason = "the macros of the bench harness make public functions")]

use core::hint::black_box;
use core::time::Duration;
use std::sync::{Arc, Mutex, PoisonError};

use criterion::{Criterion, criterion_group, criterion_main};
use endpoint_picker::plugin::Arrival;
use endpoint_picker_engine::ledger::{ChangeList, Ledger, LocalLedger};
use endpoint_picker_engine::pool_view::{PoolView, Topology};
use endpoint_picker_engine::queue::{Entry, Queue};
use endpoint_picker_engine::testing;
use endpoint_picker_engine::worker_pool::store::{OwnStore, OwnView, PoolCopy, PoolStore};
use endpoint_picker_wire::v1;

const NOW: Duration = Duration::from_secs(1_000);

/// As the native module's: the queue and the ledger are each behind a lock.
struct Store {
    copy: Mutex<PoolCopy<LocalLedger>>,
    queue: Mutex<Queue>,
}

impl PoolStore for Store {
    type View = OwnView;

    fn view(&self) -> Self::View {
        self.copy.lock().unwrap_or_else(PoisonError::into_inner).view()
    }

    fn read<T>(&self, read: impl FnOnce(&Ledger) -> T) -> T {
        self.copy.lock().unwrap_or_else(PoisonError::into_inner).read(read)
    }

    fn transact<T>(&mut self, decide: impl FnMut(&Arc<PoolView>, &Ledger) -> (T, ChangeList)) -> T {
        self.copy.get_mut().unwrap_or_else(PoisonError::into_inner).transact(decide)
    }

    fn apply(&mut self, changes: ChangeList) {
        self.copy.get_mut().unwrap_or_else(PoisonError::into_inner).apply(changes);
    }

    fn with_queue<T>(&self, run: impl FnOnce(&mut Queue) -> T) -> Option<T> {
        Some(run(&mut self.queue.lock().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl OwnStore for Store {
    fn adopt(&mut self, newer: Arc<PoolView>) -> Arc<PoolView> {
        self.copy.get_mut().unwrap_or_else(PoisonError::into_inner).adopt(newer)
    }
}

/// A pool of idle servers with the default policies.
fn store(endpoints: u16, detector: &str) -> Store {
    let picker_config = v1::PickerConfig {
        plugins: vec![testing::plugin("queue-scorer", "{}"), testing::plugin(detector, "{}")],
        saturation_detector: Some(detector.to_owned()),
        flow_control: Some(v1::FlowControl::default()),
        ..v1::PickerConfig::default()
    };
    let policy = v1::Policy { picker_config: Some(picker_config), ..v1::Policy::default() };
    let topology = testing::topology("default", 0..endpoints, policy);
    let snapshot = testing::snapshot((0..endpoints).map(|_| testing::reading(1)));
    let topology = Arc::new(Topology::compile(topology).unwrap());
    let mut store = Store { copy: Mutex::default(), queue: Mutex::default() };
    store.adopt(Arc::new(PoolView::new(topology, snapshot, NOW)));
    store
}

/// All that a request does with the queue, from its head to its end.
fn pass(store: &Store) {
    assert_eq!(store.with_queue(|queue| queue.refuses(0, 2_048)), Some(false));
    let arrival = Arrival { bytes: 2_048, received: NOW, ..Arrival::default() };
    let entry = store.with_current_queue(NOW, |queue| {
        queue.enter(black_box(&arrival), NOW, || unreachable!("it does not wait"))
    });
    let Some(Ok(Entry::Admitted(ticket))) = entry else { panic!("{entry:?}") };
    store.with_queue(|queue| queue.decided(ticket));
    store.with_queue(|queue| queue.leave(ticket, None));
}

fn queues(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("flow control while nothing waits");
    for detector in ["utilization-detector", "concurrency-detector"] {
        for endpoints in [10, 100, 1_000] {
            let store = store(endpoints, detector);
            group.bench_function(format!("{detector}, {endpoints} endpoints"), |bencher| {
                bencher.iter(|| pass(&store));
            });
        }
    }
    group.finish();
}

criterion_group!(benches, queues);
criterion_main!(benches);
