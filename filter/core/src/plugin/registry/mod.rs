//! Every plugin type there is.

mod instance;

use std::sync::Arc;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Error;

pub use instance::Instance;

use super::parameter::deserializer::Parameters;
use super::{Plugin, Roles};

/// Reads a plugin from the name of its type and the text of its parameters, a JSON object.
pub fn read_plugin(type_name: &str, parameters: &str) -> Result<AnyPlugin, Error> {
    AnyPlugin::read(type_name, Parameters(serde_json::from_str(parameters)?))
}

/// Declares the types, one a line: the variant, the parameters' struct, the EPP's type name.
macro_rules! registry {
    ($($variant:ident = $name:literal,)*) => {
        /// A plugin of any type.
        #[derive(Clone, Debug, PartialEq)]
        #[expect(missing_docs, reason = "each variant is documented at the plugin it holds")]
        pub enum AnyPlugin {
            $($variant(super::$variant),)*
        }

        /// The type names, as a configuration writes them.
        pub const TYPES: &[&str] = &[$($name),*];

        impl AnyPlugin {
            /// Reads a plugin of the type with this name.
            pub fn read<'de, D: Deserializer<'de>>(
                type_name: &str,
                parameters: D,
            ) -> Result<Self, D::Error> {
                match type_name {
                    $($name => super::$variant::deserialize(parameters).map(Self::$variant),)*
                    _ => Err(D::Error::custom(format_args!(
                        "unknown plugin type {type_name:?}; allowed: {}",
                        TYPES.join(", "),
                    ))),
                }
            }

            /// The EPP's name of the plugin's type.
            pub fn type_name(&self) -> &'static str {
                match self { $(Self::$variant(_) => $name,)* }
            }

            /// The roles it can play.
            pub fn roles(&self) -> Roles {
                match self { $(Self::$variant(plugin) => Arc::new(plugin.clone()).roles(),)* }
            }
        }

        impl core::ops::Deref for AnyPlugin {
            type Target = dyn Plugin;

            fn deref(&self) -> &Self::Target {
                match self { $(Self::$variant(plugin) => plugin,)* }
            }
        }

        $(impl From<super::$variant> for AnyPlugin {
            fn from(plugin: super::$variant) -> Self {
                Self::$variant(plugin)
            }
        })*
    };
}

