//! One pool as all workers use it, for a filter configuration or a route.

use core::time::Duration;
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Weak};

use endpoint_picker_engine::body_routing::BodyRouter;
use endpoint_picker_engine::config::Limits;
use endpoint_picker_engine::form::Form;
use endpoint_picker_engine::metrics::{Labels, Metric, MetricKind, MetricSink, Metrics};
use endpoint_picker_engine::worker_pool::WorkerPool;
use endpoint_picker_engine::worker_pool::fallback::OtherPool;
use parking_lot::{Mutex, MutexGuard};

use super::host::{Envoy, Event, SteeringKeys};
use super::per_worker::PerWorker;
use crate::abi::{LocalReply, RequestHandle};
use crate::agent::PoolHandle;
use crate::cluster::pick::Pick;
use crate::config::ModuleConfig;
use crate::metrics::flusher::{self, Publisher};
use crate::metrics::{DefinitionsOnly, Series, Sink};
use crate::pool::Polls;
use crate::pool::store::SharedStore;
use crate::process::clock;
use crate::process::subscribers::Subscription;

/// One pool as one worker uses it.
pub(crate) type Pool = WorkerPool<SharedStore, Sink>;

/// Bytes that Envoy may buffer above the engine's limit: room for the chunk with which a body exceeds it.
const BUFFER_MARGIN: u64 = 1 << 20;

/// Bytes that Envoy has to be able to buffer for a request with these limits.
pub(super) fn buffer_limit(limits: &Limits) -> u64 {
    u64::try_from(limits.max_held_bytes).unwrap_or(u64::MAX).saturating_add(BUFFER_MARGIN)
}

/// One pool as one worker uses it, and the configuration that requests need.
///
/// Only the worker takes the lock, and once a second the main thread for the metrics.
#[derive(Debug)]
pub(crate) struct Worker {
    pool: Mutex<Pool>,
    sink: Sink,
    panics: Option<Series>,
    limits: Limits,
    steering: SteeringKeys,
    /// The other pools that may take its requests, as the same worker uses them.
    fallback: Vec<Arc<Self>>,
}

