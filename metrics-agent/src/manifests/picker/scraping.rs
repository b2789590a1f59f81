//! The agent's own plugins: where metrics are found, what they are called, and where endpoints are listed.

use core::time::Duration;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::sync::Arc;

use deserr::Deserr;
use hyper::Uri;

use crate::dialect::{CacheInfo, Dialect, Dialects, MetricSpec};
use crate::manifests::fields::Port;
use crate::manifests::problem::{Faults, quoted};
use crate::scrape::MIN_INTERVAL;

/// How a configuration wants the endpoints of its pools scraped. `None`: as the agent's flags say.
#[derive(Clone, Debug)]
pub(in crate::manifests) struct Scraping {
    pub(in crate::manifests) path: Option<Uri>,
    pub(in crate::manifests) port: Option<NonZeroU16>,
    pub(in crate::manifests) interval: Option<Duration>,
    pub(in crate::manifests) dialects: Arc<Dialects>,
}

impl Default for Scraping {
    fn default() -> Self {
        Self { path: None, port: None, interval: None, dialects: Arc::new(Dialects::built_in()) }
    }
}

/// `metrics-data-source`
#[derive(Clone, Debug, Deserr)]
#[deserr(error = Faults, rename_all = camelCase, deny_unknown_fields)]
pub(super) struct MetricsDataSource {
    #[deserr(default, rename = "scheme")]
    _scheme: Option<Scheme>,
    #[deserr(default)]
    pub(super) path: Option<MetricsPath>,
    #[deserr(default)]
    pub(super) port: Option<Port>,
    /// Without meaning over plain HTTP.
    #[deserr(default, rename = "insecureSkipVerify")]
    _insecure_skip_verify: bool,
    #[deserr(default, rename = "caCertPath")]
    _ca_cert_path: NoCertificate,
    #[deserr(default, rename = "clientCertPath")]
    _client_cert_path: NoCertificate,
    #[deserr(default, rename = "clientKeyPath")]
    _client_key_path: NoCertificate,
    #[deserr(default)]
    pub(super) interval: Option<Interval>,
}

#[derive(Clone, Copy, Debug, Deserr)]
#[deserr(error = Faults, rename_all = lowercase)]
enum Scheme {
    Http,
}

#[derive(Clone, Debug, Deserr)]
#[deserr(error = Faults, try_from(&String) = Self::new -> String)]
pub(super) struct MetricsPath(pub(super) Uri);

impl MetricsPath {
    fn new(text: &str) -> Result<Self, String> {
        let rooted = if text.starts_with('/') { text.to_owned() } else { format!("/{text}") };
        let uri = rooted.parse::<Uri>().ok().filter(|uri| uri.host().is_none());
        uri.map(Self)
            .ok_or_else(|| format!("{} is no URL path; allowed is one such as /metrics", quoted(text)))
    }
}

#[derive(Clone, Debug, Default, Deserr)]
#[deserr(error = Faults, try_from(&String) = Self::new -> String)]
struct NoCertificate;

impl NoCertificate {
    fn new(path: &str) -> Result<Self, String> {
        if path.is_empty() {
            return Ok(Self);
        }
        Err(format!(
            "{} asks for TLS, which the agent does not speak to model servers; leave it out",
            quoted(path)
        ))
    }
}

#[derive(Clone, Copy, Debug, Deserr)]
#[deserr(error = Faults, try_from(&String) = Self::new -> String)]
pub(super) struct Interval(pub(super) Option<Duration>);

impl Interval {
    fn new(text: &str) -> Result<Self, String> {
        if text.is_empty() {
            return Ok(Self(None));
        }
        let interval = endpoint_picker::config::duration::parse(text);
        let legal = interval.filter(|interval| {
            *interval >= MIN_INTERVAL && interval.as_nanos().is_multiple_of(MIN_INTERVAL.as_nanos())
        });
        legal.map(|interval| Self(Some(interval))).ok_or_else(|| {
            format!(
                "{} is no interval; allowed are multiples of {MIN_INTERVAL:?}, such as 200ms or 1s",
                quoted(text)
            )
        })
    }
}

/// `core-metrics-extractor`
#[derive(Clone, Debug, Default, Deserr)]
#[deserr(error = Faults, rename_all = camelCase, deny_unknown_fields)]
pub(super) struct CoreMetricsExtractor {
    #[deserr(default)]
    engine_label_key: String,
    #[deserr(default)]
    default_engine: String,
    #[deserr(default)]
    engine_configs: Engines,
}

impl CoreMetricsExtractor {
    /// The error is what is wrong with `defaultEngine`.
    pub(super) fn dialects(&self) -> Result<Dialects, String> {
        let engines = self.engine_configs.0.iter().map(|engine| (engine.name.0.clone(), engine.dialect()));
        Dialects::with_engines(&self.engine_label_key, &self.default_engine, engines)
            .map_err(|error| error.to_string())
    }
}

