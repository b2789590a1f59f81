//! How long a decision holds the lock of a shared pool, and how many decisions several threads make.
//!
//! `cargo bench -p endpoint-picker-native --bench shared`; the environment variable `ENDPOINTS` has the
//! number of endpoints, 100 by default. Every thread decides for chats of 2 KB by the EPP's default
//! configuration, and ends each request before the next.

#![allow(clippy::unwrap_used, reason = "a bench that cannot go on has failed")]

use core::time::Duration;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::Instant;

use endpoint_picker::headers::Headers;
use endpoint_picker::request::ModelResolution;
use endpoint_picker::request::Request;
use endpoint_picker::request::body::{Api, Body};
use endpoint_picker::request::subset::Subset;
use endpoint_picker_engine::config::Config;
use endpoint_picker_engine::form::Form;
use endpoint_picker_engine::ledger::{Change, ChangeList, Ledger};
use endpoint_picker_engine::metrics::{Labels, Metric, MetricSink};
use endpoint_picker_engine::pool_view::{PoolView, Topology};
use endpoint_picker_engine::testing;
use endpoint_picker_engine::worker_pool::WorkerPool;
use endpoint_picker_engine::worker_pool::decision::Routing;
use endpoint_picker_engine::worker_pool::directive::{Action, AssignedLoad};
use endpoint_picker_engine::worker_pool::store::PoolStore;
use endpoint_picker_native::pool::SharedPool;
use endpoint_picker_native::pool::store::SharedStore;
use endpoint_picker_wire::v1;

const NOW: Duration = Duration::from_secs(1_000);

/// Prompts, which come over and over.
const PROMPTS: usize = 500;

/// Decisions of each thread.
const DECISIONS: usize = 100_000;

/// A store that measures how long decisions and changes take; without other threads, that is how long they
/// hold the lock.
struct TimedStore {
    store: SharedStore,
    /// Nanoseconds of each decision.
    decisions: Vec<u64>,
    /// Nanoseconds of all other changes.
    changes: u64,
}

impl PoolStore for TimedStore {
    type View = <SharedStore as PoolStore>::View;

    fn view(&self) -> Self::View {
        self.store.view()
    }

    fn read<T>(&self, read: impl FnOnce(&Ledger) -> T) -> T {
        self.store.read(read)
    }

    fn transact<T>(&mut self, decide: impl FnMut(&Arc<PoolView>, &Ledger) -> (T, ChangeList)) -> T {
        let start = Instant::now();
        let result = self.store.transact(decide);
        self.decisions.push(nanos(start));
        result
    }

    fn apply(&mut self, changes: ChangeList) {
        let start = Instant::now();
        self.store.apply(changes);
        self.changes += nanos(start);
    }
}

/// Metrics that are not read.
#[derive(Clone, Debug)]
struct NoMetrics;

impl MetricSink for NoMetrics {
    type Family = ();
    type Series = ();

