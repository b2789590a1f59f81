//! The status of a pool: the JSON of `GET /v1/pools/{pool}`, which `metrics-agent snapshot` prints as a
//! table.

use core::time::Duration;
use std::collections::BTreeMap;

use endpoint_picker_wire::figures::Figures;
use endpoint_picker_wire::statistics::Statistic;
use serde::{Deserialize, Serialize};

use crate::counts;
use crate::predictions::CachePredictions;
use crate::queues::QueueReport;
use crate::queues::status::QueueStatus;
use crate::unseen_queue::UnseenQueue;

/// Up to this age the EPP counts values as fresh in its gauges.
pub const FRESH: Duration = Duration::from_secs(2);

/// The status of a pool at one time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// The pool's name.
    pub pool: String,
    /// Why the filter rejects every request; absent: it does not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refusal: Option<String>,
    /// Its servers of gRPC; absent: no parser reads calls of gRPC.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grpc: Option<GrpcStatus>,
    /// All endpoints, in the order of discovery.
    pub endpoints: Vec<EndpointStatus>,
    /// Servers whose host name was not resolved by its last lookup; absent: there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unresolved: Vec<UnresolvedStatus>,
    /// The proxies that report on the pool, by name.
    pub proxies: Vec<ProxyStatus>,
    /// Pools that proxies have asked this agent for lately, and that it does not have.
    #[serde(default)]
    pub unknown_pools: Vec<UnknownPool>,
    /// Read from a filter's snapshot, which has neither proxies nor unknown pools.
    #[serde(skip)]
    pub is_of_snapshot: bool,
    /// Traffic of all proxies to the pool lately; absent: no proxy reports, or the agent is older.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic: Option<PoolTraffic>,
    /// How far behind the proxies and the agent are with shared changes; absent: none are shared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sharing: Option<SharingStatus>,
    /// The proxies' queues; absent: no proxy has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub queue: Option<QueueStatus>,
}

/// A pool whose clients call methods of gRPC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GrpcStatus {
    /// The type of the parser that reads the calls.
    pub parser: String,
    /// Whether the pool's rules decide by metrics of its servers.
    pub reads_metrics: bool,
}

/// Traffic of all reporting proxies to a pool lately: requests in the last 5 to 10 s, responses and prompts
/// in the last 30 to 60 s.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolTraffic {
    /// Requests per second, as `<statistic>_per_second`; null until a proxy has reported twice.
    #[serde(flatten, with = "counts")]
    pub rates: Figures<f64>,
    /// Time from the choice of the endpoint to the first byte of responses that are streams of tokens;
    /// absent: there were none.
    pub first_token_ms: Option<ResponseTimes>,
    /// The share of the prompts' blocks that their endpoint had been sent before, 0..=1; absent: there were
    /// no prompts.
    pub prefix_hits: Option<f64>,
}

/// Percentiles of response times, in milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "percentiles by their names")]
pub struct ResponseTimes {
    pub p50: f64,
    pub p95: f64,
}

/// Servers whose host name was not resolved by its last lookup.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnresolvedStatus {
    /// `namespace/name` of the servers.
    pub name: String,
    /// The host name.
    pub host: String,
    /// Addresses of the last successful lookup, which stay in use; 0: the name was never resolved.
    pub addresses: usize,
    /// Whether name servers deny the name again and again: its addresses serve only while no other endpoint
    /// is ready.
    #[serde(default)]
    pub denied: bool,
    /// The reason.
    pub problem: String,
}

/// How far behind the proxies and the agent are with shared changes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharingStatus {
    /// The proxies that share changes through this agent, by name.
    pub proxies: Vec<SharingProxyStatus>,
    /// The agent, with a store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreStatus>,
}

/// How far behind one proxy is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharingProxyStatus {
    /// Its `node.id`.
    pub proxy: String,
    /// Messages with changes of others that it has not read.
    pub unread: u64,
    /// The time for which the oldest of them has waited.
    pub behind_ms: u64,
    /// Messages that were dropped before it read them.
    pub missed: u64,
}

