//! A picker with the product's own engine: a pool in use, and a proxy around it that exists in memory only.

use metrics_agent_catalogue::{Options, Plan};
use metrics_agent_sources::manifests::File;
use metrics_agent_support::files::FileLimits;

use super::Chunk;
use super::store::PoolWithCaches;
use super::variant::{Contents, Mechanism, Variant};
use crate::cell::fleet::RunningFleet;
use crate::cell::kv_events::TEXTS;
use crate::cell::request::SimulatedRequest;
use core::fmt;
use core::net::SocketAddr;
use endpoint_picker::epp_rules::EppRules;
use endpoint_picker::headers::HeaderList;
use endpoint_picker::plugin::Instance;
use endpoint_picker::pool::Endpoint;
use endpoint_picker::request::body::{Api, Body};
use endpoint_picker::request::prompt::block_hashes;
use endpoint_picker::state::prefix::PrefixIndex;
use endpoint_picker_engine::config::Config;
use endpoint_picker_engine::exchange::{Exchange, Flow};
use endpoint_picker_engine::form::Form;
use endpoint_picker_engine::metrics::{Labels, Metric, MetricSink};
use endpoint_picker_engine::pool_view::{PoolView, Topology};
use endpoint_picker_engine::proxy::headers::DESTINATION;
use endpoint_picker_engine::proxy::metadata::Metadata;
use endpoint_picker_engine::proxy::{Proxy, Result};
use endpoint_picker_engine::sharing::LocalPeer;
use endpoint_picker_engine::testing::{self, START};
use endpoint_picker_engine::worker_pool::WorkerPool;
use endpoint_picker_model_server::MODEL;
use endpoint_picker_wire::v1;
use std::borrow::Cow;
use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

/// The product's engine in front of a fleet.
pub(super) struct EnginePicker {
    pool: WorkerPool<PoolWithCaches, NoMetrics>,
    topology: Arc<Topology>,
    readings_version: u64,
    requests: HashMap<usize, InFlight>,
    contents: Contents,
    /// The limit of each request for its first token.
    limit: Option<Duration>,
    /// The body of the request that is decided.
    body: Vec<u8>,
}

/// A request in flight.
struct InFlight {
    exchange: Exchange,
    proxy: SimulatedProxy,
    prompt_tokens: usize,
}

/// A chunk with a token.
const TOKEN: &str = "data: {\"choices\":[{\"text\":\"a\"}]}\n\n";

/// Path of the API that all requests call.
const PATH: &str = "/v1/completions";

