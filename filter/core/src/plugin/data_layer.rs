//! The EPP's data-layer plugins: how readings and endpoints come in. They have no part in decisions; the agent
//! does what their parameters say.

use core::time::Duration;

use crate::plugin::Plugin;
use crate::plugin::parameter::allow;
use hashbrown::HashSet;
use serde::Deserialize;

/// `metrics-data-source`: how servers are scraped.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct MetricsDataSource {
    /// `http` or `https`.
    pub scheme: Scheme,
    /// Path of the metrics text; begins with `/`.
    pub path: String,
    /// Port to scrape, 1..=65535; the endpoint's own if not given.
    pub port: Option<u32>,
    /// Takes any server certificate.
    pub insecure_skip_verify: bool,
    /// File of the certificates to trust, PEM; empty: none of one's own.
    pub ca_cert_path: String,
    /// File of the certificate to show, PEM; empty: none.
    pub client_cert_path: String,
    /// File of its key, PEM; given with the certificate.
    pub client_key_path: String,
    /// Time between scrapes, above 0; the agent's own if not given.
    #[serde(deserialize_with = "interval")]
    pub interval: Option<Duration>,
}

/// How the metrics text is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scheme {
    /// In plain text.
    #[default]
    Http,
    /// Over TLS.
    Https,
}

impl Default for MetricsDataSource {
    fn default() -> Self {
        Self {
            scheme: Scheme::Http,
            path: "/metrics".to_owned(),
            port: None,
            insecure_skip_verify: true,
            ca_cert_path: String::new(),
            client_cert_path: String::new(),
            client_key_path: String::new(),
            interval: None,
        }
    }
}

impl Plugin for MetricsDataSource {
    fn check(&self) -> Result<(), String> {
        allow(self.path.starts_with('/'), "path", format_args!("{:?}", self.path), "what begins with /")?;
        let port = self.port.unwrap_or(1);
        allow((1..=65_535).contains(&port), "port", port, "1 to 65535")?;
        if self.client_cert_path.is_empty() != self.client_key_path.is_empty() {
            return Err("clientCertPath and clientKeyPath are given together or not at all".to_owned());
        }
        let interval = self.interval.unwrap_or(Duration::MAX);
        allow(!interval.is_zero(), "interval", "0", "above 0")
    }
}

/// An empty interval is none.
fn interval<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
    let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
    if text.is_empty() {
        return Ok(None);
    }
    crate::duration::deserialize(serde::de::value::StrDeserializer::new(&text)).map(Some)
}

/// `core-metrics-extractor`: what engines call the metrics that are read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct CoreMetricsExtractor {
    /// Label in which an endpoint names its engine; empty: `llm-d.ai/engine-type`.
    pub engine_label_key: String,
    /// Engine of endpoints that name none; empty: `vllm`.
    pub default_engine: String,
    /// Engines beyond, or in place of, those built in.
    pub engine_configs: Vec<EngineConfig>,
}

/// Where one engine says what; an empty metric is not read. Metrics are written `name` or `name{label=value,…}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct EngineConfig {
    /// The engine's name; not empty and not `default`.
    pub name: String,
    /// Requests waiting.
    pub queued_requests_spec: String,
    /// Requests running.
    pub running_requests_spec: String,
    /// Share of the KV cache in use, 0..=1.
    #[serde(rename = "kvUsageSpec")]
    pub kv_usage_spec: String,
    /// LoRA adapters, in labels.
    pub lora_spec: String,
    /// The KV cache's shape, in labels.
    pub cache_info_spec: String,
    /// Its label with the tokens per block; empty: `block_size`.
    pub cache_block_size_label_name: String,
    /// Its label with the number of blocks; empty: `num_gpu_blocks`.
    pub cache_num_blocks_label_name: String,
    /// Tokens per block, as a value.
    pub cache_block_size_spec: String,
    /// Number of blocks, as a value.
    pub cache_num_blocks_spec: String,
    /// Further numbers, for plugins that read them by name.
    pub custom_metrics: Vec<CustomMetric>,
}

/// A number that plugins read by name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct CustomMetric {
    /// The name; not empty, and unique in its engine.
    pub attribute_key: String,
    /// The metric; not empty.
    pub metric_spec: String,
}

impl Plugin for CoreMetricsExtractor {
    fn check(&self) -> Result<(), String> {
        let mut names = HashSet::new();
        for (index, engine) in self.engine_configs.iter().enumerate() {
            let at = format!("engineConfigs[{index}]");
            let name = engine.name.as_str();
            let is_allowed = !name.is_empty() && name != "default" && names.insert(name);
            allow(
                is_allowed,
                &format!("{at}.name"),
                format_args!("{name:?}"),
                "a name not used yet, not \"default\"",
            )?;
            engine.check(&at)?;
        }
        Ok(())
    }
}