/// How far behind its store the agent is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreStatus {
    /// Whether changes are exchanged with the store.
    pub connected: bool,
    /// The time for which messages of other agents may have waited to be read.
    pub read_behind_ms: u64,
    /// Messages of its proxies that the store has not taken.
    pub unwritten: usize,
    /// The time for which the oldest of them has waited.
    pub write_behind_ms: u64,
}

/// The status of one endpoint. Values that its server does not report are absent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndpointStatus {
    /// `namespace/name`.
    pub name: String,
    /// `ip:port`.
    pub address: String,
    /// The endpoint's labels from discovery.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// The state.
    pub state: EndpointState,
    /// Why it is in this state; absent for a ready endpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The time for which it has been in this state, since the agent's start at most.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since_ms: Option<u64>,
    /// Age of the values below; absent: never scraped.
    pub age_ms: Option<u64>,
    /// The engine whose metrics are read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub engine: Option<String>,
    /// Requests waiting in the server's queue.
    pub waiting: Option<u64>,
    /// Requests that the server processes.
    pub running: Option<u64>,
    /// Absent: a request has waited there, or the server has had little work.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unseen_queue: Option<UnseenQueue>,
    /// Share of the KV cache in use, 0..=1.
    pub kv_usage: Option<f64>,
    /// The metric of `kv_usage`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_usage_metric: Option<String>,
    /// LoRA adapters.
    pub lora: Option<LoraStatus>,
    /// Tokens per KV-cache block.
    pub block_size: Option<u32>,
    /// Blocks in the KV cache.
    pub num_blocks: Option<u32>,
    /// Tokens that the KV cache holds, where the server reports them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_tokens: Option<u64>,
    /// Values of the operator's custom metrics.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, f64>,
    /// Traffic of all proxies to the endpoint; absent: no proxy reports.
    pub sent: Option<TrafficStatus>,
    /// The contents of its KV caches; absent: their events are not followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_events: Option<KvEventsStatus>,
}

/// The contents of a server's KV caches, by their events.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KvEventsStatus {
    /// The worst state of its caches.
    pub state: StreamState,
    /// Why it is in this state, if that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// Why the cached prefixes of prompts are not known by their text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text_problem: Option<String>,
    /// The server's caches: one, or one for each data-parallel rank.
    pub caches: usize,
    /// Age of the last message; absent: there was none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_ms: Option<u64>,
    /// Cached blocks.
    pub blocks: u64,
    /// Blocks among them whose parent is not known.
    pub orphans: u64,
    /// Cached tokens by tier: `gpu`, `cpu`, `storage`; a tier without any is absent.
    pub tokens: BTreeMap<String, u64>,
}

/// The state of the events of one cache, or of the worst of several.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamState {
    /// Not connected.
    #[default]
    Disconnected,
    /// Messages were lost, or were published before the agent connected: the cache has blocks that are not
    /// known.
    Partial,
    /// All that the cache has is known.
    Complete,
}

impl StreamState {
    /// All states, the worst first.
    pub const ALL: [Self; 3] = [Self::Disconnected, Self::Partial, Self::Complete];

    /// As in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Disconnected => "disconnected",
            Self::Partial => "partial",
            Self::Complete => "complete",
        }
    }
}

/// The state of an endpoint: the first that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndpointState {
    /// Not a candidate for requests.
    NotReady,
    /// A proxy avoids the endpoint, because a request failed there.
    Failing,
    /// Never scraped.
    NoReading,
    /// Its values are older than [`FRESH`].
    Stale,
    /// Queue or KV cache at or above the threshold of the pool's `utilization-detector`.
    Saturated,
    /// Ready, with current values.
    Ready,
}

impl EndpointState {
    /// All states, the worst first.
    pub const ALL: [Self; 6] =
        [Self::NotReady, Self::Failing, Self::NoReading, Self::Stale, Self::Saturated, Self::Ready];

