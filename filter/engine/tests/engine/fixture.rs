//! A pool in use with a fake proxy in front of it.

use core::time::Duration;
use std::sync::Arc;

use endpoint_picker::pool::load::Load;
use endpoint_picker_engine::config::Config;
use endpoint_picker_engine::exchange::{Exchange, Flow};
use endpoint_picker_engine::form::Form;
use endpoint_picker_engine::pool_view::{PoolView, Topology};
use endpoint_picker_engine::proxy::headers::DESTINATION;
use endpoint_picker_engine::testing;
pub(crate) use endpoint_picker_engine::testing::START;
use endpoint_picker_engine::worker_pool::WorkerPool;
use endpoint_picker_engine::worker_pool::store::PoolStore;
use endpoint_picker_wire::v1;
use serde_json::{Value, json};

use crate::proxy::{FakeProxy, LocalAnswer};
use crate::sink::FakeSink;
use crate::store::QueueingStore;

pub(crate) const CHAT: &str = "/v1/chat/completions";
pub(crate) const TEXT: &str = "/v1/completions";

/// The address of the endpoint of this number.
pub(crate) fn address(endpoint: u8) -> String {
    testing::address(endpoint.into()).to_string()
}

/// A policy that picks the endpoint with the fewest waiting requests, and avoids endpoints that fail.
pub(crate) fn fewest_waiting() -> v1::Policy {
    v1::Policy { avoid_failing_ms: 250, ..testing::fewest_waiting() }
}

/// A topology of these endpoints.
pub(crate) fn topology(endpoints: &[u8], policy: v1::Policy) -> v1::Topology {
    testing::topology("p", endpoints.iter().map(|&number| number.into()), policy)
}

/// A snapshot of readings with this many waiting requests at each endpoint.
pub(crate) fn snapshot(waiting: &[u64]) -> v1::Snapshot {
    testing::snapshot(waiting.iter().map(|&waiting| testing::reading(waiting)))
}

/// A pool in use.
pub(crate) struct Fixture {
    pub(crate) pool: WorkerPool<QueueingStore, FakeSink>,
    pub(crate) sink: FakeSink,
    /// The number of calls of [`Self::flush`].
    flushes: u32,
}

impl Fixture {
    /// A pool before its first snapshot. `fields` is added to the configuration, which has an agent unless
    /// they list endpoints.
    pub(crate) fn without_snapshot(fields: &Value) -> Self {
        let agent =
            if fields.get("endpoints").is_some() { json!({}) } else { json!({"agentCluster": "agent"}) };
        let mut config = agent;
        config["pool"] = "p".into();
        config.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let config = Config::parse(config.to_string().as_bytes()).unwrap();
        let sink = FakeSink::default();
        Self {
            pool: WorkerPool::new(config, QueueingStore::default(), &sink, Form::Wasm, 1),
            sink,
            flushes: 0,
        }
    }

    /// A pool of three endpoints, of which the first one is picked.
    pub(crate) fn with_config(fields: &Value) -> Self {
        Self::with_policy(fields, fewest_waiting())
    }

    /// The same under another policy.
    pub(crate) fn with_policy(fields: &Value, policy: v1::Policy) -> Self {
        let mut fixture = Self::without_snapshot(fields);
        fixture.adopt(topology(&[1, 2, 3], policy), &[0, 10, 20]);
        fixture
    }

    pub(crate) fn new() -> Self {
        Self::with_config(&json!({}))
    }

    /// Adopts a topology with this many waiting requests at its endpoints.
    pub(crate) fn adopt(&mut self, topology: v1::Topology, waiting: &[u64]) {
        let topology = Arc::new(Topology::compile(topology).unwrap());
        self.pool.adopt(Arc::new(PoolView::new(topology, snapshot(waiting), START)));
    }

    /// Has the worker add its pending counts to the proxy's counters.
    pub(crate) fn flush(&mut self) {
        self.flushes += 1;
        self.pool.publish_metrics(false, START + self.flushes * Duration::from_secs(1000));
    }

    /// The value of a counter, with what is still pending.
    pub(crate) fn counted(&mut self, name: &str) -> u64 {
        self.flush();
        self.sink.get(name)
    }

    /// The requests in flight at each endpoint.
    pub(crate) fn in_flight(&self) -> Vec<u64> {
        self.pool.store().read(|ledger| ledger.loads().iter().map(|load| load.requests).collect())
    }

    /// The load at each endpoint.
    pub(crate) fn loads(&self) -> Vec<Load> {
        self.pool.store().read(|ledger| ledger.loads().to_vec())
    }

