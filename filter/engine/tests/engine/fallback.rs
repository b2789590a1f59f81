//! Pools whose requests go to the pools of a list while they have no room themselves.

use core::time::Duration;
use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use endpoint_picker::request::body::{Api, Options, ReadBody};
use endpoint_picker::rng::{Rng, SplitMix64};
use endpoint_picker_engine::config::Config;
use endpoint_picker_engine::exchange::{Exchange, Flow};
use endpoint_picker_engine::form::Form;
use endpoint_picker_engine::ledger::{ChangeList, Ledger};
use endpoint_picker_engine::pool_view::{PoolView, Topology};
use endpoint_picker_engine::proxy::headers::DESTINATION;
use endpoint_picker_engine::queue::Queue;
use endpoint_picker_engine::testing;
use endpoint_picker_engine::worker_pool::WorkerPool;
use endpoint_picker_engine::worker_pool::fallback::OtherPool;
use endpoint_picker_engine::worker_pool::store::{OwnStore, OwnView, PoolStore};
use endpoint_picker_wire::v1;
use serde_json::json;

use crate::fixture::{START, TEXT, address, fewest_waiting};
use crate::proxy::FakeProxy;
use crate::sink::FakeSink;
use crate::store::QueueingStore;

const BODY: &str = r#"{"model": "m", "prompt": "hi"}"#;
const SECRET: &str = "0123456789abcdef";

/// Values of waiting requests at which an endpoint has room, and at which it is saturated.
const FREE: u64 = 0;
const SATURATED: u64 = 10;

/// A store that several pools use.
#[derive(Clone, Debug, Default)]
struct SharedStore(Rc<RefCell<QueueingStore>>);

impl PoolStore for SharedStore {
    type View = OwnView;

    fn view(&self) -> Self::View {
        self.0.borrow().view()
    }

    fn read<T>(&self, read: impl FnOnce(&Ledger) -> T) -> T {
        self.0.borrow().read(read)
    }

    fn transact<T>(&mut self, decide: impl FnMut(&Arc<PoolView>, &Ledger) -> (T, ChangeList)) -> T {
        self.0.borrow_mut().transact(decide)
    }

    fn apply(&mut self, changes: ChangeList) {
        self.0.borrow_mut().apply(changes);
    }

    fn with_queue<T>(&self, run: impl FnOnce(&mut Queue) -> T) -> Option<T> {
        self.0.borrow().with_queue(run)
    }
}

impl OwnStore for SharedStore {
    fn adopt(&mut self, newer: Arc<PoolView>) -> Arc<PoolView> {
        self.0.borrow_mut().adopt(newer)
    }
}

/// The pools `a`, `b` and `c`; `b` and `c` may take requests of `a`. Each has two endpoints, numbered 1 and
/// 2, 3 and 4, 5 and 6.
struct Pools {
    /// `a`, and the others as the configuration of `a` uses them.
    pools: Vec<(WorkerPool<SharedStore, FakeSink>, FakeSink)>,
    policies: [v1::Policy; 3],
    now: Duration,
}

/// One request, and the pool that has it.
struct Moving {
    proxy: FakeProxy,
    exchange: Exchange,
    pool: usize,
    flow: Flow,
}

fn numbers(pool: usize) -> [u8; 2] {
    let first = u8::try_from(2 * pool + 1).unwrap();
    [first, first + 1]
}

impl Pools {
    fn new(change: impl Fn(usize, &mut v1::Policy)) -> Self {
        let stores: Vec<SharedStore> = (0..3).map(|_| SharedStore::default()).collect();
        let worker = |pool: usize| {
            let config = json!({"pool": "p", "explain": {"header": "x-why", "secret": SECRET}});
            let config = Config::parse(config.to_string().as_bytes()).unwrap();
            let sink = FakeSink::default();
            let mut worker = WorkerPool::new(config, stores[pool].clone(), &sink, Form::Native, 1);
            let other =
                |pool: usize| OtherPool { name: ["a", "b", "c"][pool].into(), store: stores[pool].clone() };
            if pool == 0 {
                worker.set_fallback([other(1), other(2)], vec![0, 1]);
            }
            (worker, sink)
        };
        let policies = [0, 1, 2].map(|pool| {
            let mut policy = fewest_waiting();
            let objective = v1::Objective { name: "batch".to_owned(), priority: -1 };
            policy.objectives = vec![objective];
            change(pool, &mut policy);
            policy
        });
        let mut pools = Self { pools: (0..3).map(worker).collect(), policies, now: START };
        (0..3).for_each(|pool| pools.read(pool, &[FREE, FREE]));
        pools
    }

