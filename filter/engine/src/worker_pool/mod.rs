//! One pool as a worker of a proxy uses it.

pub mod decision;
pub mod directive;
mod elsewhere;
pub mod fallback;
pub(crate) mod kept_connections;
pub mod store;

use core::time::Duration;
use std::borrow::Cow;
use std::sync::Arc;

use endpoint_picker::decision::{Abstention, FailureMode, Outcome};
use endpoint_picker::headers::HeaderList;
use endpoint_picker::period::Period;
use endpoint_picker::pipeline::Scratch;
use endpoint_picker::pool::{Endpoint, Endpoints};
use endpoint_picker::request::subset::Subset;
use endpoint_picker_wire::statistics::Count;

use crate::budget::{Budget, UsedBytes};
use crate::config::{Config, Mode};
use crate::form::Form;
use crate::metrics::{MetricSink, Metrics, Totals};
use crate::pool_view::PoolView;
use crate::record::request::RequestRecord;
use crate::record::{RecordCounts, RecordOutbox};
use crate::worker_pool::decision::{Draws, Routing};
use crate::worker_pool::directive::Directive;
use crate::worker_pool::elsewhere::ElsewhereWatch;
use crate::worker_pool::fallback::OtherPool;
use crate::worker_pool::kept_connections::KeptConnections;
use crate::worker_pool::store::{OwnStore, PoolStore};

/// Time between two flushes of the metrics.
const FLUSH_PERIOD: Duration = Duration::from_secs(1);

/// One pool as one worker uses it: the view and the ledger, and the worker's own metrics and random numbers.
#[derive(Debug)]
pub struct WorkerPool<S, M: MetricSink> {
    /// The filter's configuration.
    pub config: Config,
    /// The worker's metrics.
    pub metrics: Metrics<M>,
    pub(crate) store: S,
    /// The room for bodies that are held.
    pub(crate) held_bodies: Arc<Budget>,
    /// Finished requests that are recorded.
    pub(crate) records: Arc<RecordOutbox>,
    /// The other pools that are or were on this pool's list: requests in flight may be in any of them.
    pub(crate) others: Vec<OtherPool<S>>,
    /// The list: places in `others`.
    pub(crate) fallback: Vec<usize>,
    pub(crate) draws: Draws,
    /// Memory of the headers of the last request that was decided.
    pub(crate) spare_headers: HeaderList,
    /// Memory of the last decision.
    scratch: Scratch,
    pub(crate) kept_connections: KeptConnections,
    elsewhere: ElsewhereWatch,
    /// The endpoints of which picks may be counted.
    picked_pool: Arc<Endpoints>,
    /// The pause until the next flush of the metrics.
    flush_pause: Period,
}

impl<S: OwnStore, M: MetricSink> WorkerPool<S, M> {
    /// Replaces the view by which requests are decided. Returns whether the endpoints or the policy changed.
    /// The state of endpoints and plugins that stay is kept.
    pub fn adopt(&mut self, newer: Arc<PoolView>) -> bool {
        let topology = Arc::clone(newer.topology());
        let older = self.store.adopt(newer);
        if Arc::ptr_eq(older.topology(), &topology) {
            return false;
        }
        let pool = &topology.pool;
        let left = older.pool().as_slice().iter();
        let left = left.filter(|endpoint| pool.index_at(endpoint.address()).is_none());
        self.metrics.remove_endpoints(left.map(Endpoint::printed_address));
        true
    }
}

impl<S: PoolStore, M: MetricSink> WorkerPool<S, M> {
    /// The pool of a configuration, before the first snapshot. `seed` is of this worker alone.
    pub fn new(config: Config, store: S, sink: &M, form: Form, seed: u64) -> Self {
        Self {
            metrics: Metrics::new(sink, &config.pool, form, config.count_tokens),
            held_bodies: config.limits.budget(Arc::default()),
            records: Arc::default(),
            config,
            store,
            others: Vec::new(),
            fallback: Vec::new(),
            draws: Draws::new(seed),
            spare_headers: HeaderList::EMPTY,
            scratch: Scratch::default(),
            kept_connections: KeptConnections::default(),
            elsewhere: ElsewhereWatch::default(),
            picked_pool: Arc::default(),
            flush_pause: Period::default(),
        }
    }

    /// The same pool, whose held bodies count together with those of others.
    #[must_use]
    pub fn with_held_bodies(self, used: &Arc<UsedBytes>) -> Self {
        Self { held_bodies: self.config.limits.budget(Arc::clone(used)), ..self }
    }

    /// The same pool, which records its requests together with other workers.
    #[must_use]
    pub fn with_records(self, records: &Arc<RecordOutbox>) -> Self {
        Self { records: Arc::clone(records), ..self }
    }

    /// The finished requests that are recorded.
    pub fn records(&self) -> &RecordOutbox {
        &self.records
    }

