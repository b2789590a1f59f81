//! A pool as people look at it: what `GET /v1/pools/{pool}` answers and `metrics-agent snapshot` prints.

use core::time::Duration;
use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Up to this age the EPP counts values as fresh in its gauges.
pub const FRESH: Duration = Duration::from_secs(2);

/// One pool at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// The pool's name.
    pub pool: String,
    /// All endpoints, in discovery's order.
    pub endpoints: Vec<EndpointStatus>,
    /// The proxies that report on the pool, by name.
    pub proxies: Vec<ProxyStatus>,
}

/// One endpoint. What its server did not say is absent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EndpointStatus {
    /// `namespace/name`.
    pub name: String,
    /// `ip:port`.
    pub address: String,
    /// What discovery says of it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub labels: BTreeMap<String, String>,
    /// In one word.
    pub state: State,
    /// Age of the values below; absent: never scraped.
    pub age_ms: Option<u64>,
    /// Requests waiting in the server's queue.
    pub waiting: Option<u64>,
    /// Requests the server works on.
    pub running: Option<u64>,
    /// Share of the KV cache in use, 0..=1.
    pub kv_usage: Option<f64>,
    /// The metric that `kv_usage` is from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kv_usage_metric: Option<String>,
    /// Its adapters.
    pub lora: Option<LoraStatus>,
    /// Tokens per KV-cache block.
    pub block_size: Option<u32>,
    /// Blocks in the KV cache.
    pub num_blocks: Option<u32>,
    /// Numbers that the operator has asked for.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub attributes: BTreeMap<String, f64>,
    /// What the proxies sent to it; absent: none reports.
    pub sent: Option<Sent>,
}

/// An endpoint's state in one word; the first that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// No candidate for requests.
    NotReady,
    /// Ready as far as known; a proxy avoids it, because a request failed there.
    Failing,
    /// Ready as far as known; never scraped.
    NoReading,
    /// Its values are older than [`FRESH`].
    Stale,
    /// Queue or KV cache at or above the threshold of the pool's `utilization-detector`.
    Saturated,
    /// None of these.
    Ready,
}

impl State {
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

/// Adapters of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs, reason = "as in `endpoint_picker::reading::Lora`")]
pub struct LoraStatus {
    pub running: Vec<String>,
    pub waiting: Vec<String>,
    pub max: u32,
}

/// What all reporting proxies together have sent to one endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Sent {
    /// How often it was chosen since the first report that the agent got.
    pub picks: u64,
    /// How often per second, over the last second; absent until two reports tell.
    pub picks_per_second: Option<f64>,
    /// Requests in flight.
    pub requests: u64,
    /// Their tokens.
    pub tokens: u64,
    /// Whether some proxy avoids it, because a request failed there.
    pub failing: bool,
}

/// One proxy, as of its last report.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ProxyStatus {
    /// Its `node.id`.
    pub proxy: String,
    /// Age of the report.
    pub age_ms: u64,
    /// Requests since the proxy was started.
    pub routed: u64,
    /// Requests left to Envoy's own balancing.
    pub abstained: u64,
    /// Requests answered by the filter, by HTTP status.
    pub rejected: BTreeMap<u32, u64>,
    /// What a shadow configuration would have done with them; absent while none is tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shadow: Option<ShadowCounts>,
}

/// How many requests a shadow configuration was tried on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShadowCounts {
    /// It would have treated them alike.
    pub agreed: u64,
    /// It would have done something else.
    pub disagreed: u64,
}

impl PoolStatus {
    /// What a shadow configuration would have done with the requests of all proxies that try it; `None` when none does.
    pub fn shadow(&self) -> Option<ShadowCounts> {
        let tried = self.proxies.iter().filter_map(|proxy| proxy.shadow);
        tried.reduce(|sum, counts| ShadowCounts {
            agreed: sum.agreed.saturating_add(counts.agreed),
            disagreed: sum.disagreed.saturating_add(counts.disagreed),
        })
    }
}