impl EnginePicker {
    pub(super) fn new(variant: &Variant, servers: usize, limit: Option<Duration>, seed: u64) -> Self {
        let Mechanism::Rules { config, switch, contents } = variant.mechanism else {
            panic!("{} has no rules", variant.name)
        };
        let config = match switch {
            Some(switch) => config.replace(&format!("\n#{switch} "), "\n"),
            None => config.to_owned(),
        };
        let policy = policy(variant.name, &config);
        let servers = u16::try_from(servers).unwrap();
        let topology = testing::topology("default", 0..servers, policy);
        let topology = Arc::new(Topology::compile(topology).unwrap());
        let config = Config::parse(br#"{"pool": "default", "agentCluster": "agent"}"#).unwrap();
        let mut picker = Self {
            pool: WorkerPool::new(config, PoolWithCaches::new(), &NoMetrics, Form::Native, seed),
            topology,
            readings_version: 0,
            requests: HashMap::new(),
            contents,
            limit,
            body: Vec::new(),
        };
        // Before the first scrape.
        let ready = v1::Reading { ready: true, ..v1::Reading::default() };
        picker.read(vec![ready; servers.into()], Duration::ZERO);
        picker
    }

    pub(super) fn read(&mut self, readings: Vec<v1::Reading>, now: Duration) {
        self.readings_version += 1;
        let snapshot =
            v1::Snapshot { readings_version: self.readings_version, ..testing::snapshot(readings) };
        let view = PoolView::new(Arc::clone(&self.topology), snapshot, START + now);
        self.pool.adopt(Arc::new(view));
    }

    pub(super) fn update_caches(&mut self, messages: &[Vec<u8>], now: Duration) {
        self.pool.store_mut().update_caches(messages, START + now);
    }

    pub(super) fn pick(
        &mut self,
        request: &SimulatedRequest,
        number: usize,
        fleet: &RunningFleet,
        now: Duration,
    ) -> Option<usize> {
        let mut body = core::mem::take(&mut self.body);
        write_body(request, &mut body);
        if self.contents == Contents::Exact {
            self.index_contents(request, &body, fleet);
        }
        let size = body.len();
        let session = request.session.map(|session| session.to_string());
        let limit = self.limit.map(|limit| (limit.as_secs_f64() * 1e3).to_string());
        let proxy = SimulatedProxy {
            now: START + now,
            session,
            limit,
            body,
            destination: None,
            is_refused: false,
            chunk: String::new(),
        };
        let exchange = Exchange::new(&self.pool.config.limits);
        let mut flight = InFlight { exchange, proxy, prompt_tokens: request.work().prompt_tokens() };
        let InFlight { exchange, proxy, .. } = &mut flight;
        let held = exchange.request_headers(&mut self.pool, proxy, false);
        if held == Flow::Hold {
            exchange.request_body(&mut self.pool, proxy, size, true);
        }
        self.body = core::mem::take(&mut proxy.body);
        if proxy.is_refused {
            exchange.end(&mut self.pool);
            return None;
        }
        let destination = proxy.destination.unwrap();
        self.requests.insert(number, flight);
        Some(self.topology.pool.index_at(destination).unwrap())
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

    /// Replaces the index of prompts by the part of this prompt that each server has cached.
    fn index_contents(&mut self, request: &SimulatedRequest, body: &[u8], fleet: &RunningFleet) {
        let pipeline = &self.topology.pipeline;
        let view = self.pool.view();
        let options = view.body_options(endpoint_picker::headers::Headers::default());
        let body = Body::read_bytes(body, Api::Completions, &options).unwrap();
        let model = request.adapter.as_deref().unwrap_or(MODEL);
        let keys = pipeline.plugins().iter().map(Instance::key);
        let ledger = self.pool.store_mut().peer_mut();
        let Some(key) =
            keys.into_iter().find(|key| ledger.ledger().states().of::<PrefixIndex>(*key).is_some())
        else {
            return;
        };
        let hashes = block_hashes(&body.prompt, model, None, INDEX_BLOCK, usize::MAX);
        let mut index = PrefixIndex::default();
        for server in 0..fleet.len() {
            let blocks = fleet.cached_tokens(server, request.work()) / INDEX_BLOCK;
            let cached = hashes.all().get(..blocks).unwrap_or(hashes.all());
            if !cached.is_empty() {
                index.add(server, cached, usize::MAX);
            }
        }
        ledger.replace_state(key, Box::new(index));
    }
}

/// Tokens in a block of the index of prompts.
const INDEX_BLOCK: usize = 64;

impl fmt::Debug for EnginePicker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EnginePicker").field("requests", &self.requests.len()).finish_non_exhaustive()
    }
}

/// The objective of requests with a limit, in the configuration of the variant that has limits.
const SHEDDABLE: &str = "sheddable";

/// The policy of a configuration, as the agent makes it.
fn policy(name: &str, config: &str) -> v1::Policy {
    let file = File { path: Path::new(name).into(), bytes: config.as_bytes().to_vec() };
    let options = Options {
        allow_experimental_plugins: true,
        default_pool: "default".to_owned(),
        emit_endpoint_scores: false,
        neutral_score_after: None,
        avoid_failing: Duration::from_millis(250),
        epp_rules: EppRules::default(),
        rules: None,
        file_limits: FileLimits::default(),
    };
    let plan = Plan::read(&[file], &options);
    let mut plan = plan.unwrap_or_else(|problems| panic!("the configuration of {name}: {problems}"));
    plan.pools.pop().unwrap().policy
}

