//! The parameters that the EPP has and the agent or nothing needs here: they are checked.

use serde::Deserialize;
use serde::de::IgnoredAny;

use crate::request::cached_prompt::TierWeights;

/// `tokenProcessorConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct TokenProcessor {
    /// Accepted, without effect: matches are counted in blocks of the approximate rules.
    block_size_tokens: i64,
    /// The former name, which counts where the current one is 0.
    block_size: i64,
    #[serde(rename = "hashSeed")]
    _hash_seed: String,
    #[serde(rename = "hashAlgorithm")]
    _hash_algorithm: HashAlgorithm,
}

impl TokenProcessor {
    /// The size of blocks, if one is given.
    pub(super) fn size(&self) -> Option<i64> {
        [self.block_size_tokens, self.block_size].into_iter().find(|&size| size != 0)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum HashAlgorithm {
    #[default]
    #[serde(alias = "")]
    CborFnv,
    Xxh64,
}

/// `indexerConfig`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Indexer {
    pub(super) kv_cache_backend_configs: Backends,
    pub(super) tokenizers_pool_config: Given,
    #[serde(rename = "kvBlockIndexConfig")]
    _kv_block_index_config: BlockIndex,
}

/// `kvBlockIndexConfig`: only names and types of its fields are checked, because the index is in the proxy.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct BlockIndex {
    in_memory_config: InMemoryIndex,
    redis_config: ServerIndex,
    valkey_config: ServerIndex,
    cost_aware_memory_config: BoundedIndex,
    enable_metrics: bool,
    /// In nanoseconds.
    metrics_logging_interval: i64,
}

/// An index of a number of keys.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct InMemoryIndex {
    size: i64,
    pod_cache_size: i64,
}

/// An index in a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct ServerIndex {
    address: String,
    backend_type: String,
    #[serde(rename = "enableRDMA")]
    enable_rdma: bool,
}

/// An index of a size in bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct BoundedIndex {
    size: String,
    num_counters: i64,
}

/// `kvCacheBackendConfigs`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(from = "Option<Vec<Backend>>")]
pub(super) struct Backends {
    pub(super) declared: Vec<Backend>,
    pub(super) weights: TierWeights,
}

impl From<Option<Vec<Backend>>> for Backends {
    /// A tier that a given list leaves out weighs 1, as in the EPP. All tiers but graphics and main memory
    /// are one here, so the last name of another tier counts.
    fn from(declared: Option<Vec<Backend>>) -> Self {
        let Some(declared) = declared else {
            return Self { declared: Vec::new(), weights: TierWeights([1.0, 0.8, 1.0]) };
        };
        let [mut gpu, mut cpu, mut other] = [1.0; 3];
        for Backend { name, weight } in &declared {
            *match name.as_str() {
                "gpu" => &mut gpu,
                "cpu" => &mut cpu,
                _ => &mut other,
            } = *weight;
        }
        Self { declared, weights: TierWeights([gpu, cpu, other]) }
    }
}

impl Default for Backends {
    fn default() -> Self {
        None.into()
    }
}

/// One of `kvCacheBackendConfigs`: the weight of a tier.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(super) struct Backend {
    pub(super) name: String,
    pub(super) weight: f64,
}

/// `kvEventsConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct KvEvents {
    pub(super) zmq_endpoint: String,
    #[serde(rename = "engineType")]
    _engine_type: EngineType,
    #[serde(rename = "topicFilter")]
    _topic_filter: String,
    #[serde(rename = "concurrency")]
    _concurrency: i64,
    #[serde(rename = "discoverPods")]
    _discover_pods: bool,
    #[serde(rename = "podDiscoveryConfig")]
    _pod_discovery_config: PodDiscovery,
}

/// `podDiscoveryConfig`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct PodDiscovery {
    pod_label_selector: String,
    pod_namespace: String,
    socket_port: i64,
    replay_socket_port: i64,
    data_parallel_size: i64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum EngineType {
    #[default]
    #[serde(alias = "")]
    Vllm,
    Sglang,
}

/// Whether a field was given, whatever its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Given(pub(super) bool);

impl<'de> Deserialize<'de> for Given {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Option::<IgnoredAny>::deserialize(deserializer).map(|value| Self(value.is_some()))
    }
}