    /// Sets the list of other pools that may take this pool's requests. `new` are added to the other pools,
    /// and `list` are places among all that were ever added. Requests move only where the stores have queues.
    pub fn set_fallback(&mut self, new: impl IntoIterator<Item = OtherPool<S>>, list: Vec<usize>) {
        self.others.extend(new);
        self.fallback = list;
    }

    /// The newest view.
    pub fn view(&self) -> S::View {
        self.store.view()
    }

    /// The keeper of the view and the ledger.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The keeper of the view and the ledger.
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    /// The treatment of requests that cannot be decided: before the first snapshot, and after a refused call.
    pub fn failure_mode(&self) -> FailureMode {
        self.view().policy().failure_mode.unwrap_or(self.config.failure_mode)
    }

    /// Decides for a request, and applies the changes of the ledger that follow. `view` was the newest view
    /// when the event of the request came.
    pub fn route(&mut self, view: &Arc<PoolView>, routing: &Routing<'_>) -> Directive {
        if view.versions().is_none() {
            return match routing.other {
                None => self.decide_without_snapshot(&routing.request.subset),
                Some(_) => Outcome::Abstain { reason: Abstention::NoSnapshot, within: None },
            }
            .into();
        }
        let mut view = Cow::Borrowed(view);
        let Self { store, draws, scratch, .. } = self;
        let mut prepared = view.prepare(routing);
        let decided = store.transact(|newest, ledger| {
            if !Arc::ptr_eq(newest, view.as_ref()) {
                // Another snapshot was adopted in between, so the request is prepared again by its view.
                view = Cow::Owned(Arc::clone(newest));
                prepared = view.prepare(routing);
            }
            view.evaluate(ledger, prepared.as_ref(), routing, (draws, scratch))
        });
        let shadow = view.policy().record.and_then(|_| decided.shadow_choice(view.pool()));
        let mut directive = view.directive(decided, routing, scratch);
        if let (Some(sample), Some(prepared)) = (view.policy().record, prepared) {
            let Routing { request, now, .. } = *routing;
            let (pipeline, turn) = (&view.topology().pipeline, directive.session);
            directive.record = RequestRecord::of(sample, request, prepared.own, pipeline, turn, now);
            if let (Some(record), Some(shadow)) = (&mut directive.record, shadow) {
                record.compared(shadow);
            }
        }
        directive
    }

    /// The outcome of the failure mode, inside the request's subset hint.
    pub(crate) fn decide_without_snapshot(&mut self, subset: &Subset) -> Outcome {
        self.failure_mode().without_snapshot(subset, &mut self.draws.acting)
    }

    /// The counts of all workers, for a report to the agent.
    pub fn totals(&self) -> Totals {
        Totals { is_shadow: self.config.mode == Mode::Shadow, ..self.metrics.totals() }
    }

    /// Once a second, adds this worker's counts to the proxy's counters. With `is_leader`, this worker also
    /// sets the gauges that all workers have in common.
    pub fn publish_metrics(&mut self, is_leader: bool, now: Duration) {
        let Self { store, metrics, records, elsewhere, picked_pool, flush_pause, kept_connections, .. } =
            self;
        if flush_pause.contains(now) {
            return;
        }
        *flush_pause = Period::new(now, FLUSH_PERIOD);
        let RecordCounts { added, dropped } = records.take_counts();
        metrics.add(Count::Recorded, added);
        metrics.add(Count::RecordDropped, dropped);
        metrics.flush();
        metrics.age_models(now);
        let view = store.view();
        if !Arc::ptr_eq(view.pool(), picked_pool) {
            metrics.picks.keep(view.pool().as_slice().iter().map(Endpoint::key));
            kept_connections.keep(|endpoint| view.pool().index_of(endpoint).is_some());
            *picked_pool = Arc::clone(view.pool());
        }
        if is_leader {
            if let Some(requests) = elsewhere.watch(metrics.value(Count::ServedElsewhere), now) {
                log::warn!(
                    "{requests} requests of pool {} went to servers that were not picked: the proxy does not follow the picks. The cluster \
                     needs the policy override_host and every endpoint of the pool; with the wasm filter, header_to_metadata has to come \
                     right after it. Further requests are only counted, in served_elsewhere",
                    self.config.pool
                );
            }
            // Gauges are set after the read, because a store may hold a lock during it.
            let (pool, loads) =
                store.read(|ledger| (Arc::clone(ledger.pool()), ledger.own_loads().collect::<Vec<_>>()));
            metrics.queued.set(store.with_queue(|queue| queue.waiting()).unwrap_or(0));
            metrics.in_flight.set(loads.iter().map(|load| load.requests).sum());
            let endpoints = pool.as_slice().iter().map(Endpoint::printed_address);
            metrics.set_loads(endpoints.zip(loads));
            if view.versions().is_some() {
                let age = now.saturating_sub(view.arrived()).as_millis();
                metrics.snapshot_age.set(u64::try_from(age).unwrap_or(u64::MAX));
            }
        }
    }
}
