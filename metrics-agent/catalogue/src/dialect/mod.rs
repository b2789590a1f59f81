//! Names of the metrics that the agent reads, by engine.
//!
//! A dialect is data in the EPP's own notation, so an operator's engine is one more value of [`Dialect`].

mod engines;
mod spec;

use core::fmt;
use std::sync::Arc;

use endpoint_picker::epp_rules::EppRules;
use endpoint_picker::pool::Endpoint;
pub use engines::TRTLLM_SERVE_PATH;
pub use spec::{MetricSpec, SpecError};

/// The labels with an endpoint's engine: the EPP's key and its alias. The first one found decides.
pub const ENGINE_LABELS: [&str; 2] = ["llm-d.ai/engine-type", "inference.networking.k8s.io/engine-type"];

/// The engine of endpoints without an engine label, or with an unknown engine, in the EPP, unless a
/// configuration names another.
pub const DEFAULT_ENGINE: &str = "vllm";

/// The label with the tokens in which prefixes are matched.
const MATCH_UNIT: &str = "prefix_match_unit";

/// The label of vLLM's cache metric with the tokens that the cache holds.
pub const CACHE_TOKENS: &str = "kv_cache_size_tokens";

/// An engine, and the names of its metrics.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Engine {
    /// The name, as in labels of endpoints.
    pub name: Arc<str>,
    /// The names of its metrics.
    pub dialect: Arc<Dialect>,
}

/// The dialects of all engines.
#[derive(Clone, Debug, PartialEq)]
pub struct Dialects {
    /// The labels with an endpoint's engine; the first one found decides.
    labels: [String; 2],
    /// The operator's engines, in their order.
    configured: Vec<(String, Dialect)>,
    /// The default engine that a configuration names; `None`: it names none.
    default: Option<String>,
    /// All engines: the built-in ones, then the others.
    engines: Vec<Engine>,
    /// The possible engines of endpoints that name none, in the order in which they are tried.
    unnamed: Arc<[Engine]>,
}

impl Dialects {
    /// The dialects of the built-in engines.
    ///
    /// # Panics
    ///
    /// Never: the table of engines is fixed.
    pub fn built_in() -> Self {
        Self::with_engines("", "", []).expect("the default engine is built in")
    }

    /// The dialects of the built-in engines and of an operator's. An operator's engine replaces a built-in
    /// one of the same name, except for its counter and its ranks, which an operator cannot configure, and
    /// the label of its sums, if the operator names none.
    ///
    /// `label_key` is the label with an endpoint's engine, empty for the EPP's; `default` the engine of
    /// endpoints without it, empty: their texts show it.
    pub fn with_engines(
        label_key: &str,
        default: &str,
        engines: impl IntoIterator<Item = (String, Dialect)>,
    ) -> Result<Self, UnknownEngine> {
        let [default_key, alias] = ENGINE_LABELS;
        let label_key = if label_key.is_empty() { default_key } else { label_key };
        let labels = [label_key.to_owned(), alias.to_owned()];
        let default = (!default.is_empty()).then(|| default.to_owned());
        Self::build(EppRules::Own, labels, default, engines.into_iter().collect())
    }

    /// The same dialects by these rules. By those of a version of the EPP they are without the metrics that
    /// the EPP does not read, and endpoints that name no engine have the default one. Since v0.11 (#2455) it
    /// reads from [`CacheInfo`] the tokens in which prefixes are matched, which for models with several kinds
    /// of attention are more than a block's.
    ///
    /// # Panics
    ///
    /// Never: the engines have the same names.
    #[must_use]
    pub fn by(&self, rules: EppRules) -> Self {
        let (labels, configured) = (self.labels.clone(), self.configured.clone());
        let same = Self::build(rules, labels, self.default.clone(), configured);
        same.expect("the engines have the same names")
    }