    /// The endpoints that are avoided now, by their numbers.
    pub(crate) fn avoided(&self) -> Vec<u8> {
        let avoided: Vec<u64> = self.pool.store().read(|ledger| ledger.avoided_endpoints(START).collect());
        let is_avoided = |number: &u8| {
            let index = self.pool.view().pool().index_at(address(*number).parse().unwrap());
            avoided.contains(&self.pool.view().pool().as_slice()[index.unwrap()].key())
        };
        [1, 2, 3].into_iter().filter(is_avoided).collect()
    }

    /// A request with these headers that has not begun.
    pub(crate) fn request(&self, path: &str, headers: &[(&str, &str)]) -> Request {
        let mut all = vec![(":method", "POST"), (":path", path)];
        all.extend(headers);
        let all = all.into_iter().map(|(name, value)| (name.to_owned(), value.as_bytes().to_vec()));
        let proxy = FakeProxy { request_headers: all.collect(), ..FakeProxy::default() };
        proxy.now.set(START);
        Request { proxy, exchange: Exchange::new(&self.pool.config.limits) }
    }

    /// A completed request with this body.
    pub(crate) fn post(&mut self, path: &str, headers: &[(&str, &str)], body: &str) -> Request {
        let mut request = self.request(path, headers);
        if request.head(self) == Flow::Hold && request.proxy.local_answer.is_none() {
            request.body(self, body.as_bytes(), true);
        }
        request
    }

    /// A request that was routed to the first endpoint.
    pub(crate) fn routed(&mut self) -> Request {
        let request = self.post(TEXT, &[], r#"{"model": "m", "prompt": "hi"}"#);
        assert_eq!(request.destination(), Some(address(1).as_str()));
        request
    }
}

/// One request.
pub(crate) struct Request {
    pub(crate) proxy: FakeProxy,
    pub(crate) exchange: Exchange,
}

impl Request {
    /// The head arrives, and a body will follow.
    pub(crate) fn head(&mut self, fixture: &mut Fixture) -> Flow {
        self.exchange.request_headers(&mut fixture.pool, &mut self.proxy, false)
    }

    /// The head arrives, and there is no body.
    pub(crate) fn head_only(&mut self, fixture: &mut Fixture) -> Flow {
        self.exchange.request_headers(&mut fixture.pool, &mut self.proxy, true)
    }

    /// A part of the body arrives.
    pub(crate) fn body(&mut self, fixture: &mut Fixture, part: &[u8], is_last: bool) -> Flow {
        self.proxy.request_body.extend_from_slice(part);
        self.proxy.request_chunk = part.to_vec();
        let size = self.proxy.request_body.len();
        self.exchange.request_body(&mut fixture.pool, &mut self.proxy, size, is_last)
    }

    pub(crate) fn trailers(&mut self, fixture: &mut Fixture) -> Flow {
        self.exchange.request_trailers(&mut fixture.pool, &mut self.proxy)
    }

    /// The destination header.
    pub(crate) fn destination(&self) -> Option<&str> {
        self.proxy.request_header(DESTINATION)
    }

    /// The error that the filter answered.
    pub(crate) fn rejection(&self) -> &LocalAnswer {
        self.proxy.local_answer.as_ref().expect("an answer of the filter's own")
    }

    /// The head of a response arrives, with a body behind it.
    pub(crate) fn answer(&mut self, fixture: &mut Fixture, from: u8, headers: &[(&str, &str)]) {
        self.proxy.upstream = Some(address(from).parse().unwrap());
        if self.proxy.details.is_empty() {
            self.proxy.details = "via_upstream";
        }
        self.proxy.response_headers =
            headers.iter().map(|&(name, value)| (name.to_owned(), value.as_bytes().to_vec())).collect();
        self.exchange.response_headers(&mut fixture.pool, &mut self.proxy, false);
    }

    /// The first endpoint serves it.
    pub(crate) fn served(mut self, fixture: &mut Fixture) {
        self.answer(fixture, 1, &[(":status", "200")]);
        self.chunk(fixture, "text", true);
    }

    /// A chunk of the response arrives; returns the chunk that the client gets.
    pub(crate) fn chunk(&mut self, fixture: &mut Fixture, chunk: &str, is_last: bool) -> String {
        self.proxy.chunk = chunk.as_bytes().to_vec();
        if is_last || !self.exchange.pass_chunk(&self.proxy) {
            self.exchange.response_body(&mut fixture.pool, &mut self.proxy, is_last);
        }
        String::from_utf8(self.proxy.chunk.clone()).unwrap()
    }
}