    /// Pools with flow control.
    fn queueing() -> Self {
        Self::new(|_, policy| {
            policy.picker_config.as_mut().unwrap().flow_control = Some(v1::FlowControl::default());
        })
    }

    /// The servers of a pool report these numbers of waiting requests; without numbers the pool has no
    /// endpoints.
    fn read(&mut self, pool: usize, waiting: &[u64]) {
        let numbers = numbers(pool).map(u16::from).into_iter().take(waiting.len());
        let topology = testing::topology(["a", "b", "c"][pool], numbers, self.policies[pool].clone());
        let topology = Arc::new(Topology::compile(topology).unwrap());
        let snapshot = testing::snapshot(waiting.iter().map(|&waiting| testing::reading(waiting)));
        self.pools[pool].0.adopt(Arc::new(PoolView::new(topology, snapshot, self.now)));
    }

    fn request(&self, headers: &[(&str, &str)]) -> Moving {
        let all = [(":method", "POST"), (":path", TEXT), ("x-why", SECRET)].iter().chain(headers);
        let all = all.map(|&(name, value)| (name.to_owned(), value.as_bytes().to_vec()));
        let proxy = FakeProxy { request_headers: all.collect(), ..FakeProxy::default() };
        proxy.now.set(self.now);
        let exchange = Exchange::new(&self.pools[0].0.config.limits);
        Moving { proxy, exchange, pool: 0, flow: Flow::Hold }
    }

    /// Has another pool take the request, if it moves.
    fn follow(&mut self, request: &mut Moving, flow: Flow) {
        request.flow = flow;
        if let Flow::Move(place) = flow {
            request.pool = place + 1;
            let size = request.proxy.request_body.len();
            let pool = &mut self.pools[request.pool].0;
            request.flow = request.exchange.continue_in(pool, &mut request.proxy, size, None);
        }
    }

    fn head(&mut self, request: &mut Moving, end_of_stream: bool) {
        let pool = &mut self.pools[request.pool].0;
        let flow = request.exchange.request_headers(pool, &mut request.proxy, end_of_stream);
        self.follow(request, flow);
    }

    fn body(&mut self, request: &mut Moving, part: &str, is_last: bool) {
        request.proxy.request_body.extend_from_slice(part.as_bytes());
        let size = request.proxy.request_body.len();
        let pool = &mut self.pools[request.pool].0;
        let flow = request.exchange.request_body(pool, &mut request.proxy, size, is_last);
        self.follow(request, flow);
    }

    fn post(&mut self, headers: &[(&str, &str)]) -> Moving {
        let mut request = self.request(headers);
        self.head(&mut request, false);
        if request.flow == Flow::Hold && request.proxy.local_answer.is_none() {
            self.body(&mut request, BODY, true);
        }
        request
    }

    /// A server responds to the request, and the response is complete.
    fn answer(&mut self, request: &mut Moving, from: u8) {
        self.begin_answer(request, from);
        self.end(request);
    }

    fn begin_answer(&mut self, request: &mut Moving, from: u8) {
        request.proxy.upstream = Some(address(from).parse().unwrap());
        request.proxy.attempts = Some(2);
        request.proxy.details = "via_upstream";
        request.proxy.response_headers = vec![(":status".to_owned(), b"200".to_vec())];
        let pool = &mut self.pools[request.pool].0;
        request.exchange.response_headers(pool, &mut request.proxy, false);
    }

    fn end(&mut self, request: &mut Moving) {
        let pool = &mut self.pools[request.pool].0;
        request.proxy.chunk = b"{}".to_vec();
        request.exchange.response_body(pool, &mut request.proxy, true);
    }

    /// The requests in flight in each pool.
    fn in_flight(&self) -> Vec<u64> {
        let of = |(pool, _): &(WorkerPool<SharedStore, FakeSink>, FakeSink)| {
            pool.store().read(Ledger::requests_in_flight)
        };
        self.pools.iter().map(of).collect()
    }

