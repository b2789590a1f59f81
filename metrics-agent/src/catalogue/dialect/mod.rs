//! Names of the metrics that the agent reads, by engine.
//!
//! A dialect is data in the EPP's own notation, so an operator's engine is one more value of [`Dialect`].

mod engines;
mod spec;

use core::fmt;
use std::collections::HashMap;
use std::sync::Arc;

use endpoint_picker::pool::Endpoint;
pub use spec::{MetricSpec, SpecError};

/// The labels with an endpoint's engine: the EPP's key and its alias. The first one found decides.
pub const ENGINE_LABELS: [&str; 2] = ["llm-d.ai/engine-type", "inference.networking.k8s.io/engine-type"];

/// The engine of endpoints without an engine label, or with an unknown engine, unless a configuration names another.
pub const DEFAULT_ENGINE: &str = "vllm";

/// The label with the tokens in which prefixes are matched.
const MATCH_UNIT: &str = "prefix_match_unit";

/// The dialects of all engines.
#[derive(Clone, Debug, PartialEq)]
pub struct Dialects {
    /// The labels with an endpoint's engine; the first one found decides.
    labels: [String; 2],
    by_engine: HashMap<String, Arc<Dialect>>,
    default: Arc<Dialect>,
}

impl Dialects {
    /// The dialects of the EPP's engines.
    ///
    /// # Panics
    ///
    /// Never: the table of engines is fixed.
    pub fn built_in() -> Self {
        Self::with_engines("", "", []).expect("the default engine is built in")
    }

    /// The dialects of the EPP's engines and of an operator's. An operator's engine replaces a built-in one of the same name, except
    /// for the label of data-parallel engines and the counter, which an operator cannot configure.
    ///
    /// `label_key` is the label with an endpoint's engine, `default` the engine of endpoints without it; empty strings mean the EPP's
    /// defaults.
    pub fn with_engines(
        label_key: &str,
        default: &str,
        engines: impl IntoIterator<Item = (String, Dialect)>,
    ) -> Result<Self, UnknownEngine> {
        let [default_key, alias] = ENGINE_LABELS;
        let label_key = if label_key.is_empty() { default_key } else { label_key };
        let default = if default.is_empty() { DEFAULT_ENGINE } else { default };
        let built_in = engines::built_in().into_iter();
        let mut by_engine: HashMap<_, _> =
            built_in.map(|(name, dialect)| (name.to_owned(), Arc::new(dialect))).collect();
        for (name, dialect) in engines {
            let replaced = by_engine.get(&name);
            let engine_label = replaced.and_then(|replaced| replaced.engine_label.clone());
            let counter = replaced.and_then(|replaced| replaced.counter.clone());
            by_engine.insert(name, Arc::new(Dialect { counter, engine_label, ..dialect }));
        }
        let Some(default) = by_engine.get(default).map(Arc::clone) else {
            let mut engines: Vec<_> = by_engine.into_keys().collect();
            engines.sort_unstable();
            return Err(UnknownEngine { engine: default.to_owned(), engines });
        };
        Ok(Self { labels: [label_key.to_owned(), alias.to_owned()], by_engine, default })
    }

    /// The same dialects, whose [`CacheInfo`] is read as by the EPP's main branch (#2455): a label names the tokens in which prefixes are
    /// matched, which for models with several kinds of attention are more than a block's.
    #[must_use]
    pub fn with_match_unit(&self) -> Self {
        let of = |dialect: &Arc<Dialect>| {
            let mut dialect = Dialect::clone(dialect);
            if let Some(cache) = &mut dialect.cache_info {
                cache.match_unit_label = Some(MATCH_UNIT.to_owned());
            }
            Arc::new(dialect)
        };
        let by_engine = self.by_engine.iter().map(|(name, dialect)| (name.clone(), of(dialect))).collect();
        Self { labels: self.labels.clone(), by_engine, default: of(&self.default) }
    }

    /// The dialect of endpoints without an engine label.
    pub fn default_dialect(&self) -> &Dialect {
        &self.default
    }

    /// The dialect of an engine; the default for an unknown one.
    pub fn of_engine(&self, engine: &str) -> &Arc<Dialect> {
        self.by_engine.get(engine).unwrap_or(&self.default)
    }

    /// The dialect of an endpoint's engine.
    pub fn of_endpoint(&self, endpoint: &Endpoint) -> &Arc<Dialect> {
        match self.labels.iter().find_map(|key| endpoint.label(key)) {
            Some(engine) => self.of_engine(engine),
            None => &self.default,
        }
    }
}

/// The default engine of a configuration is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownEngine {
    engine: String,
    engines: Vec<String>,
}

impl fmt::Display for UnknownEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "unknown engine {:?}; allowed are {}", self.engine, self.engines.join(", "))
    }
}

impl core::error::Error for UnknownEngine {}

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
    /// The label with the tokens in which prefixes are matched, which counts before the former one if it is above 0; `None`: it is
    /// not read.
    pub match_unit_label: Option<String>,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting_metric(labels: &[(&str, &str)]) -> String {
        let labels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let endpoint = Endpoint::new("n".to_owned(), "10.0.0.1:1".parse().unwrap(), labels);
        let dialects = Dialects::built_in();
        dialects.of_endpoint(&endpoint).waiting.as_ref().unwrap().name().to_owned()
    }

    #[test]
    fn the_label_or_its_alias_has_the_engine() {
        assert_eq!(waiting_metric(&[("llm-d.ai/engine-type", "sglang")]), "sglang:num_queue_reqs");
        assert_eq!(
            waiting_metric(&[("inference.networking.k8s.io/engine-type", "trtllm-serve")]),
            "trtllm_num_requests_waiting"
        );
    }

    #[test]
    fn an_absent_or_unknown_engine_is_read_as_vllm() {
        assert_eq!(waiting_metric(&[]), "vllm:num_requests_waiting");
        assert_eq!(waiting_metric(&[("llm-d.ai/engine-type", "teapot")]), "vllm:num_requests_waiting");
    }

    #[test]
    fn one_triton_metric_has_both_values_by_its_labels() {
        let dialects = Dialects::built_in();
        let triton = dialects.of_engine("triton-tensorrt-llm");
        let (waiting, running) = (triton.waiting.as_ref().unwrap(), triton.running.as_ref().unwrap());
        assert_eq!(waiting.name(), running.name());
        assert_eq!(waiting.labels(), [("request_type".to_owned(), "waiting".to_owned())]);
        assert_eq!(running.labels(), [("request_type".to_owned(), "scheduled".to_owned())]);
    }
}
