//! Counts of requests for reports and pages.

use endpoint_picker_wire::figures::Figures;
use endpoint_picker_wire::statistics::Count;

use super::Metrics;
use super::sink::MetricSink;

/// Counts of all workers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Totals {
    /// The statistics that reports have.
    pub counts: Figures<u64>,
    /// The filter is itself the shadow of another picker.
    pub is_shadow: bool,
}

impl<M: MetricSink> Metrics<M> {
    /// The counts that all workers have flushed, of a filter that picks.
    pub(crate) fn totals(&self) -> Totals {
        let mut counts = Figures::default();
        for count in Count::ALL.into_iter().filter(|count| count.statistic().shown.is_some()) {
            counts.set(count.statistic(), "", self.value(count));
        }
        self.rejected.add_to(&mut counts);
        self.abstained.add_to(&mut counts);
        self.sessions.add_to(&mut counts);
        self.session_turns.add_to(&mut counts);
        Totals { counts, is_shadow: false }
    }
}