    /// The value of a counter in each pool.
    fn counted(&mut self, name: &str) -> [u64; 3] {
        self.now += Duration::from_secs(1000);
        [0, 1, 2].map(|pool| {
            let (worker, sink) = &mut self.pools[pool];
            worker.publish_metrics(false, self.now);
            sink.get(name)
        })
    }

    fn waiting(&self, pool: usize) -> u64 {
        self.pools[pool].0.store().with_queue(|queue| queue.waiting()).unwrap()
    }
}

impl Moving {
    fn destination(&self) -> Option<&str> {
        self.proxy.request_header(DESTINATION)
    }

    fn status(&self) -> Option<u16> {
        self.proxy.local_answer.as_ref().map(|answer| answer.status)
    }
}

#[test]
fn a_pool_with_room_takes_its_requests() {
    for mut pools in [Pools::new(|_, _| {}), Pools::queueing()] {
        let request = pools.post(&[]);
        assert_eq!((request.pool, request.flow), (0, Flow::Continue));
        assert_eq!(pools.in_flight(), [1, 0, 0]);
        assert_eq!(pools.counted("fallbacks|no_endpoints"), [0; 3]);
        assert_eq!(pools.counted("fallbacks|saturated"), [0; 3]);
    }
}

#[test]
fn the_next_pool_with_room_takes_the_request_and_all_of_it_is_there() {
    for (a, reason, why) in [
        (&[][..], "fallbacks|no_endpoints", "fallback: pool p has no endpoints"),
        (&[SATURATED, SATURATED][..], "fallbacks|saturated", "fallback: pool p is saturated"),
    ] {
        for mut pools in [Pools::new(|_, _| {}), Pools::queueing()] {
            pools.read(0, a);
            let mut first = pools.post(&[]);
            assert_eq!(first.pool, 1);
            assert_eq!(first.destination(), Some(address(3).as_str()));
            pools.read(1, &[SATURATED, SATURATED]);
            let mut second = pools.post(&[]);
            assert_eq!(second.pool, 2);
            assert_eq!(pools.in_flight(), [0, 1, 1]);
            pools.answer(&mut first, 3);
            let explanation = first.proxy.response_header("x-endpoint-picker-explanation").unwrap();
            assert!(explanation.contains(why), "{explanation}");
            pools.answer(&mut second, 5);
            assert_eq!(pools.in_flight(), [0; 3]);
            assert_eq!(pools.counted(reason), [2, 0, 0]);
            assert_eq!(pools.counted("routed"), [0, 1, 1]);
            pools.read(0, &[FREE, FREE]);
            assert_eq!(pools.post(&[]).pool, 0, "the pool is back");
        }
    }
}

#[test]
fn without_room_anywhere_a_pool_with_endpoints_keeps_the_request_and_one_without_passes_it_on() {
    let mut pools = Pools::queueing();
    (0..3).for_each(|pool| pools.read(pool, &[SATURATED, SATURATED]));
    let request = pools.post(&[]);
    assert_eq!((request.pool, request.flow, pools.waiting(0)), (0, Flow::Wait, 1));
    pools.read(0, &[]);
    let request = pools.post(&[]);
    assert_eq!((request.pool, request.flow, pools.waiting(1)), (1, Flow::Wait, 1));
    let mut pools = Pools::new(|_, _| {});
    (0..3).for_each(|pool| pools.read(pool, &[]));
    let request = pools.post(&[]);
    assert_eq!((request.pool, request.status()), (0, Some(503)));
    assert_eq!(pools.counted("fallbacks|no_endpoints"), [0; 3]);
}

#[test]
fn a_sheddable_request_is_shed_where_there_is_no_queue_and_moves_where_there_is_one() {
    let batch = [("x-llm-d-inference-objective", "batch")];
    let mut pools = Pools::new(|_, _| {});
    pools.read(0, &[SATURATED, SATURATED]);
    let request = pools.post(&batch);
    assert_eq!((request.pool, request.status()), (0, Some(429)));
    pools.read(0, &[]);
    assert_eq!(pools.post(&batch).pool, 1, "it is not shed without endpoints");
    let mut pools = Pools::queueing();
    pools.read(0, &[SATURATED, SATURATED]);
    assert_eq!(pools.post(&batch).pool, 1);
}