impl EngineConfig {
    fn check(&self, at: &str) -> Result<(), String> {
        let mut keys = HashSet::new();
        for (index, custom) in self.custom_metrics.iter().enumerate() {
            let at = format!("{at}.customMetrics[{index}]");
            let key = custom.attribute_key.as_str();
            let is_allowed = !key.is_empty() && keys.insert(key);
            allow(is_allowed, &format!("{at}.attributeKey"), format_args!("{key:?}"), "a name not used yet")?;
            allow(!custom.metric_spec.is_empty(), &format!("{at}.metricSpec"), "empty", "a metric")?;
        }
        Ok(())
    }
}

/// `file-discovery`: endpoints from a file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct FileDiscovery {
    /// The file; needed.
    pub path: String,
    /// Whether it is read again when it changes.
    pub watch_file: bool,
}

impl Plugin for FileDiscovery {
    fn check(&self) -> Result<(), String> {
        if self.path.is_empty() {
            Err("path is empty; the endpoints' file is needed".to_owned())
        } else {
            Ok(())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;
    use serde_json::json;

    fn source(parameters: serde_json::Value) -> MetricsDataSource {
        serde_json::from_value(parameters).unwrap()
    }

    #[test]
    fn a_data_source_is_read_with_all_its_parameters() {
        let source = source(json!({
            "scheme": "https", "path": "/m", "port": 9400, "insecureSkipVerify": false, "caCertPath": "ca",
            "clientCertPath": "c", "clientKeyPath": "k", "interval": "1s",
        }));
        assert_eq!(source.check(), Ok(()));
        assert_eq!((source.scheme, source.port), (Scheme::Https, Some(9400)));
        assert_eq!(source.interval, Some(Duration::from_secs(1)));
        assert_eq!(
            serde_json::from_value::<MetricsDataSource>(json!({"interval": ""})).unwrap().interval,
            None
        );
    }

    #[test]
    fn a_data_source_out_of_range_is_refused() {
        for parameters in [
            json!({"port": 0}),
            json!({"port": 65_536}),
            json!({"path": "metrics"}),
            json!({"clientCertPath": "c"}),
            json!({"interval": "0s"}),
        ] {
            assert!(source(parameters.clone()).check().is_err(), "{parameters}");
        }
        assert!(serde_json::from_value::<MetricsDataSource>(json!({"scheme": "ftp"})).is_err());
    }

    #[test]
    fn an_engine_of_ones_own_is_read_with_its_metrics() {
        let extractor: CoreMetricsExtractor = serde_json::from_value(json!({
            "engineLabelKey": "engine", "defaultEngine": "llamacpp",
            "engineConfigs": [{
                "name": "llamacpp", "queuedRequestsSpec": "llamacpp:requests_deferred",
                "runningRequestsSpec": "llamacpp:requests_processing", "kvUsageSpec": "", "loraSpec": "",
                "cacheInfoSpec": "x", "cacheBlockSizeLabelName": "page", "cacheNumBlocksLabelName": "pages",
                "cacheBlockSizeSpec": "", "cacheNumBlocksSpec": "",
                "customMetrics": [{"attributeKey": "slots", "metricSpec": "llamacpp:n_busy_slots{a=b}"}],
            }],
        }))
        .unwrap();
        assert_eq!(extractor.check(), Ok(()));
        assert_eq!(extractor.engine_configs[0].custom_metrics[0].attribute_key, "slots");
    }

    #[test]
    fn engines_and_metrics_without_a_name_of_their_own_are_refused() {
        let check = |engines: serde_json::Value| {
            serde_json::from_value::<CoreMetricsExtractor>(json!({"engineConfigs": engines})).unwrap().check()
        };
        assert!(check(json!([{}])).is_err());
        assert!(check(json!([{"name": "default"}])).is_err());
        assert!(check(json!([{"name": "a"}, {"name": "a"}])).is_err());
        let custom = |metrics: serde_json::Value| check(json!([{"name": "a", "customMetrics": metrics}]));
        assert!(custom(json!([{"metricSpec": "m"}])).is_err());
        assert!(custom(json!([{"attributeKey": "k"}])).is_err());
        let twice =
            json!([{"attributeKey": "k", "metricSpec": "m"}, {"attributeKey": "k", "metricSpec": "n"}]);
        let error = custom(twice).unwrap_err();
        assert!(error.contains("engineConfigs[0].customMetrics[1].attributeKey"), "{error}");
    }

    #[test]
    fn discovery_needs_a_file() {
        assert!(FileDiscovery::default().check().is_err());
    }
}
