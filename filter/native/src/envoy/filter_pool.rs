//! One pool as all workers use it, for a filter configuration or a route.

use core::time::Duration;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::sync::{Arc, LazyLock, Weak};

use endpoint_picker_engine::body_routing::BodyRouter;
use endpoint_picker_engine::budget::UsedBytes;
use endpoint_picker_engine::config::Limits;
use endpoint_picker_engine::form::Form;
use endpoint_picker_engine::metrics::{Labels, Metric, MetricSink, Metrics};
use endpoint_picker_engine::resume::ResumeMetrics;
use endpoint_picker_engine::worker_pool::WorkerPool;
use endpoint_picker_engine::worker_pool::fallback::OtherPool;
use endpoint_picker_wire::statistics::{Count, PANICS};

use super::host::{Envoy, Event, OwnEvent, SteeringKeys};
use super::per_worker::PerWorker;
use super::resumer::Resumer;
use crate::abi::{LocalReply, RequestHandle};
use crate::agent::PoolHandle;
use crate::cluster::pick::Pick;
use crate::config::ModuleConfig;
use crate::metrics::flusher::{self, Publisher};
use crate::metrics::{self, DefinitionsOnly, Series, Sink};
use crate::pool::Polls;
use crate::pool::store::SharedStore;
use crate::process::clock;
use crate::process::proxy_name::proxy_name;
use crate::process::subscribers::Subscription;
use crate::process::sync::{Mutex, MutexGuard};

/// One pool as one worker uses it.
pub(crate) type Pool = WorkerPool<SharedStore, Sink>;

/// The bytes that all pools of the process hold of request bodies, and of responses that clients do not read.
pub(super) static HELD_BODIES: LazyLock<Arc<UsedBytes>> = LazyLock::new(Arc::default);

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
    /// `None`: streams are not resumed.
    resumer: Option<Arc<Resumer>>,
    /// The other pools that may take its requests, as the same worker uses them, at their places in the
    /// engine's list.
    others: Mutex<Vec<Arc<Self>>>,
}

impl Worker {
    fn new(
        config: &ModuleConfig,
        steering: SteeringKeys,
        resumer: Option<&Arc<Resumer>>,
        store: SharedStore,
    ) -> Self {
        let sink = Sink::new();
        let engine = &config.engine;
        // Seeded by the system once in each thread, and counted up.
        let seed = RandomState::new().hash_one(0);
        let records = Arc::clone(store.pool().records());
        let pool = WorkerPool::new(engine.clone(), store, &sink, Form::Native, seed).with_records(&records);
        Self {
            panics: panics(&sink, &engine.pool),
            limits: engine.limits,
            steering,
            resumer: resumer.cloned(),
            pool: Mutex::new(pool.with_held_bodies(&HELD_BODIES)),
            sink,
            others: Mutex::default(),
        }
    }

    /// Sets the list of other pools that may take requests: places among `others`, to which pools are only
    /// added. `index` is the number of this worker.
    fn set_fallback(&self, index: u32, others: &[OtherFilterPool], list: &[usize]) {
        let mut known = self.others.lock();
        let new = others.get(known.len()..).unwrap_or_default();
        // Before the engine knows them, so that it moves no request to a pool that is not here.
        known.extend(new.iter().map(|other| Arc::clone(other.pool.worker(index))));
        drop(known);
        let stores = new.iter().map(OtherFilterPool::new_store);
        self.lock().set_fallback(stores, list.to_vec());
    }