    /// As in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::NotReady => "not_ready",
            Self::Failing => "failing",
            Self::NoReading => "no_reading",
            Self::Stale => "stale",
            Self::Saturated => "saturated",
            Self::Ready => "ready",
        }
    }
}

/// LoRA adapters of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "as in `endpoint_picker::pool::reading::Lora`")]
pub struct LoraStatus {
    pub running: Vec<String>,
    pub waiting: Vec<String>,
    pub max: u32,
}

/// Traffic of all reporting proxies to one endpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TrafficStatus {
    /// Picks since the first report that the agent received.
    pub picks: u64,
    /// Picks per second over the last second; absent until there are two reports.
    pub picks_per_second: Option<f64>,
    /// Requests in flight.
    pub requests: u64,
    /// Tokens of the requests in flight.
    pub tokens: u64,
    /// Whether a proxy avoids the endpoint, because a request failed there.
    pub failing: bool,
    /// Failed requests per second, in the last 30 to 60 s; absent until a proxy has reported twice.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errors_per_second: Option<f64>,
    /// Time from the choice of the endpoint to the first byte of its responses' bodies, in the last 30 to 60
    /// s; absent: there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_byte_ms: Option<ResponseTimes>,
    /// Predictions of cached tokens since the first report that the agent received.
    #[serde(flatten)]
    pub predictions: CachePredictions,
    /// Cached tokens over the predicted ones in the last 30 to 60 s; absent: there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_of_predicted: Option<f64>,
    /// Predictions by the events of its KV cache in the last 30 to 60 s; absent: there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predictions_by_events: Option<PredictionQuality>,
    /// Predictions by the prompts that it was sent, in the same time; absent: there were none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub predictions_by_prompts: Option<PredictionQuality>,
}

/// The quality of predicted cached tokens, of responses that report their cached tokens.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PredictionQuality {
    /// Responses.
    pub responses: u64,
    /// Median of the difference between predicted and cached tokens, 0..=4096.
    pub median_error_tokens: f64,
    /// The share of responses that are off by more than a block, 0..=1.
    pub wrong: f64,
}

/// One proxy, as of its last report.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProxyStatus {
    /// Its `node.id`.
    pub proxy: String,
    /// Age of the report.
    pub age_ms: u64,
    /// The counts since the proxy started, by the names of the table of statistics. Objects of parts that it
    /// does not report are absent.
    #[serde(flatten, with = "counts")]
    pub counts: Figures<u64>,
    /// The filter's version; absent: an older filter does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The filter's form; absent: an older filter does not report it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub form: Option<FilterForm>,
    /// Its queue, for metrics; absent: it has none.
    #[serde(skip)]
    pub queue: Option<QueueReport>,
}

/// The form in which the filter runs in a proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FilterForm {
    /// A WebAssembly module.
    Wasm,
    /// A native module.
    Native,
}

impl FilterForm {
    /// As in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Wasm => "wasm",
            Self::Native => "native",
        }
    }
}

impl PoolStatus {
    /// The count of all proxies; `None`: none reports it.
    pub fn total(&self, statistic: &'static Statistic) -> Option<u64> {
        let counts = self.proxies.iter().filter_map(|proxy| proxy.counts.total(statistic));
        counts.reduce(u64::saturating_add)
    }
}

/// The refused objects and files, the first ones with their reasons.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct RefusedObjects {
    /// All of them.
    pub count: usize,
    /// At most 200.
    pub objects: Vec<RefusedObject>,
}

/// A refused object or file.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RefusedObject {
    /// Kind, namespace and name, or the path.
    pub object: String,
    /// At least one.
    pub reasons: Vec<String>,
    /// Whether an earlier version is in force instead.
    pub earlier_in_force: bool,
}

/// A pool that proxies ask for and the agent does not have.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownPool {
    /// The name that they ask for.
    pub pool: String,
    /// Requests for it since the agent was started.
    pub requests: u64,
    /// Age of the last one.
    pub age_ms: u64,
}