impl Worker {
    /// The pool of this store, and the other pools that may take its requests.
    fn new(
        config: &ModuleConfig,
        steering: SteeringKeys,
        store: SharedStore,
        fallback: Vec<(OtherPool<SharedStore>, Arc<Self>)>,
    ) -> Self {
        let sink = Sink::new();
        let ModuleConfig { engine, .. } = config;
        // Seeded by the system once in each thread, and counted up.
        let seed = RandomState::new().hash_one(0);
        let (stores, fallback) = fallback.into_iter().unzip();
        let pool = WorkerPool::new(engine.clone(), store, &sink, Form::Native, seed).with_fallback(stores);
        Self {
            panics: panics(&sink, &engine.pool),
            limits: engine.limits,
            steering,
            pool: Mutex::new(pool),
            sink,
            fallback,
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Bytes that Envoy has to be able to buffer for a request.
    pub(crate) fn buffer_limit(&self) -> u64 {
        buffer_limit(&self.limits)
    }

    /// The pool at this place of the list of other pools.
    pub(crate) fn fallback(&self, place: usize) -> Option<&Arc<Self>> {
        self.fallback.get(place)
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock()
    }

    /// Runs a part of a hook. Returns its result, and the response to send, if there is one.
    pub(crate) fn with<T>(
        &self,
        request: &mut RequestHandle<'_>,
        event: Event,
        pick: &mut Option<Pick>,
        run: impl FnOnce(&mut Pool, &mut Envoy<'_, '_>) -> T,
    ) -> (T, Option<LocalReply>) {
        let mut envoy = Envoy::new(request, event, &self.steering, pick);
        let result = run(&mut self.lock(), &mut envoy);
        (result, envoy.reply)
    }

    /// Counts a panic that a hook has caught.
    pub(crate) fn count_panic(&self) {
        if let Some(panics) = &self.panics {
            self.sink.add(panics, 1);
        }
    }
}

/// One pool as all workers use it.
#[derive(Debug)]
pub(crate) struct FilterPool {
    workers: PerWorker<Worker>,
    /// The other pools that may take its requests.
    _fallback: Vec<Arc<Self>>,
    _publisher: Subscription<Weak<dyn Publisher>>,
}

impl FilterPool {
    /// A picker for all workers of the process. `others` are the parts in the pools of the configuration's list, in its order.
    pub(crate) fn new(config: &ModuleConfig, handle: &PoolHandle, others: &[PoolHandle]) -> Arc<Self> {
        let steering = |taken_by: &str| SteeringKeys::new(config.steering, &config.engine.pool, taken_by);
        let of_other = |(pool, other): (&String, &PoolHandle)| {
            let config = config.of_fallback(pool);
            let worker = |_| Worker::new(&config, steering(pool), other.new_store(), Vec::new());
            Self::of_workers(PerWorker::new(worker), Vec::new())
        };
        let fallback: Vec<Arc<Self>> = config.fallback.iter().zip(others).map(of_other).collect();
        let workers = PerWorker::new(|index| {
            let stores = config.fallback.iter().zip(others);
            let stores = stores
                .map(|(pool, other)| OtherPool { name: pool.as_str().into(), store: other.new_store() });
            let workers = fallback.iter().map(|pool| Arc::clone(pool.worker(index)));
            let fallback = stores.zip(workers).collect();
            Worker::new(config, steering(&config.engine.pool), handle.new_store(), fallback)
        });
        Self::of_workers(workers, fallback)
    }

    fn of_workers(workers: PerWorker<Worker>, fallback: Vec<Arc<Self>>) -> Arc<Self> {
        Arc::new_cyclic(|picker: &Weak<Self>| Self {
            workers,
            _fallback: fallback,
            _publisher: flusher::register(Weak::clone(picker) as Weak<dyn Publisher>),
        })
    }

    /// The pool of a worker.
    pub(crate) fn worker(&self, index: u32) -> &Arc<Worker> {
        self.workers.get(index)
    }
}

impl Publisher for FilterPool {
    fn publish(&self) {
        let now = clock::now();
        self.workers.of_requests().for_each(|worker| worker.lock().publish_metrics(false, now));
        let mut main = self.workers.main().lock();
        let Polls { published, failed, topologies } = main.store().pool().take_polls();
        main.metrics.count_snapshots(published);
        main.metrics.count_failed_polls(failed);
        main.metrics.count_topology_changes(topologies);
        let (counts, proxies) = main.store().pool().take_sharing();
        main.metrics.count_sharing(counts, proxies);
        // The gauges are the same for all workers.
        main.publish_metrics(true, now);
        main.store().pool().set_totals(main.totals());
    }
}

impl Drop for FilterPool {
    /// The counts of the last second would be lost.
    fn drop(&mut self) {
        // Counts move at most once a second; at this time every worker is due.
        let later = clock::now() + Duration::from_secs(2);
        for worker in self.workers.of_requests().chain([self.workers.main()]) {
            worker.lock().publish_metrics(false, later);
        }
    }
}

/// Defines all metrics that any pool has: Envoy lets a filter define metrics only while it is configured. A route's pool may have them all, and
/// cannot define them.
pub(super) fn define_metrics() {
    panics(&DefinitionsOnly, "");
    Metrics::new(&DefinitionsOnly, "", Form::Native, true);
    BodyRouter::new(Limits::default(), &DefinitionsOnly);
}

/// The counter of panics that hooks have caught.
fn panics<S: MetricSink>(sink: &S, pool: &str) -> Option<S::Series> {
    let metric = Metric { kind: MetricKind::Counter, pool, name: "panics", labels: &[] };
    sink.series(&sink.family(&metric), &Labels::default())
}