#[derive(Clone, Debug, Default, Deserr)]
#[deserr(error = Faults, try_from(Vec<Engine>) = Self::new -> String)]
struct Engines(Vec<Engine>);

impl Engines {
    fn new(engines: Vec<Engine>) -> Result<Self, String> {
        for (index, engine) in engines.iter().enumerate() {
            if engines[..index].iter().any(|other| other.name == engine.name) {
                return Err(format!(
                    "{} stands there twice; engine names are unique",
                    quoted(&engine.name.0)
                ));
            }
        }
        Ok(Self(engines))
    }
}

#[derive(Clone, Debug, Deserr)]
#[deserr(error = Faults, rename_all = camelCase, deny_unknown_fields)]
struct Engine {
    name: EngineName,
    #[deserr(default)]
    queued_requests_spec: Spec,
    #[deserr(default)]
    running_requests_spec: Spec,
    #[deserr(default, rename = "kvUsageSpec")]
    kv_usage_spec: Spec,
    #[deserr(default, rename = "loraSpec")]
    lora_spec: Spec,
    #[deserr(default)]
    cache_info_spec: Spec,
    #[deserr(default)]
    cache_block_size_label_name: String,
    #[deserr(default)]
    cache_num_blocks_label_name: String,
    #[deserr(default)]
    cache_block_size_spec: Spec,
    #[deserr(default)]
    cache_num_blocks_spec: Spec,
    #[deserr(default)]
    custom_metrics: Vec<CustomMetric>,
}

#[derive(Clone, Debug, Deserr)]
#[deserr(error = Faults, rename_all = camelCase, deny_unknown_fields)]
struct CustomMetric {
    attribute_key: String,
    metric_spec: Spec,
}

impl CustomMetric {
    /// `None`: no metric is named, so nothing is collected.
    fn attribute(&self) -> Option<(String, MetricSpec)> {
        self.metric_spec.0.clone().map(|spec| (self.attribute_key.clone(), spec))
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Deserr)]
#[deserr(error = Faults, try_from(String) = Self::new -> String)]
struct EngineName(String);

impl EngineName {
    fn new(name: String) -> Result<Self, String> {
        if name.is_empty() || name == "default" {
            return Err(format!(
                "{} is no engine's name; allowed is any other but \"\" and \"default\"",
                quoted(&name)
            ));
        }
        Ok(Self(name))
    }
}

/// `name` or `name{label=value,…}`; empty: the engine does not say it.
#[derive(Clone, Debug, Default, Deserr)]
#[deserr(error = Faults, try_from(&String) = Self::new -> String)]
struct Spec(Option<MetricSpec>);

impl Spec {
    fn new(text: &str) -> Result<Self, String> {
        MetricSpec::parse(text).map(Self).map_err(|error| error.to_string())
    }
}

impl Engine {
    fn dialect(&self) -> Dialect {
        let or =
            |label: &str, default: &str| if label.is_empty() { default.to_owned() } else { label.to_owned() };
        let cache_info = self.cache_info_spec.0.clone().map(|spec| CacheInfo {
            spec,
            block_size_label: or(&self.cache_block_size_label_name, "block_size"),
            num_blocks_label: or(&self.cache_num_blocks_label_name, "num_gpu_blocks"),
        });
        Dialect {
            waiting: self.queued_requests_spec.0.clone(),
            running: self.running_requests_spec.0.clone(),
            kv_usage: self.kv_usage_spec.0.clone(),
            lora: self.lora_spec.0.clone(),
            cache_info,
            block_size: self.cache_block_size_spec.0.clone(),
            num_blocks: self.cache_num_blocks_spec.0.clone(),
            engine_label: None,
            attributes: self.custom_metrics.iter().filter_map(CustomMetric::attribute).collect(),
        }
    }
}

/// `file-discovery`
#[derive(Clone, Debug, Deserr)]
#[deserr(error = Faults, rename_all = camelCase, deny_unknown_fields)]
pub(super) struct FileDiscovery {
    pub(super) path: FilePath,
    /// The agent follows the file in any case.
    #[deserr(default, rename = "watchFile")]
    _watch_file: bool,
}

#[derive(Clone, Debug, Deserr)]
#[deserr(error = Faults, try_from(String) = Self::new -> String)]
pub(super) struct FilePath(pub(super) PathBuf);

impl FilePath {
    fn new(path: String) -> Result<Self, String> {
        if path.is_empty() {
            Err("is empty; allowed is the path of a file".to_owned())
        } else {
            Ok(Self(path.into()))
        }
    }
}
