//! Counters of single plugins, by their names in the configuration.

use endpoint_picker::decision::ServedModelRun;
use endpoint_picker::plugin::{AttributeReport, NotReported};
use endpoint_picker_wire::statistics::{
    ATTRIBUTE_REPORTS, SERVED_MODEL_CANDIDATES, SERVED_MODEL_DECISIONS, SERVED_MODEL_UNLISTED,
};

use super::series::LabelledCounter;
use super::sink::{Labels, MetricSink, PoolSink};

/// The counters of a pool.
#[derive(Debug)]
pub(crate) struct PluginMetrics<M: MetricSink> {
    served_model_decisions: LabelledCounter<M>,
    served_model_candidates: LabelledCounter<M>,
    served_model_unlisted: LabelledCounter<M>,
    reports: LabelledCounter<M>,
}

impl<M: MetricSink> PluginMetrics<M> {
    pub(super) fn new(sink: &PoolSink<'_, M>) -> Self {
        Self {
            served_model_decisions: LabelledCounter::new(sink, &SERVED_MODEL_DECISIONS),
            served_model_candidates: LabelledCounter::new(sink, &SERVED_MODEL_CANDIDATES),
            served_model_unlisted: LabelledCounter::new(sink, &SERVED_MODEL_UNLISTED),
            reports: LabelledCounter::new(sink, &ATTRIBUTE_REPORTS),
        }
    }

    /// Counts the effect of a filter by lists of models.
    pub(crate) fn count_served_models(&mut self, run: &ServedModelRun) {
        let ServedModelRun { plugin, outcome, candidates, unlisted } = run;
        self.served_model_decisions.increment(&[plugin, outcome.as_str()]);
        let labels = Labels::new(&[plugin]);
        self.served_model_candidates.add(&labels, u64::from(*candidates));
        self.served_model_unlisted.add(&labels, u64::from(*unlisted));
    }

    /// Counts a plugin's report on a response, or the reason why it has none.
    pub(crate) fn count_report(&mut self, plugin: &str, report: &Result<AttributeReport<'_>, NotReported>) {
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