    fn family(&self, _: &Metric<'_>) -> Self::Family {}

    fn series(&self, (): &Self::Family, _: &Labels) -> Option<Self::Series> {
        None
    }

    fn add(&self, (): &Self::Series, _: u64) {}

    fn record(&self, (): &Self::Series, _: u64) {}

    fn value(&self, (): &Self::Series) -> u64 {
        0
    }
}

fn nanos(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// A pool under load.
fn pool(endpoints: u16) -> Arc<SharedPool> {
    let policy = v1::Policy { avoid_failing_ms: 250, ..v1::Policy::default() };
    let topology = testing::topology("p", 0..endpoints, policy);
    let snapshot = testing::snapshot((0..endpoints).map(testing::busy_reading));
    let pool = Arc::<SharedPool>::default();
    pool.adopt(Arc::new(PoolView::new(Arc::new(Topology::compile(topology).unwrap()), snapshot, NOW)));
    pool
}

/// A chat with two kilobytes of text, the first quarter of which all have in common.
fn chat(number: usize) -> String {
    let text = |number: usize, bytes: usize| {
        let sentence = format!("The quick brown fox {number} jumps over the lazy dog. ");
        sentence.repeat(bytes / sentence.len())
    };
    serde_json::json!({"model": "m", "max_tokens": 256, "messages": [
        {"role": "system", "content": text(0, 512)},
        {"role": "user", "content": text(number, 1536)},
    ]})
    .to_string()
}

/// The measurements of one thread.
struct Measured {
    decisions: Vec<u64>,
    changes: u64,
    /// Nanoseconds of all decisions, also of what needs no lock.
    whole: u64,
}

/// Decides for all chats in turn, beginning with one of its own.
fn decide_all(pool: &Arc<SharedPool>, chats: &[String], first: usize, start: &Barrier) -> Measured {
    let config = Config::parse(br#"{"pool": "p"}"#).unwrap();
    let store =
        TimedStore { store: SharedStore::new(pool), decisions: Vec::with_capacity(DECISIONS), changes: 0 };
    let mut worker = WorkerPool::new(config, store, &NoMetrics, Form::Native, first as u64);
    let options = worker.view().topology().pipeline.body_options(Headers::default());
    let bodies: Vec<Body<'_>> =
        chats.iter().map(|chat| Body::read(chat, Api::Chat, &options).unwrap()).collect();
    let resolution = ModelResolution { model: "m", priority: 0, rewrite: None };
    start.wait();
    let begin = Instant::now();
    for body in bodies.iter().cycle().skip(first).take(DECISIONS) {
        let request = Request::new(body, resolution, Headers::default(), Subset::default());
        let view = worker.view();
        let routing = Routing {
            request: &request,
            has_body: true,
            other: None,
            explain: false,
            fallback: None,
            now: NOW,
        };
        let directive = worker.route(&view, &routing);
        let Action::Route(route) = directive.action else { panic!("{directive:?}") };
        let ended =
            route.assignment.loads.iter().filter_map(|&AssignedLoad { endpoint, prefill, response }| {
                let mut load = prefill;
                load += response;
                Change::ended(endpoint, load)
            });
        worker.store_mut().apply(ended.collect());
    }
    let whole = nanos(begin);
    let TimedStore { decisions, changes, .. } = worker.store_mut();
    Measured { decisions: core::mem::take(decisions), changes: *changes, whole }
}

fn main() {
    let endpoints: u16 = std::env::var("ENDPOINTS").map_or(100, |text| text.parse().unwrap());
    let chats: Vec<String> = (0..PROMPTS).map(chat).collect();
    println!("{endpoints} endpoints; microseconds, with a wait for the lock where there are several threads");
    println!("threads  decisions/s  whole  decide: median    p99   mean  apply: mean");
    for threads in [1, 4, 8] {
        let pool = pool(endpoints);
        let start = Barrier::new(threads);
        let measured: Vec<Measured> = thread::scope(|scope| {
            let workers: Vec<_> = (0..threads)
                .map(|n| {
                    let (pool, chats, start) = (&pool, &chats, &start);
                    scope.spawn(move || decide_all(pool, chats, n * PROMPTS / threads, start))
                })
                .collect();
            workers.into_iter().map(|worker| worker.join().unwrap()).collect()
        });
        assert_eq!(pool.read(Ledger::requests_in_flight), 0);
        let mut decisions: Vec<u64> = measured.iter().flat_map(|it| it.decisions.iter().copied()).collect();
        decisions.sort_unstable();
        let micros = |nanos: f64| nanos / 1e3;
        let count = decisions.len() as f64;
        let at = |share: usize| micros(decisions[decisions.len() * share / 100] as f64);
        let longest = measured.iter().map(|it| it.whole).max().unwrap_or(1) as f64;
        println!(
            "{threads:7}  {:11.0}  {:5.2}  {:14.2}  {:5.2}  {:5.2}  {:11.2}",
            count / longest * 1e9,
            micros(measured.iter().map(|it| it.whole as f64).sum::<f64>() / count),
            at(50),
            at(99),
            micros(decisions.iter().sum::<u64>() as f64 / count),
            micros(measured.iter().map(|it| it.changes as f64).sum::<f64>() / count),
        );
    }
}