    fn build(
        rules: EppRules,
        labels: [String; 2],
        default: Option<String>,
        configured: Vec<(String, Dialect)>,
    ) -> Result<Self, UnknownEngine> {
        let mut all: Vec<_> =
            engines::built_in(!rules.is_own()).into_iter().map(|(name, it)| (name.to_owned(), it)).collect();
        for (name, dialect) in &configured {
            let name = name.clone();
            match all.iter_mut().find(|(built_in, _)| *built_in == name) {
                Some((_, built_in)) => *built_in = dialect.clone().in_place_of(built_in),
                None => all.push((name, dialect.clone())),
            }
        }
        for (_, dialect) in &mut all {
            if let Some(cache) = &mut dialect.cache_info {
                cache.match_unit_label = rules.is_v011().then(|| MATCH_UNIT.to_owned());
                if !rules.is_own() {
                    cache.tokens_label = None;
                }
            }
        }
        let engine =
            |(name, dialect): (String, Dialect)| Engine { name: name.into(), dialect: dialect.into() };
        let engines: Vec<_> = all.into_iter().map(engine).collect();
        let named = default.as_deref().or((!rules.is_own()).then_some(DEFAULT_ENGINE));
        let unnamed = match named {
            None => engines.clone().into(),
            Some(name) => match engines.iter().find(|engine| *engine.name == *name) {
                Some(engine) => [engine.clone()].into(),
                None => return Err(UnknownEngine::new(name, &engines)),
            },
        };
        Ok(Self { labels, configured, default, engines, unnamed })
    }

    /// The engines that an endpoint without an engine label may have.
    pub fn unnamed(&self) -> &Arc<[Engine]> {
        &self.unnamed
    }

    /// All engines: the built-in ones, then the others.
    pub fn engines(&self) -> &[Engine] {
        &self.engines
    }

    /// The dialect of an engine; for an unknown one the first that endpoints without an engine may have.
    pub fn of_engine(&self, engine: &str) -> &Arc<Dialect> {
        let found = self.engines.iter().find(|known| *known.name == *engine);
        &found.unwrap_or(&self.unnamed[0]).dialect
    }

    /// The engine of an endpoint, or if it names none that is known, the engines that it may have.
    pub fn of_endpoint(&self, endpoint: &Endpoint) -> Arc<[Engine]> {
        let name = self.labels.iter().find_map(|key| endpoint.label(key));
        let engine = name.and_then(|name| self.engines.iter().find(|engine| *engine.name == *name));
        engine.map_or_else(|| Arc::clone(&self.unnamed), |engine| [engine.clone()].into())
    }
}

/// The default engine of a configuration is unknown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownEngine {
    engine: String,
    engines: Vec<String>,
}

impl UnknownEngine {
    fn new(engine: &str, engines: &[Engine]) -> Self {
        let mut engines: Vec<_> = engines.iter().map(|engine| engine.name.as_ref().to_owned()).collect();
        engines.sort_unstable();
        Self { engine: engine.to_owned(), engines }
    }
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
    /// Share of the KV cache in use, 0..=1. Its name depends on the release of the engine: the first of these
    /// metrics that a text has is read. Empty: the engine does not report it.
    pub kv_usage: Vec<MetricSpec>,
    /// LoRA adapters, in the labels of the series with the largest value.
    pub lora: Option<MetricSpec>,
    /// The KV cache's shape, in labels.
    pub cache_info: Option<CacheInfo>,
    /// Tokens per block, as a gauge.
    pub block_size: Option<MetricSpec>,
    /// Blocks in the cache, as a gauge.
    pub num_blocks: Option<MetricSpec>,
    /// Tokens that the cache holds, as a gauge.
    pub cache_tokens: Option<MetricSpec>,
    /// A counter that decreases only when the server restarts.
    pub counter: Option<MetricSpec>,
    /// The label over whose values series are added up, such as the engines of a data-parallel server.
    pub sum_label: Option<String>,
    /// Labels of further ranks: series that differ in nothing else repeat the same requests.
    pub rank_labels: Vec<String>,
    /// Custom metrics, by attribute name.
    pub attributes: Vec<(String, MetricSpec)>,
}

