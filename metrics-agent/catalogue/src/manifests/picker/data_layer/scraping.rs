//! How endpoints are scraped, from the plugins of the data layer.

use core::time::Duration;
use std::num::NonZeroU16;
use std::sync::Arc;

use hyper::Uri;

use crate::dialect::{CACHE_TOKENS, CacheInfo, Dialect, Dialects, MetricSpec};
use crate::manifests::fault::quoted;
use crate::manifests::picker::Findings;
use crate::manifests::picker::agent_plugins::core_metrics_extractor::{CoreMetricsExtractor, EngineConfig};
use crate::manifests::picker::agent_plugins::dcgm_data_source::DcgmDataSource;
use crate::manifests::picker::agent_plugins::metrics_data_source::{MetricsDataSource, Scheme};
use crate::manifests::picker::agent_plugins::models_data_source::ModelsDataSource;
use crate::scraping::MIN_INTERVAL;

/// Time between two scrapes of a server's list of models, which changes seldom.
const MODELS_INTERVAL: Duration = Duration::from_secs(1);

/// A configuration's settings for scraping the endpoints of its pools. `None`: the agent's flags decide.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Scraping {
    pub path: Option<Uri>,
    /// Whether scrapes use TLS even without the flags for it.
    pub https: bool,
    pub port: Option<NonZeroU16>,
    pub interval: Option<Duration>,
    pub dialects: Arc<Dialects>,
    /// The endpoints' exporters of GPU metrics; `None`: they are not scraped.
    pub gpu: Option<SourceScraping>,
    /// The servers' lists of models; `None`: they are not read.
    pub models: Option<SourceScraping>,
}

/// How a data source other than the servers' metrics is scraped.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct SourceScraping {
    pub path: Uri,
    pub https: bool,
    /// `None`: the endpoint's own.
    pub port: Option<NonZeroU16>,
    /// `None`: the agent's flags decide.
    pub interval: Option<Duration>,
    /// Whether it has the address of the pod's node.
    pub(crate) is_on_node: bool,
}

impl Default for Scraping {
    fn default() -> Self {
        Self {
            path: None,
            https: false,
            port: None,
            interval: None,
            dialects: Arc::new(Dialects::built_in()),
            gpu: None,
            models: None,
        }
    }
}

impl Scraping {
    /// Whether the metrics or another data source are read by https.
    pub(crate) fn has_https(&self) -> bool {
        self.https || [&self.gpu, &self.models].into_iter().flatten().any(|source| source.https)
    }

    /// `at` is the path of the plugin's parameters.
    pub(super) fn set_source(&mut self, source: &MetricsDataSource, at: &str, findings: &mut Findings) {
        self.https = source.scheme == Scheme::Https;
        let paths = [&source.ca_cert_path, &source.client_cert_path, &source.client_key_path];
        refuse_certificates(paths, at, findings);
        self.path = url_path(&source.path, at, findings);
        check_interval(source.interval, at, findings);
        self.port = source.port.and_then(port);
        self.interval = source.interval;
    }

    /// `at` is the path of the plugin's parameters.
    pub(super) fn set_gpu_source(&mut self, source: &DcgmDataSource, at: &str, findings: &mut Findings) {
        check_interval(source.interval, at, findings);
        self.gpu = url_path(&source.path, at, findings).map(|path| SourceScraping {
            path,
            https: source.scheme == Scheme::Https,
            port: port(source.port),
            interval: source.interval,
            is_on_node: source.use_node_address,
        });
    }

    /// `at` is the path of the plugin's parameters.
    pub(super) fn set_models_source(&mut self, source: &ModelsDataSource, at: &str, findings: &mut Findings) {
        refuse_certificates(source.certificates(), at, findings);
        check_interval(source.interval, at, findings);
        self.models = url_path(&source.path, at, findings).map(|path| SourceScraping {
            path,
            https: source.scheme == Scheme::Https,
            port: None,
            interval: Some(source.interval.unwrap_or(MODELS_INTERVAL)),
            is_on_node: false,
        });
    }

