//! A picker with the product's own engine: a pool in use, and a proxy around it that exists in memory only.

use super::store::PoolWithCaches;
use super::{Chunk, Pick, START};
use crate::simulation::fleet;
use crate::simulation::kv_events::TEXTS;
use crate::simulation::request::{MODEL, SimulatedRequest};
use core::fmt;
use core::net::SocketAddr;
use endpoint_picker::headers::HeaderList;
use endpoint_picker::pool::Endpoint;
use endpoint_picker_engine::config::Config;
use endpoint_picker_engine::exchange::{Exchange, Flow};
use endpoint_picker_engine::form::Form;
use endpoint_picker_engine::metrics::{Labels, Metric, MetricSink};
use endpoint_picker_engine::pool_view::{PoolView, Topology};
use endpoint_picker_engine::proxy::headers::DESTINATION;
use endpoint_picker_engine::proxy::metadata::Metadata;
use endpoint_picker_engine::proxy::{Proxy, Result as Outcome, Resume};
use endpoint_picker_engine::sharing::LocalPeer;
use endpoint_picker_engine::worker_pool::WorkerPool;
use endpoint_picker_engine::worker_pool::store::PoolStore as _;
use endpoint_picker_wire::{FORMAT, v1};
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// The product's engine in front of a fleet.
pub(super) struct EnginePicker {
    pub(super) pool: WorkerPool<PoolWithCaches, NoMetrics>,
    pub(super) topology: Arc<Topology>,
    readings_version: u64,
    requests: HashMap<usize, InFlight>,
    resumed: Resumed,
    /// The limit of each request for its first token.
    limit: Option<Duration>,
    /// The body of the request that is decided.
    body: Vec<u8>,
    /// The server of the last request that the rules left to Envoy.
    next: usize,
}

/// The numbers of requests that the queue has resumed.
type Resumed = Arc<Mutex<Vec<usize>>>;

/// A request that waits or is in flight.
struct InFlight {
    exchange: Exchange,
    proxy: SimulatedProxy,
    prompt_tokens: usize,
}

/// A chunk with a token.
const TOKEN: &str = "data: {\"choices\":[{\"text\":\"a\"}]}\n\n";

/// The name of the pool.
const POOL: &str = "default";

/// Path of the API that all requests call.
const PATH: &str = "/v1/completions";