#[test]
fn a_request_that_a_full_queue_would_reject_moves_by_its_head() {
    let mut pools = Pools::new(|_, policy| {
        let flow_control = v1::FlowControl { max_requests: 1, ..v1::FlowControl::default() };
        policy.picker_config.as_mut().unwrap().flow_control = Some(flow_control);
    });
    (0..3).for_each(|pool| pools.read(pool, &[SATURATED, SATURATED]));
    let waiting = pools.post(&[]);
    assert_eq!(waiting.flow, Flow::Wait);
    let full = pools.post(&[]);
    assert_eq!((full.pool, full.status()), (0, Some(429)));
    pools.read(2, &[FREE, FREE]);
    let mut request = pools.request(&[("content-length", "10")]);
    pools.head(&mut request, false);
    assert_eq!((request.pool, request.flow), (2, Flow::Hold), "its body is not there yet");
    pools.body(&mut request, BODY, true);
    assert_eq!(request.destination(), Some(address(5).as_str()));
}

#[test]
fn requests_without_a_body_and_long_bodies_move() {
    let mut pools = Pools::new(|_, _| {});
    pools.read(0, &[]);
    let mut request = pools.request(&[]);
    pools.head(&mut request, true);
    assert_eq!((request.pool, request.flow), (1, Flow::Continue));
    let mut request = pools.request(&[]);
    pools.head(&mut request, false);
    let long = format!(r#"{{"model": "m", "prompt": "{}""#, "x".repeat(2 << 20));
    pools.body(&mut request, &long, false);
    assert_eq!((request.pool, request.flow), (1, Flow::Continue), "its beginning is enough");
}

#[test]
fn a_body_that_was_read_for_the_route_is_not_read_again_for_another_pool() {
    let mut pools = Pools::new(|_, _| {});
    pools.read(0, &[]);
    let mut request = pools.request(&[]);
    pools.head(&mut request, false);
    request.proxy.request_body = BODY.as_bytes().to_vec();
    let read_body = ReadBody::new(BODY.as_bytes(), true, Api::Completions, &Options::default());
    let (size, own) = (BODY.len(), &mut pools.pools[0].0);
    let flow = request.exchange.request_body_read(own, &mut request.proxy, size, &read_body);
    assert_eq!(flow, Flow::Move(0));
    let other = &mut pools.pools[1].0;
    let flow = request.exchange.continue_in(other, &mut request.proxy, size, Some(&read_body));
    assert_eq!((flow, request.destination().is_some()), (Flow::Continue, true));
    assert!(request.proxy.body_reads.borrow().is_empty());
}

#[test]
fn a_subset_hint_keeps_the_request_in_its_pool() {
    let mut pools = Pools::new(|_, _| {});
    pools.read(0, &[SATURATED, SATURATED]);
    let mut request = pools.request(&[]);
    request.proxy.hint = Some(address(2).into_bytes());
    request.proxy.namespace = Some(Vec::new());
    pools.head(&mut request, false);
    pools.body(&mut request, BODY, true);
    assert_eq!((request.pool, request.destination()), (0, Some(address(2).as_str())));
}

#[test]
fn the_pool_that_takes_the_request_rewrites_its_model() {
    let mut pools = Pools::new(|pool, policy| {
        let target = v1::Target { model: ["of-a", "of-b", "of-c"][pool].to_owned(), weight: Some(1) };
        policy.rewrite_rules = vec![v1::RewriteRule { targets: vec![target], ..v1::RewriteRule::default() }];
    });
    pools.read(0, &[]);
    let request = pools.post(&[]);
    assert_eq!(request.pool, 1);
    let body = String::from_utf8(request.proxy.request_body.clone()).unwrap();
    assert!(body.contains(r#""of-b""#), "{body}");
}

#[test]
fn a_retry_in_another_pool_takes_the_load_there_and_the_failed_pool_is_left_next_time() {
    let mut pools = Pools::new(|_, _| {});
    let mut first = pools.post(&[]);
    assert_eq!(first.proxy.retry_in, ["b".into(), "c".into()]);
    pools.begin_answer(&mut first, 4);
    assert_eq!(pools.in_flight(), [0, 1, 0], "the load is where the response comes from");
    let second = pools.post(&[]);
    assert_eq!((second.pool, second.destination()), (0, Some(address(2).as_str())), "1 is avoided");
    let mut second = second;
    pools.begin_answer(&mut second, 3);
    let third = pools.post(&[]);
    assert_eq!(third.pool, 1, "all endpoints of the pool are avoided");
    pools.end(&mut first);
    pools.end(&mut second);
    assert_eq!(pools.in_flight(), [0, 1, 0], "the third one");
    assert_eq!(pools.counted("fallbacks|failed"), [2, 0, 0]);
    assert_eq!(pools.counted("fallbacks|no_endpoints"), [1, 0, 0]);
    assert_eq!(pools.counted("routed"), [2, 1, 0], "a retry counts once");
}

#[test]
fn a_server_of_another_pool_that_cuts_its_response_is_avoided_there() {
    let mut pools = Pools::new(|_, _| {});
    let mut request = pools.post(&[]);
    pools.begin_answer(&mut request, 3);
    let details = b"upstream_reset_after_response_started{remote_reset}";
    request.exchange.local_reply(&mut pools.pools[0].0, &request.proxy, details);
    pools.read(0, &[]);
    for _ in 0..8 {
        assert_eq!(pools.post(&[]).destination(), Some(address(4).as_str()), "3 is avoided");
    }
}

#[test]
fn a_retry_leaves_the_pool_only_for_pools_that_would_serve_the_same_model() {
    let mut pools = Pools::new(|pool, policy| {
        let model =
            |name: &str| v1::InferenceModel { name: name.to_owned(), ..v1::InferenceModel::default() };
        match pool {
            1 => policy.inference_models = vec![model("other")],
            2 => policy.inference_models = vec![model("m")],
            _ => {}
        }
    });
    assert_eq!(pools.post(&[]).proxy.retry_in, ["c".into()]);
}

#[test]
fn a_pool_that_leaves_the_list_ends_the_requests_that_it_has() {
    let mut pools = Pools::new(|_, _| {});
    let mut request = pools.post(&[]);
    pools.begin_answer(&mut request, 3);
    pools.pools[0].0.set_fallback([], vec![1]);
    pools.read(0, &[]);
    assert_eq!(pools.post(&[]).pool, 2);
    pools.end(&mut request);
    assert_eq!(pools.in_flight(), [0, 0, 1]);
}

/// Random states of the pools, and requests that fail, are answered by their own or by another pool, or end
/// without a response.
#[test]
fn each_request_counts_once_and_no_load_is_left() {
    for seed in 0..40 {
        let mut rng = SplitMix64::new(seed);
        let mut draw = |below: usize| rng.below(below);
        let mut pools = if seed % 2 == 0 { Pools::new(|_, _| {}) } else { Pools::queueing() };
        let mut open: Vec<Moving> = Vec::new();
        let (mut sent, mut rejected) = (0, 0);
        for _ in 0..100 {
            pools.now += Duration::from_millis(draw(50) as u64);
            match draw(4) {
                0 => {
                    let state = [&[][..], &[FREE, FREE], &[SATURATED, SATURATED]][draw(3)];
                    pools.read(draw(3), state);
                }
                1 if !open.is_empty() => {
                    let mut request = open.swap_remove(draw(open.len()));
                    if request.flow == Flow::Continue {
                        let served = match draw(3) {
                            0 if request.pool == 0 => 1 + u8::try_from(draw(6)).unwrap(),
                            0 | 1 => numbers(request.pool)[draw(2)],
                            _ => 0,
                        };
                        if served > 0 {
                            pools.answer(&mut request, served);
                        }
                    }
                    let pool = &mut pools.pools[request.pool].0;
                    request.exchange.end(pool);
                    sent -= u64::from(request.flow == Flow::Wait);
                }
                _ => {
                    let batch = [("x-llm-d-inference-objective", "batch")];
                    let request = pools.post(if draw(4) == 0 { &batch } else { &[] });
                    sent += 1;
                    rejected += u64::from(request.status().is_some());
                    open.push(request);
                }
            }
        }
        let waiting = open.iter().filter(|request| request.flow == Flow::Wait).count() as u64;
        for request in &mut open {
            let pool = &mut pools.pools[request.pool].0;
            request.exchange.end(pool);
        }
        assert_eq!(pools.in_flight(), [0; 3], "seed {seed}");
        let routed: u64 = pools.counted("routed").iter().sum();
        assert_eq!(routed + rejected + waiting, sent, "seed {seed}");
    }
}
