//! Every plugin type there is.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::{Error, Value, json};

use super::{Plugin, Roles};

/// Reads a plugin from its type and the text of its parameters, a JSON object.
pub fn read_plugin(r#type: &str, parameters: &str) -> Result<AnyPlugin, Error> {
    let parameters: Value = serde_json::from_str(parameters)?;
    serde_json::from_value(json!({"type": r#type, "parameters": parameters}))
}

/// Declares the types, one a line: the variant, the parameters' struct, the EPP's type name.
macro_rules! registry {
    ($($variant:ident = $name:literal,)*) => {
        /// A plugin of any type, read from `{type: …, parameters: {…}}`.
        #[derive(Clone, Debug, PartialEq, Deserialize)]
        #[serde(tag = "type", content = "parameters")]
        #[expect(missing_docs, reason = "each variant is documented at the plugin it holds")]
        pub enum AnyPlugin {
            $(#[serde(rename = $name)] $variant(super::$variant),)*
        }

        /// The type names, as a configuration writes them.
        pub const TYPES: &[&str] = &[$($name),*];

        impl AnyPlugin {
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
    ActiveRequestScorer = "active-request-scorer",
    AlwaysDisaggMultimodalDecider = "always-disagg-multimodal-decider",
    AlwaysDisaggPdDecider = "always-disagg-pd-decider",
    AnthropicParser = "anthropic-parser",
    ApproxPrefixCacheProducer = "approx-prefix-cache-producer",
    ByLabel = "by-label",
    ByLabelSelector = "by-label-selector",
    ConcurrencyDetector = "concurrency-detector",
    ContextLengthAware = "context-length-aware",
    CoreMetricsExtractor = "core-metrics-extractor",
    DataParallelProfileHandler = "data-parallel-profile-handler",
    DecodeFilter = "decode-filter",
    DisaggHeadersHandler = "disagg-headers-handler",
    DisaggProfileHandler = "disagg-profile-handler",
    EncodeFilter = "encode-filter",
    EndpointAttributeScorer = "endpoint-attribute-scorer",
    FileDiscovery = "file-discovery",
    HeaderLabelAffinityScorer = "header-label-affinity-scorer",
    HeaderProfileHandler = "header-profile-handler",
    InflightLoadProducer = "inflight-load-producer",
    KvCacheUtilizationScorer = "kv-cache-utilization-scorer",
    LabelSelectorFilter = "label-selector-filter",
    LoadAwareScorer = "load-aware-scorer",
    LoraAffinityScorer = "lora-affinity-scorer",
    MaxScorePicker = "max-score-picker",
    MetricsDataSource = "metrics-data-source",
    NoHitLruScorer = "no-hit-lru-scorer",
    OpenaiParser = "openai-parser",
    PassthroughParser = "passthrough-parser",
    PdProfileHandler = "pd-profile-handler",
    PrefillFilter = "prefill-filter",
    PrefillHeaderHandler = "prefill-header-handler",
    PrefixBasedPdDecider = "prefix-based-pd-decider",
    PrefixCacheAffinityFilter = "prefix-cache-affinity-filter",
    PrefixCacheScorer = "prefix-cache-scorer",
    ProbabilisticAdmitter = "probabilistic-admitter",
    QueueScorer = "queue-scorer",
    RandomPicker = "random-picker",
    RunningRequestsSizeScorer = "running-requests-size-scorer",
    SessionAffinityFilter = "session-affinity-filter",
    SessionAffinityScorer = "session-affinity-scorer",
    SessionIdProducer = "session-id-producer",
    SglanghttpParser = "sglanghttp-parser",
    SingleProfileHandler = "single-profile-handler",
    TokenLoadScorer = "token-load-scorer",
    TokenProducer = "token-producer",
    UtilizationDetector = "utilization-detector",
    UtilizationFilter = "utilization-filter",
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
            let plugin: AnyPlugin =
                serde_json::from_value(serde_json::json!({"type": name, "parameters": {}})).unwrap();
            assert_eq!(plugin.type_name(), *name);
        }
    }

    #[test]
    fn an_unknown_type_is_refused_with_the_list_of_those_there_are() {
        let error =
            serde_json::from_str::<AnyPlugin>(r#"{"type": "magic-scorer", "parameters": {}}"#).unwrap_err();
        let message = error.to_string();
        assert!(
            message.contains("magic-scorer") && TYPES.iter().all(|name| message.contains(name)),
            "{message}"
        );
    }

    #[test]
    fn an_unknown_parameter_is_refused() {
        for name in TYPES {
            let plugin = serde_json::json!({"type": name, "parameters": {"surely-not-a-parameter": 1}});
            assert!(serde_json::from_value::<AnyPlugin>(plugin).is_err(), "{name}");
        }
    }
}