/// The body of a request. Clients do not know how long the response will be, so none limits it.
fn write_body(request: &SimulatedRequest, body: &mut Vec<u8>) {
    body.clear();
    let model = request.adapter.as_deref().unwrap_or(MODEL);
    body.extend_from_slice(format!(r#"{{"model": "{model}", "stream": true, "prompt": ""#).as_bytes());
    request.write_prompt(&TEXTS, body);
    body.extend_from_slice(br#""}"#);
}

/// One request in a proxy.
#[derive(Debug)]
struct SimulatedProxy {
    now: Duration,
    session: Option<String>,
    /// The limit for the first token in milliseconds.
    limit: Option<String>,
    /// The request's body, until it is decided.
    body: Vec<u8>,
    destination: Option<SocketAddr>,
    is_refused: bool,
    /// The chunk of the response's body that has arrived.
    chunk: String,
}

impl Proxy for SimulatedProxy {
    fn now(&self) -> Result<Duration> {
        Ok(self.now)
    }

    fn request_headers(&self, _: HeaderList) -> Result<HeaderList> {
        let session = self.session.as_deref().map(|session| ("x-session-id", session));
        let all = [(":method", "POST"), (":path", PATH), ("content-type", "application/json")];
        let limit = self
            .limit
            .as_deref()
            .map(|limit| [("x-llm-d-slo-ttft-ms", limit), ("x-llm-d-inference-objective", SHEDDABLE)]);
        Ok(all.into_iter().chain(session).chain(limit.into_iter().flatten()).collect())
    }

    fn set_request_header(&mut self, name: &str, value: &str) -> Result<()> {
        if name == DESTINATION {
            self.destination = value.split(',').next().and_then(|first| first.parse().ok());
        }
        Ok(())
    }

    fn remove_request_header(&mut self, _: &str) -> Result<()> {
        Ok(())
    }

    fn request_body(&self, max_bytes: usize) -> Result<Cow<'_, [u8]>> {
        Ok(self.body[..max_bytes.min(self.body.len())].into())
    }

    fn request_chunk(&self) -> Result<Cow<'_, [u8]>> {
        Ok(self.body.as_slice().into())
    }

    fn replace_request_body(&mut self, _: &[u8]) -> Result<()> {
        Ok(())
    }

    fn metadata_namespace(&self, _: &str) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }

    fn metadata(&self, _: &str, _: &str) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }

    fn set_metadata(&mut self, _: &Metadata<'_>) -> Result<()> {
        Ok(())
    }

    fn picked_for(&self) -> Result<Option<Vec<u8>>> {
        Ok(None)
    }

    fn mark_picked(&mut self, _: &str) -> Result<()> {
        Ok(())
    }

    fn send_response(&mut self, status: u16, _: &[(&str, &str)], body: &[u8]) -> Result<()> {
        assert!(
            status == 429 && self.limit.is_some(),
            "the picker responded itself: {status} {}",
            body.escape_ascii()
        );
        self.is_refused = true;
        Ok(())
    }

    fn upstream_address(&self, _: Option<&Endpoint>) -> Result<Option<SocketAddr>> {
        Ok(self.destination)
    }

    fn attempts(&self) -> Option<u64> {
        Some(1)
    }

    fn response_details(&self) -> Result<Vec<u8>> {
        Ok(b"via_upstream".to_vec())
    }

    fn read_response_headers(&self, mut read: impl FnMut(&[u8], &[u8])) -> Result<()> {
        read(b":status", b"200");
        read(b"content-type", b"text/event-stream");
        Ok(())
    }

    fn read_response_trailers(&self, _: impl FnMut(&[u8], &[u8])) -> Result<()> {
        Ok(())
    }

    fn set_response_header(&mut self, _: &str, _: &str) -> Result<()> {
        Ok(())
    }

    fn remove_response_header(&mut self, _: &str) -> Result<()> {
        Ok(())
    }

    fn response_chunk(&self) -> Result<Cow<'_, [u8]>> {
        Ok(self.chunk.as_bytes().into())
    }

    fn replace_response_chunk(&mut self, _: &[u8]) -> Result<()> {
        Ok(())
    }
}

/// A proxy without metrics.
#[derive(Clone, Copy, Debug)]
struct NoMetrics;

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
