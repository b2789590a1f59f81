//! The newest metrics of a model server.

use core::time::Duration;
use std::sync::Arc;

/// Name of the attribute with the share of time in which an endpoint's busiest GPU computes: 0..=1, and
/// absent unless the agent reads it from a DCGM exporter.
pub const GPU_UTILIZATION: &str = "GPUUtilization/dcgm-extractor";

/// Name of the list of models that a server serves, by which plugins and the agent refer to it.
pub const MODELS: &str = "/v1/models/models-data-extractor";

/// A reading that is taken less than this after the last one is the same, with its age rounded otherwise.
/// Readings are taken every 50 ms or less often.
pub const SAME_READING: Duration = Duration::from_millis(25);

/// The values scraped from one endpoint. `None`: not reported.
///
/// A failed scrape leaves the values as they were; [`Reading::updated`] is their time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reading {
    /// Whether discovery or the agent's probes consider the endpoint able to serve.
    pub ready: bool,
    /// When the values were taken, on the shell's clock. `None`: never scraped.
    pub updated: Option<Duration>,
    /// Requests waiting in the server's queue.
    pub waiting: Option<u64>,
    /// Requests the server is working on.
    pub running: Option<u64>,
    /// Share of the KV cache in use. Servers report 0..=1; other finite values are passed on as they came.
    pub kv_usage: Option<f64>,
    /// The server's LoRA adapters, if it serves any.
    pub lora: Option<Lora>,
    /// Tokens per KV-cache block.
    pub block_size: Option<u32>,
    /// Blocks in the server's KV cache.
    pub num_blocks: Option<u32>,
    /// Tokens that the server's KV cache holds, where it reports them. Of a model with several kinds of
    /// attention, blocks times block size are not the tokens.
    pub cache_tokens: Option<u64>,
    /// Age mark of the server's caches, since the Unix epoch: when its process started, or when it came back.
    /// `None`: unknown.
    pub cached_since: Option<Duration>,
    /// Custom metrics, by attribute name.
    pub attributes: Vec<(String, f64)>,
    /// The models that the server lists. `None`: not known.
    pub models: Option<Arc<[ServedModel]>>,
}

/// A model of a server's list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServedModel {
    /// Its name in requests.
    pub id: String,
    /// Whether it is an adapter of another model.
    pub is_adapter: bool,
}

impl Reading {
    /// The value of an attribute; `None` if not reported.
    pub fn attribute(&self, name: &str) -> Option<f64> {
        self.attributes.iter().find(|(known, _)| known == name).map(|&(_, value)| value)
    }

    /// Tokens that the server's KV cache holds: as it reports them, else blocks times block size. `None`: not
    /// known.
    pub fn kv_tokens(&self) -> Option<u64> {
        let of_blocks = || Some(u64::from(self.num_blocks?) * u64::from(self.block_size?));
        self.cache_tokens.or_else(of_blocks).filter(|&tokens| tokens > 0)
    }

    /// How long ago the values were taken; `None` if never.
    pub fn age(&self, now: Duration) -> Option<Duration> {
        self.updated.map(|at| now.saturating_sub(at))
    }
}

/// LoRA adapters of one server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lora {
    /// Adapters loaded for requests that run.
    pub running: Vec<String>,
    /// Adapters that waiting requests need.
    pub waiting: Vec<String>,
    /// How many adapters fit at the same time.
    pub max: u32,
}