    /// The pool at this place among the other pools.
    pub(crate) fn other(&self, place: usize) -> Option<Arc<Self>> {
        self.others.lock().get(place).cloned()
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// The means to resume streams; `None`: they are not resumed.
    pub(super) fn resumer(&self) -> Option<&Arc<Resumer>> {
        self.resumer.as_ref()
    }

    /// Bytes that Envoy has to be able to buffer for a request.
    pub(crate) fn buffer_limit(&self) -> u64 {
        buffer_limit(&self.limits)
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
        own: Option<OwnEvent<'_>>,
        run: impl FnOnce(&mut Pool, &mut Envoy<'_, '_>) -> T,
    ) -> (T, Option<LocalReply>) {
        let mut envoy = Envoy::new(request, event, &self.steering, pick, own);
        let result = run(&mut self.lock(), &mut envoy);
        (result, envoy.reply)
    }

    /// Runs a part of the hook of a response's chunk that needs nothing of the pool, so it takes no lock.
    pub(crate) fn without_pool<T>(
        &self,
        request: &mut RequestHandle<'_>,
        pick: &mut Option<Pick>,
        run: impl FnOnce(&Envoy<'_, '_>) -> T,
    ) -> T {
        run(&Envoy::new(request, Event::Body, &self.steering, pick, None))
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
    config: ModuleConfig,
    resumer: Option<Arc<Resumer>>,
    /// Only the main thread locks it.
    others: Mutex<Others>,
    _publisher: Subscription<Weak<dyn Publisher>>,
}

/// The other pools that may take a pool's requests.
#[derive(Debug, Default)]
struct Others {
    /// All that are or were on the list. They stay, because requests in flight may be in any of them.
    pools: Vec<OtherFilterPool>,
    /// The list, by names.
    list: Vec<String>,
}

/// Another pool that may take a pool's requests.
#[derive(Debug)]
struct OtherFilterPool {
    name: Arc<str>,
    pool: Arc<FilterPool>,
    handle: PoolHandle,
}

impl OtherFilterPool {
    /// The error is one of the system: no thread can be started.
    fn new(config: &ModuleConfig, name: &str) -> io::Result<Self> {
        let handle = PoolHandle::new(name, config.agent.as_ref(), &proxy_name())?;
        let pool = FilterPool::of_pool(config.of_fallback(name), &config.engine.pool, &handle);
        Ok(Self { name: name.into(), pool, handle })
    }

    fn new_store(&self) -> OtherPool<SharedStore> {
        OtherPool { name: Arc::clone(&self.name), store: self.handle.new_store() }
    }
}

impl FilterPool {
    /// A picker for all workers of the process.
    pub(crate) fn new(config: &ModuleConfig, handle: &PoolHandle) -> Arc<Self> {
        let pool = Self::of_pool(config.clone(), &config.engine.pool, handle);
        pool.follow_list();
        pool
    }

    /// `route_pool` is the own pool of the requests.
    fn of_pool(config: ModuleConfig, route_pool: &str, handle: &PoolHandle) -> Arc<Self> {
        let steering = || SteeringKeys::new(config.steering, route_pool, &config.engine.pool);
        let resumer = config.resume_streams.as_ref();
        let in_all = config.engine.limits.held_bytes_in_all();
        let resumer = resumer.map(|setting| Resumer::new(setting, route_pool, (&HELD_BODIES, in_all)));
        let workers =
            PerWorker::new(|_| Worker::new(&config, steering(), resumer.as_ref(), handle.new_store()));
        Arc::new_cyclic(|picker: &Weak<Self>| Self {
            workers,
            config,
            resumer,
            others: Mutex::default(),
            _publisher: flusher::register(Weak::clone(picker) as Weak<dyn Publisher>),
        })
    }

    /// Follows the list of other pools that may take requests.
    fn follow_list(&self) {
        let view = self.workers.main().lock().view();
        let list = self.config.fallback.list(&view.policy().fallback);
        let mut others = self.others.lock();
        if others.list == list {
            return;
        }
        let Others { pools, list: known } = &mut *others;
        for name in list {
            if pools.iter().all(|other| *other.name != **name) {
                match OtherFilterPool::new(&self.config, name) {
                    Ok(other) => pools.push(other),
                    // It is tried again with the next flush.
                    Err(error) => return log::error!("no thread for the agent: {error}"),
                }
            }
        }
        let place = |name: &String| pools.iter().position(|other| *other.name == **name);
        let places: Vec<usize> = list.iter().filter_map(place).collect();
        for (index, worker) in (0..).zip(self.workers.of_requests()) {
            worker.set_fallback(index, pools, &places);
        }
        self.workers.main().set_fallback(u32::MAX, pools, &places);
        *known = list.to_vec();
    }

    /// The pool of a worker.
    pub(crate) fn worker(&self, index: u32) -> &Arc<Worker> {
        self.workers.get(index)
    }
}

impl Publisher for FilterPool {
    fn publish(&self) {
        self.follow_list();
        if let Some(resumer) = &self.resumer {
            resumer.pauses.reset_stalled();
        }
        let now = clock::now();
        self.workers.of_requests().for_each(|worker| worker.lock().publish_metrics(false, now));
        let mut main = self.workers.main().lock();
        let Polls { published, failed, topologies } = main.store().pool().take_polls();
        main.metrics.add(Count::Snapshots, published);
        main.metrics.add(Count::SnapshotFailures, failed);
        main.metrics.add(Count::TopologyChanges, topologies);
        let (counts, proxies) = main.store().pool().take_sharing();
        main.metrics.count_sharing(counts, proxies);
        // The gauges are the same for all workers.
        main.publish_metrics(true, now);
        let mut totals = main.totals();
        if let Some(resumptions) = metrics::resumptions_of(&main.config.pool) {
            totals.counts.add(&resumptions);
        }
        main.store().pool().set_totals(totals);
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

/// Defines all metrics that any pool has: Envoy lets a filter define metrics only while it is configured. A
/// route's pool may have them all, and cannot define them.
pub(super) fn define_metrics() {
    panics(&DefinitionsOnly, "");
    Metrics::new(&DefinitionsOnly, "", Form::Native, true);
    BodyRouter::new(Limits::default(), &DefinitionsOnly);
    ResumeMetrics::new(&DefinitionsOnly, "");
}

/// The counter of panics that hooks have caught.
fn panics<S: MetricSink>(sink: &S, pool: &str) -> Option<S::Series> {
    sink.series(&sink.family(&Metric { pool, statistic: &PANICS }), &Labels::default())
}