impl EnginePicker {
    /// A picker with this policy. The error says why it has none.
    pub(super) fn new(
        policy: v1::Policy,
        servers: u16,
        limit: Option<Duration>,
        seed: u64,
    ) -> Result<Self, String> {
        let endpoints = (0..servers).map(fleet::endpoint).collect();
        let topology = v1::Topology { pool: POOL.to_owned(), endpoints, policy: Some(policy) };
        let topology = Arc::new(Topology::compile(topology).map_err(|error| error.to_string())?);
        let flow_control = topology.pipeline.flow_control();
        if flow_control.is_some_and(|config| config.eviction.is_some()) {
            return Err("eviction aborts requests in flight, which a replay does not do".to_owned());
        }
        let store = PoolWithCaches::new(flow_control.is_some());
        let config = Config::parse(format!(r#"{{"pool": "{POOL}", "agentCluster": "agent"}}"#).as_bytes())
            .map_err(|error| error.to_string())?;
        let mut picker = Self {
            pool: WorkerPool::new(config, store, &NoMetrics, Form::Native, seed),
            topology,
            readings_version: 0,
            requests: HashMap::new(),
            resumed: Arc::default(),
            limit,
            body: Vec::new(),
            next: 0,
        };
        // Before the first scrape.
        let ready = v1::Reading { ready: true, ..v1::Reading::default() };
        picker.read(vec![ready; servers.into()], Duration::ZERO);
        Ok(picker)
    }

    pub(super) fn read(&mut self, readings: Vec<v1::Reading>, now: Duration) {
        self.readings_version += 1;
        let snapshot = v1::Snapshot {
            format: FORMAT,
            topology_version: 1,
            readings_version: self.readings_version,
            readings,
            ..v1::Snapshot::default()
        };
        let view = PoolView::new(Arc::clone(&self.topology), snapshot, START + now);
        self.pool.adopt(Arc::new(view));
    }

    pub(super) fn update_caches(&mut self, messages: &[Vec<u8>], now: Duration) {
        self.pool.store_mut().update_caches(messages, START + now);
    }

    pub(super) fn pick(&mut self, request: &SimulatedRequest, number: usize, now: Duration) -> Pick {
        let mut body = core::mem::take(&mut self.body);
        write_body(request, &mut body);
        let size = body.len();
        let session = request.session.map(|session| session.to_string());
        let tenant = request.tenant.map(|tenant| tenant.to_string());
        let limit = self.limit.map(|limit| (limit.as_secs_f64() * 1e3).to_string());
        let proxy = SimulatedProxy {
            now: START + now,
            number,
            resumed: Arc::clone(&self.resumed),
            session,
            tenant,
            limit,
            body,
            destination: None,
            has_response: false,
            chunk: String::new(),
        };
        let exchange = Exchange::new(&self.pool.config.limits);
        let mut flight = InFlight { exchange, proxy, prompt_tokens: request.work().prompt_tokens() };
        let InFlight { exchange, proxy, .. } = &mut flight;
        let mut flow = exchange.request_headers(&mut self.pool, proxy, false);
        if flow == Flow::Hold {
            flow = exchange.request_body(&mut self.pool, proxy, size, true);
        }
        if flow == Flow::Wait {
            // Its body is read again when it is dispatched.
            self.requests.insert(number, flight);
            return Pick::Waits;
        }
        self.body = core::mem::take(&mut proxy.body);
        self.follow(flight, number)
    }

    /// The decision about a request.
    fn follow(&mut self, mut flight: InFlight, number: usize) -> Pick {
        let InFlight { exchange, proxy, .. } = &mut flight;
        if proxy.has_response {
            exchange.end(&mut self.pool);
            return Pick::Refused;
        }
        let picked = proxy.destination.and_then(|address| self.topology.pool.index_at(address));
        let server = picked.unwrap_or_else(|| {
            // Without a destination, Envoy takes the servers in turn.
            self.next = (self.next + 1) % self.topology.pool.as_slice().len();
            self.next
        });
        self.requests.insert(number, flight);
        Pick::Server(server)
    }

    /// Has the queue dispatch a request if there is room, and reject those that have waited for too long.
    pub(super) fn tick_queue(&self, now: Duration) {
        let time = START + now;
        self.pool.store().with_current_queue(time, |queue| queue.tick(time));
    }

    /// The requests that the queue has resumed since the last call, with the decision about each.
    pub(super) fn take_resumed(&mut self, now: Duration) -> Vec<(usize, Pick)> {
        let numbers = core::mem::take(&mut *self.resumed.lock().unwrap_or_else(PoisonError::into_inner));
        let mut resumed = Vec::with_capacity(numbers.len());
        for number in numbers {
            let Some(mut flight) = self.requests.remove(&number) else { continue };
            let InFlight { exchange, proxy, .. } = &mut flight;
            proxy.now = START + now;
            let size = proxy.body.len();
            if exchange.resumed(&mut self.pool, proxy, size) == Some(Flow::Wait) {
                self.requests.insert(number, flight);
                continue;
            }
            proxy.body = Vec::new();
            resumed.push((number, self.follow(flight, number)));
        }
        resumed
    }

    /// When the queue is to be ticked; `None`: nothing waits.
    pub(super) fn wake_at(&self) -> Option<Duration> {
        let wake_at = self.pool.store().with_queue(|queue| queue.wake_at()).flatten();
        wake_at.map(|at| at.saturating_sub(START))
    }

    pub(super) fn chunk(&mut self, number: usize, chunk: Chunk, now: Duration) {
        let Some(InFlight { exchange, proxy, prompt_tokens }) = self.requests.get_mut(&number) else {
            return;
        };
        proxy.now = START + now;
        match chunk {
            Chunk::First => {
                TOKEN.clone_into(&mut proxy.chunk);
                exchange.response_headers(&mut self.pool, proxy, false);
                exchange.response_body(&mut self.pool, proxy, false);
            }
            // The bytes are the first one's.
            Chunk::More => {
                exchange.response_body(&mut self.pool, proxy, false);
            }
            Chunk::Last { cached } => {
                proxy.chunk = format!(
                    "data: {{\"usage\":{{\"prompt_tokens\":{prompt_tokens},\"prompt_tokens_details\":{{\"cached_tokens\":{cached}}}}}}}\n\n"
                );
                exchange.response_body(&mut self.pool, proxy, true);
                exchange.end(&mut self.pool);
                self.requests.remove(&number);
            }
        }
    }

    /// The ledger.
    pub(super) fn peer(&mut self) -> &mut LocalPeer {
        self.pool.store_mut().peer_mut()
    }
}

impl fmt::Debug for EnginePicker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnginePicker").field("requests", &self.requests.len()).finish_non_exhaustive()
    }
}

/// The objective of requests with a limit, in the configuration of the variant that has limits.
const SHEDDABLE: &str = "sheddable";