impl Dialect {
    /// The dialect with the parts of a built-in one that an operator cannot configure, or has not configured.
    fn in_place_of(self, built_in: &Self) -> Self {
        Self {
            counter: built_in.counter.clone(),
            sum_label: self.sum_label.or_else(|| built_in.sum_label.clone()),
            rank_labels: built_in.rank_labels.clone(),
            ..self
        }
    }
}

/// A metric with the shape of the KV cache in its labels.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct CacheInfo {
    /// The metric.
    pub spec: MetricSpec,
    /// The label with the tokens per block.
    pub block_size_label: String,
    /// The label with the tokens in which prefixes are matched, which counts before the former one if it is
    /// above 0; `None`: it is not read.
    pub match_unit_label: Option<String>,
    /// The label with the number of blocks.
    pub num_blocks_label: String,
    /// The label with the tokens that the cache holds, which of models with several kinds of attention are
    /// more than its blocks times their size; `None`: it is not read.
    pub tokens_label: Option<String>,
}

/// How the texts of a pool's servers are read, apart from the names of metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct TextRules {
    /// How a server with several series of a metric is read.
    pub engines: MultiEngine,
    /// Whether a metric that its text calls neither gauge nor counter reads 0, and a counter is a number of
    /// requests, as in the EPP.
    pub as_epp: bool,
}

impl TextRules {
    /// The EPP's rules.
    pub const EPP: Self = Self { engines: MultiEngine::First, as_epp: true };
}

/// How to read a server with one series for each engine.
///
/// The EPP reads only the first series, so a server with eight engines looks as busy as one of them. The
/// default here is the sum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum MultiEngine {
    /// Waiting and running requests of all engines are added up, and KV usage is their mean. A field whose
    /// series differ in another label has no value.
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
        let engines = Dialects::built_in().by(EppRules::V010).of_endpoint(&endpoint);
        assert_eq!(engines.len(), 1);
        engines[0].dialect.waiting.as_ref().unwrap().name().to_owned()
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
    fn an_absent_or_unknown_engine_is_vllm_in_the_epp_and_any_here() {
        assert_eq!(waiting_metric(&[]), "vllm:num_requests_waiting");
        assert_eq!(waiting_metric(&[("llm-d.ai/engine-type", "teapot")]), "vllm:num_requests_waiting");
        let names = |dialects: &Dialects| {
            let label = ("llm-d.ai/engine-type".to_owned(), "teapot".to_owned());
            let endpoint = Endpoint::new("n".to_owned(), "10.0.0.1:1".parse().unwrap(), vec![label]);
            let engines = dialects.of_endpoint(&endpoint);
            engines.iter().map(|engine| engine.name.as_ref().to_owned()).collect::<Vec<_>>()
        };
        let all = ["vllm", "sglang", "trtllm-serve", "triton-tensorrt-llm", "triton"];
        assert_eq!(names(&Dialects::built_in()), all);
        let own = Dialects::with_engines("", "", [("own".to_owned(), Dialect::default())]).unwrap();
        assert_eq!(names(&own), [&all[..], &["own"]].concat());
        assert_eq!(names(&Dialects::with_engines("", "sglang", []).unwrap()), ["sglang"]);
        assert_eq!(names(&own.by(EppRules::V011)), ["vllm"]);
    }

    #[test]
    fn an_operators_engine_keeps_the_sums_of_the_one_it_replaces_unless_it_names_a_label() {
        let label = |sum_label: Option<&str>| {
            let dialect = Dialect { sum_label: sum_label.map(str::to_owned), ..Dialect::default() };
            let dialects = Dialects::with_engines("", "", [("sglang".to_owned(), dialect)]).unwrap();
            let sglang = dialects.of_engine("sglang");
            assert_eq!(sglang.rank_labels, ["tp_rank", "pp_rank", "moe_ep_rank"]);
            sglang.sum_label.clone().unwrap()
        };
        assert_eq!((label(None), label(Some("replica"))), ("dp_rank".to_owned(), "replica".to_owned()));
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