registry! {
    ActiveRequestFilter = "active-request-filter",
    ActiveRequestScorer = "active-request-scorer",
    AgentIdentity = "agent-identity",
    AlwaysDisaggMultimodalDecider = "always-disagg-multimodal-decider",
    AlwaysDisaggPdDecider = "always-disagg-pd-decider",
    AnthropicParser = "anthropic-parser",
    ApproxPrefixCacheProducer = "approx-prefix-cache-producer",
    BurstPrefixCacheProducer = "burst-prefix-cache-producer",
    ConcurrencyDetector = "concurrency-detector",
    ContextLengthAware = "context-length-aware",
    DecodeFilter = "decode-filter",
    DisaggProfileHandler = "disagg-profile-handler",
    EdfOrderingPolicy = "edf-ordering-policy",
    EncodeFilter = "encode-filter",
    EndpointAttributeFilter = "endpoint-attribute-filter",
    EndpointAttributeScorer = "endpoint-attribute-scorer",
    ExpectedLatencyScorer = "expected-latency-scorer",
    FcfsOrderingPolicy = "fcfs-ordering-policy",
    GlobalStrictFairnessPolicy = "global-strict-fairness-policy",
    HeaderBasedTestingFilter = "header-based-testing-filter",
    HeaderLabelAffinityScorer = "header-label-affinity-scorer",
    HeaderProfileHandler = "header-profile-handler",
    InflightLoadProducer = "inflight-load-producer",
    KvCacheUtilizationScorer = "kv-cache-utilization-scorer",
    LabelSelectorFilter = "label-selector-filter",
    LatencyScorer = "latency-scorer",
    LatencySloAdmitter = "latency-slo-admitter",
    LegacyFilterTree = "legacy-filter-tree",
    LmetricScorer = "lmetric-scorer",
    LoadAwareScorer = "load-aware-scorer",
    LoraAffinityScorer = "lora-affinity-scorer",
    MaxSaturationDetector = "max-saturation-detector",
    MaxScorePicker = "max-score-picker",
    MmEmbeddingsCacheProducer = "mm-embeddings-cache-producer",
    MmEmbeddingsCacheScorer = "mm-embeddings-cache-scorer",
    NoHitLruScorer = "no-hit-lru-scorer",
    OpenaiParser = "openai-parser",
    P2pSourceProducer = "p2p-source-producer",
    PassthroughParser = "passthrough-parser",
    PrecisePrefixCacheProducer = "precise-prefix-cache-producer",
    PrecisePrefixCacheScorer = "precise-prefix-cache-scorer",
    PredictedLatencyProducer = "predicted-latency-producer",
    PrefillFilter = "prefill-filter",
    PrefixBasedPdDecider = "prefix-based-pd-decider",
    PrefixCacheAffinityFilter = "prefix-cache-affinity-filter",
    PrefixCacheScorer = "prefix-cache-scorer",
    PriorityHoldbackPolicy = "priority-holdback-policy",
    ProbabilisticAdmitter = "probabilistic-admitter",
    ProgramAwareFairness = "program-aware-fairness",
    QueueScorer = "queue-scorer",
    RandomPicker = "random-picker",
    RequestAttributeReporter = "request-attribute-reporter",
    RoundRobinFairnessPolicy = "round-robin-fairness-policy",
    RunningRequestsSizeScorer = "running-requests-size-scorer",
    ServedModelFilter = "served-model-filter",
    SessionAdmissionPolicy = "session-admission-policy",
    SessionAffinityFilter = "session-affinity-filter",
    SessionAffinityScorer = "session-affinity-scorer",
    SessionIdProducer = "session-id-producer",
    SglanghttpParser = "sglanghttp-parser",
    SingleProfileHandler = "single-profile-handler",
    SloDeadlineOrderingPolicy = "slo-deadline-ordering-policy",
    SloHeadroomTierFilter = "slo-headroom-tier-filter",
    SoftReflectiveCeilingPolicy = "soft-reflective-ceiling-policy",
    StaticUsageLimitPolicy = "static-usage-limit-policy",
    TokenLoadScorer = "token-load-scorer",
    TokenProducer = "token-producer",
    TopologyAffinityFilter = "topology-affinity-filter",
    TopologyAffinityScorer = "topology-affinity-scorer",
    TopologyExtractor = "topology-extractor",
    UtilizationDetector = "utilization-detector",
    UtilizationFilter = "utilization-filter",
    VertexaiParser = "vertexai-parser",
    VllmgrpcParser = "vllmgrpc-parser",
    VllmhttpParser = "vllmhttp-parser",
    WeightedRandomPicker = "weighted-random-picker",
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    #[test]
    fn every_type_is_read_with_its_default_parameters() {
        for name in TYPES {
            assert_eq!(read_plugin(name, "{}").unwrap().type_name(), *name);
        }
    }

    #[test]
    fn an_unknown_type_is_refused_with_the_list_of_those_there_are() {
        let message = read_plugin("magic-scorer", "{}").unwrap_err().to_string();
        assert!(message.starts_with(r#"unknown plugin type "magic-scorer"; allowed: "#), "{message}");
        assert!(TYPES.iter().all(|name| message.contains(name)), "{message}");
    }

    #[test]
    fn null_and_an_empty_choice_within_an_object_count_as_not_given() {
        let threshold = |value| {
            let threshold = format!(r#"{{"operator":"Equal"{value}}}"#);
            let algorithm = format!(r#"{{"type":"threshold","threshold":{threshold}}}"#);
            format!(r#"{{"attribute":"WaitingQueueSize","onMissing":"","algorithm":{algorithm}}}"#)
        };
        let null = r#"{"tokenProcessorConfig":{"blockSize":null,"hashSeed":null,"hashAlgorithm":null},
            "indexerConfig":{"kvCacheBackendConfigs":null,
                "kvBlockIndexConfig":{"redisConfig":null,"inMemoryConfig":{"size":null}}},
            "kvEventsConfig":{"topicFilter":null,"engineType":"","podDiscoveryConfig":{"socketPort":null}}}"#;
        for (name, parameters, same) in [
            ("endpoint-attribute-filter", threshold(r#","value":null"#), threshold("")),
            ("precise-prefix-cache-producer", null.to_owned(), "{}".to_owned()),
            (
                "session-affinity-scorer",
                r#"{"sessionIdConfig":{"sources":[{"header":"a","attribute":null}],"evictionTtlSeconds":null}}"#.to_owned(),
                r#"{"sessionIdConfig":{"sources":[{"header":"a"}]}}"#.to_owned(),
            ),
            ("topology-affinity-filter", r#"{"minAffinity":""}"#.to_owned(), "{}".to_owned()),
            ("served-model-filter", r#"{"onMissing":""}"#.to_owned(), "{}".to_owned()),
            ("burst-prefix-cache-producer", r#"{"balanceBy":""}"#.to_owned(), "{}".to_owned()),
            ("latency-scorer", r#"{"headroomSelectionStrategy":""}"#.to_owned(), "{}".to_owned()),
        ] {
            let read = |parameters: &str| read_plugin(name, parameters).map_err(|error| error.to_string());
            assert_eq!(read(&parameters), read(&same), "{name} {parameters}");
            assert!(read(&same).is_ok(), "{name}");
        }
        // As the EPP does.
        assert!(read_plugin("prefix-cache-affinity-filter", r#"{"ttftSource":""}"#).is_err());
    }

    #[test]
    fn parameters_that_are_unknown_or_not_an_object_are_refused() {
        for name in TYPES {
            for parameters in [r#"{"surely-not-a-parameter":1}"#, "[]", "7", ""] {
                assert!(read_plugin(name, parameters).is_err(), "{name} {parameters}");
            }
        }
    }
}