/// The body of a request, with the limit of its response if the client names one.
pub(super) fn write_body(request: &SimulatedRequest, body: &mut Vec<u8>) {
    body.clear();
    let model = request.adapter.as_deref().unwrap_or(MODEL);
    body.extend_from_slice(format!(r#"{{"model": "{model}", "stream": true, "prompt": ""#).as_bytes());
    request.write_prompt(&TEXTS, body);
    match request.max_tokens {
        Some(limit) => body.extend_from_slice(format!(r#"", "max_tokens": {limit}}}"#).as_bytes()),
        None => body.extend_from_slice(br#""}"#),
    }
}

/// One request in a proxy.
#[derive(Debug)]
struct SimulatedProxy {
    now: Duration,
    number: usize,
    resumed: Resumed,
    session: Option<String>,
    tenant: Option<String>,
    /// The limit for the first token in milliseconds.
    limit: Option<String>,
    /// The request's body, until it is decided.
    body: Vec<u8>,
    destination: Option<SocketAddr>,
    /// Whether the picker responded itself.
    has_response: bool,
    /// The chunk of the response's body that has arrived.
    chunk: String,
}

impl Proxy for SimulatedProxy {
    fn now(&self) -> Outcome<Duration> {
        Ok(self.now)
    }

    fn resume(&self) -> Outcome<Resume> {
        let (resumed, number) = (Arc::clone(&self.resumed), self.number);
        Ok(Box::new(move || resumed.lock().unwrap_or_else(PoisonError::into_inner).push(number)))
    }

    fn request_headers(&self, _: HeaderList) -> Outcome<HeaderList> {
        let session = self.session.as_deref().map(|session| ("x-session-id", session));
        let all = [(":method", "POST"), (":path", PATH), ("content-type", "application/json")];
        let limit = self
            .limit
            .as_deref()
            .map(|limit| [("x-llm-d-slo-ttft-ms", limit), ("x-llm-d-inference-objective", SHEDDABLE)]);
        let tenant = self.tenant.as_deref().map(|tenant| ("x-gateway-inference-fairness-id", tenant));
        Ok(all.into_iter().chain(session).chain(tenant).chain(limit.into_iter().flatten()).collect())
    }

    fn set_request_header(&mut self, name: &str, value: &str) -> Outcome<()> {
        if name == DESTINATION {
            self.destination = value.split(',').next().and_then(|first| first.parse().ok());
        }
        Ok(())
    }

    fn remove_request_header(&mut self, _: &str) -> Outcome<()> {
        Ok(())
    }

    fn request_body(&self, max_bytes: usize) -> Outcome<Cow<'_, [u8]>> {
        Ok(self.body[..max_bytes.min(self.body.len())].into())
    }

    fn request_chunk(&self) -> Outcome<Cow<'_, [u8]>> {
        Ok(self.body.as_slice().into())
    }

    fn replace_request_body(&mut self, _: &[u8]) -> Outcome<()> {
        Ok(())
    }

    fn metadata_namespace(&self, _: &str) -> Outcome<Option<Vec<u8>>> {
        Ok(None)
    }

    fn metadata(&self, _: &str, _: &str) -> Outcome<Option<Vec<u8>>> {
        Ok(None)
    }

    fn set_metadata(&mut self, _: &Metadata<'_>) -> Outcome<()> {
        Ok(())
    }

    fn picked_for(&self) -> Outcome<Option<Vec<u8>>> {
        Ok(None)
    }

    fn mark_picked(&mut self, _: &str) -> Outcome<()> {
        Ok(())
    }

    fn send_response(&mut self, _: u16, _: &[(&str, &str)], _: &[u8]) -> Outcome<()> {
        self.has_response = true;
        Ok(())
    }

    fn upstream_address(&self, _: Option<&Endpoint>) -> Outcome<Option<SocketAddr>> {
        Ok(self.destination)
    }

    fn attempts(&self) -> Option<u64> {
        Some(1)
    }

    fn response_details(&self) -> Outcome<Vec<u8>> {
        Ok(b"via_upstream".to_vec())
    }

    fn read_response_headers(&self, mut read: impl FnMut(&[u8], &[u8])) -> Outcome<()> {
        read(b":status", b"200");
        read(b"content-type", b"text/event-stream");
        Ok(())
    }

    fn read_response_trailers(&self, _: impl FnMut(&[u8], &[u8])) -> Outcome<()> {
        Ok(())
    }

    fn set_response_header(&mut self, _: &str, _: &str) -> Outcome<()> {
        Ok(())
    }

    fn remove_response_header(&mut self, _: &str) -> Outcome<()> {
        Ok(())
    }

    fn response_chunk(&self) -> Outcome<Cow<'_, [u8]>> {
        Ok(self.chunk.as_bytes().into())
    }

    fn replace_response_chunk(&mut self, _: &[u8]) -> Outcome<()> {
        Ok(())
    }
}

/// A proxy without metrics.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoMetrics;

impl MetricSink for NoMetrics {
    type Family = ();
    type Series = ();

    fn family(&self, _: &Metric<'_>) {}

    fn series(&self, (): &(), _: &Labels) -> Option<()> {
        None
    }

    fn add(&self, (): &(), _: u64) {}

    fn record(&self, (): &(), _: u64) {}

    fn value(&self, (): &()) -> u64 {
        0
    }
}
