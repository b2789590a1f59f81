//! The metrics of one engine.

use super::spec::MetricSpec;

/// Where one engine's text says what a reading holds. `None`: the engine does not say it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Dialect {
    /// Requests in the queue.
    pub waiting: Option<MetricSpec>,
    /// Requests being worked on.
    pub running: Option<MetricSpec>,
    /// Share of the KV cache in use, 0..=1. Releases of an engine name it differently: of these metrics, the first one in a
    /// text is read. Empty: the engine does not report it.
    pub kv_usage: Vec<MetricSpec>,
    /// LoRA adapters, in the labels of the series with the largest value.
    pub lora: Option<MetricSpec>,
    /// The KV cache's shape, in labels.
    pub cache_info: Option<CacheInfo>,
    /// Tokens per block, as a gauge.
    pub block_size: Option<MetricSpec>,
    /// Blocks in the cache, as a gauge.
    pub num_blocks: Option<MetricSpec>,
    /// A counter that goes back only when the server restarts.
    pub counter: Option<MetricSpec>,
    /// The label that tells the engines of one data-parallel server apart.
    pub engine_label: Option<String>,
    /// Other numbers, by the names they are to have.
    pub attributes: Vec<(String, MetricSpec)>,
}

/// A metric whose labels carry the shape of the KV cache.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CacheInfo {
    /// The metric.
    pub spec: MetricSpec,
    /// Its label with the tokens per block.
    pub block_size_label: String,
    /// Its label with the number of blocks.
    pub num_blocks_label: String,
}

/// How a server that shows one series per engine is read.
///
/// The EPP reads only the first series, so a server with eight engines looks as busy as one of them. We add
/// up by default; `First` is the EPP's way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MultiEngine {
    /// Waiting and running requests of all engines are added up, and KV usage is their mean.
    #[default]
    Sum,
    /// Only the first engine's series count.
    First,
}
