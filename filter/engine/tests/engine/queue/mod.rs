//! Requests that wait in the queue in front of the pool.

mod answers;
mod bodies;
mod capacity;
mod evictions;
mod reports;
mod sessions;
mod throughput;
mod turns;

use core::sync::atomic::Ordering;
use core::time::Duration;
use std::sync::Arc;

use endpoint_picker_engine::exchange::Flow;
use endpoint_picker_engine::pool_view::PoolView;
use endpoint_picker_engine::worker_pool::store::PoolStore;
use endpoint_picker_wire::v1;
use serde_json::json;

use crate::fixture::{Fixture, Request, START, TEXT, fewest_waiting, snapshot, topology};

const BODY: &str = r#"{"model": "m", "prompt": "hi"}"#;
const SECRET: &str = "0123456789abcdef";

/// Readings of a saturated pool, and of one with room.
const SATURATED: [u64; 3] = [10, 10, 10];
const FREE: [u64; 3] = [1, 0, 1];

pub(crate) fn queueing_policy(flow_control: v1::FlowControl) -> v1::Policy {
    let mut policy = fewest_waiting();
    let picker = policy.picker_config.as_mut().unwrap();
    picker.flow_control = Some(flow_control);
    let (name, parameters) = ("agent-identity".to_owned(), "{}".to_owned());
    picker.plugins.push(v1::Plugin { r#type: name.clone(), name, parameters });
    let objective = |name: &str, priority| v1::Objective { name: name.to_owned(), priority };
    policy.objectives = vec![objective("urgent", 5), objective("batch", -1)];
    policy
}

/// A pool of three servers with a queue in front of them.
pub(crate) struct Queueing {
    pub(crate) fixture: Fixture,
    now: Duration,
}

impl Queueing {
    /// A saturated pool.
    fn saturated(flow_control: v1::FlowControl) -> Self {
        let mut fixture =
            Fixture::without_snapshot(&json!({"explain": {"header": "x-why", "secret": SECRET}}));
        fixture.adopt(topology(&[1, 2, 3], queueing_policy(flow_control)), &SATURATED);
        Self { fixture, now: START }
    }

    /// A pool that takes two requests at once, whatever the servers report.
    fn two_at_once() -> Self {
        let mut queueing = Self::saturated(v1::FlowControl::default());
        let mut policy = queueing_policy(v1::FlowControl::default());
        let picker = policy.picker_config.as_mut().unwrap();
        let detector = "concurrency-detector".to_owned();
        let parameters = json!({"maxConcurrency": 1}).to_string();
        picker.plugins.push(v1::Plugin { name: detector.clone(), r#type: detector.clone(), parameters });
        picker.saturation_detector = Some(detector);
        queueing.fixture.adopt(topology(&[1, 2], policy), &[0, 0]);
        queueing
    }

    /// The servers report again.
    fn read(&mut self, waiting: &[u64]) {
        let topology = Arc::clone(self.fixture.pool.view().topology());
        self.fixture.pool.adopt(Arc::new(PoolView::new(topology, snapshot(waiting), self.now)));
    }

    /// Time passes; the servers report the same again if it is long.
    fn pass(&mut self, milliseconds: u64) {
        self.now += Duration::from_millis(milliseconds);
    }

    fn tick(&self) {
        self.fixture.pool.store().with_current_queue(self.now, |queue| queue.tick(self.now));
    }

    fn waiting(&self) -> u64 {
        self.fixture.pool.store().with_queue(|queue| queue.waiting()).unwrap()
    }

    /// Requests in flight and requests that the queue could resume.
    fn left_over(&self) -> (usize, usize) {
        self.fixture.pool.store().with_queue(|queue| (queue.in_flight(), queue.resumable())).unwrap()
    }

    fn request(&self, headers: &[(&str, &str)]) -> Request {
        let request = self.fixture.request(TEXT, headers);
        request.proxy.now.set(self.now);
        request
    }

    /// A request whose body has arrived, and what became of it.
    fn post(&mut self, headers: &[(&str, &str)]) -> (Request, Flow) {
        let mut request = self.request(headers);
        assert_eq!(request.head(&mut self.fixture), Flow::Hold);
        let flow = request.body(&mut self.fixture, BODY.as_bytes(), true);
        (request, flow)
    }

    /// A request that waits.
    fn waiting_request(&mut self, headers: &[(&str, &str)]) -> Request {
        let (request, flow) = self.post(headers);
        assert_eq!(flow, Flow::Wait);
        assert_eq!(resumes(&request), 0);
        request
    }

    /// Actions of the proxy when the queue has resumed a request.
    fn resumed(&mut self, request: &mut Request) -> Option<Flow> {
        request.proxy.now.set(self.now);
        let size = request.proxy.request_body.len();
        request.exchange.resumed(&mut self.fixture.pool, &mut request.proxy, size)
    }

    fn end(&mut self, request: &mut Request) {
        request.exchange.end(&mut self.fixture.pool);
    }
}

fn resumes(request: &Request) -> usize {
    request.proxy.resumes.load(Ordering::Relaxed)
}

fn of(objective: &'static str) -> [(&'static str, &'static str); 1] {
    [("x-llm-d-inference-objective", objective)]
}
