//! The metrics of one engine.

use super::spec::MetricSpec;

/// The metrics of one engine with the values of a reading. `None`: the engine does not report the value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Dialect {
    /// Requests in the queue.
    pub waiting: Option<MetricSpec>,
    /// Requests that the server processes.
    pub running: Option<MetricSpec>,
    /// Share of the KV cache in use, 0..=1. Its name depends on the release of the engine: the first of these metrics that a text has
    /// is read. Empty: the engine does not report it.
    pub kv_usage: Vec<MetricSpec>,
    /// LoRA adapters, in the labels of the series with the largest value.
    pub lora: Option<MetricSpec>,
    /// The KV cache's shape, in labels.
    pub cache_info: Option<CacheInfo>,
    /// Tokens per block, as a gauge.
    pub block_size: Option<MetricSpec>,
    /// Blocks in the cache, as a gauge.
    pub num_blocks: Option<MetricSpec>,
    /// A counter that decreases only when the server restarts.
    pub counter: Option<MetricSpec>,
    /// The label that distinguishes the engines of a data-parallel server.
    pub engine_label: Option<String>,
    /// Custom metrics, by attribute name.
    pub attributes: Vec<(String, MetricSpec)>,
}

/// A metric with the shape of the KV cache in its labels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CacheInfo {
    /// The metric.
    pub spec: MetricSpec,
    /// The label with the tokens per block.
    pub block_size_label: String,
    /// The label with the number of blocks.
    pub num_blocks_label: String,
}

/// How to read a server with one series for each engine.
///
/// The EPP reads only the first series, so a server with eight engines looks as busy as one of them. The default here is the sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MultiEngine {
    /// Waiting and running requests of all engines are added up, and KV usage is their mean.
    #[default]
    Sum,
    /// Only the first engine's series are read, as in the EPP.
    First,
}