    /// `at` is the path of the plugin's parameters.
    pub(super) fn set_extractor(
        &mut self,
        extractor: &CoreMetricsExtractor,
        at: &str,
        findings: &mut Findings,
    ) {
        let engines = extractor.engine_configs.iter().enumerate().map(|(index, engine)| {
            let reader = SpecReader { at: format!("{at}.engineConfigs[{index}]"), findings };
            (engine.name.clone(), reader.dialect(engine))
        });
        let engines: Vec<_> = engines.collect();
        match Dialects::with_engines(&extractor.engine_label_key, &extractor.default_engine, engines) {
            Ok(dialects) => self.dialects = Arc::new(dialects),
            Err(error) => findings.fault(format!("{at}.defaultEngine"), error.to_string()),
        }
    }
}

/// Refuses files of certificates, given as authorities, certificate and key: the agent's flags name them.
fn refuse_certificates(paths: [&String; 3], at: &str, findings: &mut Findings) {
    let flags = [
        ("caCertPath", "--scrape-ca"),
        ("clientCertPath", "--scrape-cert"),
        ("clientKeyPath", "--scrape-key"),
    ];
    for ((parameter, flag), path) in flags.into_iter().zip(paths).filter(|(_, path)| !path.is_empty()) {
        let text = format!("{} is not supported; use the agent's flag {flag}", quoted(path));
        findings.fault(format!("{at}.{parameter}"), text);
    }
}

fn port(port: u32) -> Option<NonZeroU16> {
    NonZeroU16::new(u16::try_from(port).ok()?)
}

fn url_path(path: &str, at: &str, findings: &mut Findings) -> Option<Uri> {
    let parsed = path.parse().ok();
    if parsed.is_none() {
        let text = format!("{} is not a URL path; allowed is one such as /metrics", quoted(path));
        findings.fault(format!("{at}.path"), text);
    }
    parsed
}

fn check_interval(interval: Option<Duration>, at: &str, findings: &mut Findings) {
    let is_allowed = |interval: &Duration| {
        *interval >= MIN_INTERVAL && interval.as_nanos().is_multiple_of(MIN_INTERVAL.as_nanos())
    };
    if let Some(interval) = interval.filter(|interval| !is_allowed(interval)) {
        let text = format!("is {interval:?}; it must be a multiple of {MIN_INTERVAL:?}");
        findings.fault(format!("{at}.interval"), text);
    }
}

/// Parses the specs of one engine.
struct SpecReader<'a> {
    at: String,
    findings: &'a mut Findings,
}

impl SpecReader<'_> {
    fn dialect(mut self, engine: &EngineConfig) -> Dialect {
        let or =
            |label: &str, default: &str| if label.is_empty() { default.to_owned() } else { label.to_owned() };
        let cache_info = self.spec("cacheInfoSpec", &engine.cache_info_spec).map(|spec| CacheInfo {
            spec,
            block_size_label: or(&engine.cache_block_size_label_name, "block_size"),
            match_unit_label: None,
            num_blocks_label: or(&engine.cache_num_blocks_label_name, "num_gpu_blocks"),
            tokens_label: Some(CACHE_TOKENS.to_owned()),
        });
        let custom = engine.custom_metrics.iter().enumerate().filter_map(|(index, metric)| {
            let spec = self.spec(&format!("customMetrics[{index}].metricSpec"), &metric.metric_spec)?;
            Some((metric.attribute_key.clone(), spec))
        });
        let attributes = custom.collect();
        Dialect {
            waiting: self.spec("queuedRequestsSpec", &engine.queued_requests_spec),
            running: self.spec("runningRequestsSpec", &engine.running_requests_spec),
            kv_usage: self.spec("kvUsageSpec", &engine.kv_usage_spec).into_iter().collect(),
            lora: self.spec("loraSpec", &engine.lora_spec),
            cache_info,
            block_size: self.spec("cacheBlockSizeSpec", &engine.cache_block_size_spec),
            num_blocks: self.spec("cacheNumBlocksSpec", &engine.cache_num_blocks_spec),
            cache_tokens: None,
            counter: None,
            sum_label: (!engine.sum_over_label_name.is_empty()).then(|| engine.sum_over_label_name.clone()),
            rank_labels: Vec::new(),
            attributes,
        }
    }

    fn spec(&mut self, parameter: &str, text: &str) -> Option<MetricSpec> {
        MetricSpec::parse(text).unwrap_or_else(|error| {
            self.findings.fault(format!("{}.{parameter}", self.at), error.to_string());
            None
        })
    }
}
