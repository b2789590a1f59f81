//! `core-metrics-extractor`: the names of the metrics that the agent reads, by engine.

use std::collections::HashSet;

use serde::Deserialize;

/// The parameters of `core-metrics-extractor`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifests::picker) struct CoreMetricsExtractor {
    /// Label in which an endpoint names its engine; empty: `llm-d.ai/engine-type`.
    pub(in crate::manifests::picker) engine_label_key: String,
    /// Engine of endpoints that name none; empty: their texts show it, and `vllm` under the EPP's rules.
    pub(in crate::manifests::picker) default_engine: String,
    /// Engines that are added to the built-in ones. An engine with a built-in name replaces the built-in one.
    pub(in crate::manifests::picker) engine_configs: Vec<EngineConfig>,
}

/// The metrics of one engine, each written `name` or `name{label=value,…}`. An empty one is not read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifests::picker) struct EngineConfig {
    /// The engine's name; not empty and not `default`.
    pub(in crate::manifests::picker) name: String,
    /// Number of waiting requests.
    pub(in crate::manifests::picker) queued_requests_spec: String,
    /// Number of running requests.
    pub(in crate::manifests::picker) running_requests_spec: String,
    /// Used fraction of the KV cache, 0..=1.
    #[serde(rename = "kvUsageSpec")]
    pub(in crate::manifests::picker) kv_usage_spec: String,
    /// LoRA adapters, in labels.
    pub(in crate::manifests::picker) lora_spec: String,
    /// Block size and number of blocks of the KV cache, in labels.
    pub(in crate::manifests::picker) cache_info_spec: String,
    /// Label of that metric with the tokens per block; empty: `block_size`.
    pub(in crate::manifests::picker) cache_block_size_label_name: String,
    /// Label of that metric with the number of blocks; empty: `num_gpu_blocks`.
    pub(in crate::manifests::picker) cache_num_blocks_label_name: String,
    /// Tokens per block, as a value.
    pub(in crate::manifests::picker) cache_block_size_spec: String,
    /// Number of blocks, as a value.
    pub(in crate::manifests::picker) cache_num_blocks_spec: String,
    /// Label over whose values series are added up; empty: the built-in engine's of the same name, if there
    /// is one. Not in the EPP.
    pub(in crate::manifests::picker) sum_over_label_name: String,
    /// Further numbers, for plugins that read them by name.
    pub(in crate::manifests::picker) custom_metrics: Vec<CustomMetric>,
}

/// A number that plugins read by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub(in crate::manifests::picker) struct CustomMetric {
    /// The name; not empty, and unique in its engine.
    pub(in crate::manifests::picker) attribute_key: String,
    /// The metric; not empty.
    pub(in crate::manifests::picker) metric_spec: String,
}

impl CoreMetricsExtractor {
    pub(in crate::manifests::picker) fn check(&self) -> Result<(), String> {
        let mut names = HashSet::new();
        for (index, engine) in self.engine_configs.iter().enumerate() {
            let at = format!("engineConfigs[{index}]");
            let name = engine.name.as_str();
            if name.is_empty() || name == "default" || !names.insert(name) {
                return Err(format!(
                    "{at}.name is {name:?}; allowed is a unique name other than \"default\""
                ));
            }
            engine.check(&at)?;
        }
        Ok(())
    }

    /// The names of all custom metrics.
    pub(in crate::manifests::picker) fn attributes(&self) -> impl Iterator<Item = &str> {
        let metrics = self.engine_configs.iter().flat_map(|engine| &engine.custom_metrics);
        metrics.map(|metric| metric.attribute_key.as_str())
    }
}

impl EngineConfig {
    fn check(&self, at: &str) -> Result<(), String> {
        let mut keys = HashSet::new();
        for (index, custom) in self.custom_metrics.iter().enumerate() {
            let at = format!("{at}.customMetrics[{index}]");
            let key = custom.attribute_key.as_str();
            if key.is_empty() || !keys.insert(key) {
                return Err(format!("{at}.attributeKey is {key:?}; allowed is a name unique in its engine"));
            }
            if custom.metric_spec.is_empty() {
                return Err(format!("{at}.metricSpec is empty; it must name a metric"));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn an_engine_is_read_with_all_its_metrics() {
        let extractor: CoreMetricsExtractor = serde_json::from_value(json!({
            "engineLabelKey": "engine", "defaultEngine": "llamacpp",
            "engineConfigs": [{
                "name": "llamacpp", "queuedRequestsSpec": "llamacpp:requests_deferred",
                "runningRequestsSpec": "llamacpp:requests_processing", "kvUsageSpec": "", "loraSpec": "",
                "cacheInfoSpec": "x", "cacheBlockSizeLabelName": "page", "cacheNumBlocksLabelName": "pages",
                "cacheBlockSizeSpec": "", "cacheNumBlocksSpec": "", "sumOverLabelName": "replica",
                "customMetrics": [{"attributeKey": "slots", "metricSpec": "llamacpp:n_busy_slots{a=b}"}],
            }],
        }))
        .unwrap();
        assert_eq!(extractor.check(), Ok(()));
        assert_eq!(extractor.attributes().collect::<Vec<_>>(), ["slots"]);
    }

    fn check(engines: &Value) -> Result<(), String> {
        serde_json::from_value::<CoreMetricsExtractor>(json!({"engineConfigs": engines})).unwrap().check()
    }

    #[test]
    fn engines_without_a_unique_name_are_refused() {
        for engines in [json!([{}]), json!([{"name": "default"}]), json!([{"name": "a"}, {"name": "a"}])] {
            assert!(check(&engines).unwrap_err().contains(".name is "), "{engines}");
        }
    }

    #[test]
    fn custom_metrics_without_a_unique_name_and_a_metric_are_refused() {
        let custom = |metrics: Value| check(&json!([{"name": "a", "customMetrics": metrics}])).unwrap_err();
        assert!(custom(json!([{"metricSpec": "m"}])).contains("attributeKey is \"\""));
        assert!(custom(json!([{"attributeKey": "k"}])).contains("metricSpec is empty"));
        let twice =
            json!([{"attributeKey": "k", "metricSpec": "m"}, {"attributeKey": "k", "metricSpec": "n"}]);
        let error = custom(twice);
        assert!(error.contains("engineConfigs[0].customMetrics[1].attributeKey"), "{error}");
    }
}
