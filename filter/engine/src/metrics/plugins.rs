//! Counters of single plugins, by their names in the configuration.

use endpoint_picker::decision::ServedModelRun;
use endpoint_picker::plugin::{AttributeReport, NotReported};

use super::series::LabelledCounter;
use super::sink::{Labels, Metric, MetricKind, MetricSink};

/// The label with the plugin's name.
const PLUGIN: &str = "plugin_name";

/// The counters of a pool.
#[derive(Debug)]
pub(super) struct PluginMetrics<M: MetricSink> {
    /// Runs of filters by lists of models, by their outcome.
    served_model_decisions: LabelledCounter<M>,
    /// Candidates of these runs.
    served_model_candidates: LabelledCounter<M>,
    /// Candidates of these runs that have no list of models.
    served_model_unlisted: LabelledCounter<M>,
    /// Numbers that plugins report of responses, by the outcome.
    reports: LabelledCounter<M>,
}

impl<M: MetricSink> PluginMetrics<M> {
    pub(super) fn new(sink: &M, pool: &str) -> Self {
        let counter = |name, labels| {
            LabelledCounter::new(sink, sink.family(&Metric { kind: MetricKind::Counter, pool, name, labels }))
        };
        Self {
            served_model_decisions: counter("served_model_filter_decisions", &[PLUGIN, "outcome"]),
            served_model_candidates: counter("served_model_filter_candidates", &[PLUGIN]),
            served_model_unlisted: counter("served_model_filter_unlisted_candidates", &[PLUGIN]),
            reports: counter("attribute_reports", &[PLUGIN, "outcome"]),
        }
    }

    pub(super) fn count_served_models(&mut self, run: &ServedModelRun) {
        let ServedModelRun { plugin, outcome, candidates, unlisted } = run;
        self.served_model_decisions.increment(&[plugin, outcome.as_str()]);
        let labels = Labels::new(&[plugin]);
        self.served_model_candidates.add(&labels, u64::from(*candidates));
        self.served_model_unlisted.add(&labels, u64::from(*unlisted));
    }

    pub(super) fn count_report(&mut self, plugin: &str, report: &Result<AttributeReport<'_>, NotReported>) {
        let outcome = match report {
            Ok(_) => "reported",
            Err(NotReported::Unmet) => "unmet",
            Err(NotReported::Nothing) => "nothing",
            Err(NotReported::Failed(_)) => "failed",
        };
        self.reports.increment(&[plugin, outcome]);
    }

    pub(super) fn flush(&self) {
        let Self { served_model_decisions, served_model_candidates, served_model_unlisted, reports } = self;
        for counter in [served_model_decisions, served_model_candidates, served_model_unlisted, reports] {
            counter.flush();
        }
    }
}
