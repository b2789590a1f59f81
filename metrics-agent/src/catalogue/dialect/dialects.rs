//! The dialects of all engines.

use core::fmt;
use std::collections::HashMap;
use std::sync::Arc;

use endpoint_picker::pool::Endpoint;

use super::engines;
use super::metrics::Dialect;

/// The labels that name an endpoint's engine, the first one found decides (the EPP's key and its alias).
pub const ENGINE_LABELS: [&str; 2] = ["llm-d.ai/engine-type", "inference.networking.k8s.io/engine-type"];

/// The engine of an endpoint that names none, or one that is not known, unless another is chosen.
pub const DEFAULT_ENGINE: &str = "vllm";

/// All dialects, by engine.
#[derive(Clone, Debug, PartialEq)]
pub struct Dialects {
    /// The labels that name an endpoint's engine; the first one found decides.
    labels: [String; 2],
    by_engine: HashMap<String, Arc<Dialect>>,
    default: Arc<Dialect>,
}

impl Dialects {
    /// The EPP's engines.
    ///
    /// # Panics
    ///
    /// Never: the table of engines is fixed.
    pub fn built_in() -> Self {
        Self::with_engines("", "", []).expect("the default engine is built in")
    }

    /// The EPP's engines and an operator's; one of the same name replaces the built-in one, but for the label that
    /// tells data-parallel engines apart and the counter, which an operator cannot give.
    ///
    /// `label_key` is the label that names an endpoint's engine, `default` the engine of those without; empty texts are
    /// the EPP's defaults.
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
            let mut known: Vec<_> = by_engine.into_keys().collect();
            known.sort_unstable();
            return Err(UnknownEngine { engine: default.to_owned(), known });
        };
        Ok(Self { labels: [label_key.to_owned(), alias.to_owned()], by_engine, default })
    }

    /// The dialect of endpoints that name no engine.
    pub fn default_dialect(&self) -> &Dialect {
        &self.default
    }

    /// The dialect of this engine; an unknown one is read as the default.
    pub fn of_engine(&self, engine: &str) -> &Arc<Dialect> {
        self.by_engine.get(engine).unwrap_or(&self.default)
    }

    /// The dialect an endpoint's labels ask for.
    pub fn of_endpoint(&self, endpoint: &Endpoint) -> &Arc<Dialect> {
        match self.labels.iter().find_map(|key| endpoint.label(key)) {
            Some(engine) => self.of_engine(engine),
            None => &self.default,
        }
    }
}

/// The engine that is to be the default is none of those there are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownEngine {
    engine: String,
    known: Vec<String>,
}

impl fmt::Display for UnknownEngine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no known engine; allowed are {}", self.engine, self.known.join(", "))
    }
}

impl core::error::Error for UnknownEngine {}

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
    fn the_label_or_its_alias_names_the_engine() {
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
    fn one_triton_metric_says_both_by_its_labels() {
        let dialects = Dialects::built_in();
        let triton = dialects.of_engine("triton-tensorrt-llm");
        let (waiting, running) = (triton.waiting.as_ref().unwrap(), triton.running.as_ref().unwrap());
        assert_eq!(waiting.name(), running.name());
        assert_eq!(waiting.labels(), [("request_type".to_owned(), "waiting".to_owned())]);
        assert_eq!(running.labels(), [("request_type".to_owned(), "scheduled".to_owned())]);
    }
}
