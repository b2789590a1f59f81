//! Counts of resumptions, and of the streams that are cut all the same.

use endpoint_picker_wire::figures::Figures;
use endpoint_picker_wire::statistics::{
    CUT_STREAMS, RESUMABLE_STREAMS, RESUMED_STREAMS, Statistic, UNRESUMABLE_STREAMS,
};

use super::cut::Cut;
use super::unresumable::Unresumable;
use crate::metrics::{Labels, Metric, MetricSink};

/// The counters of one configuration.
#[derive(Debug)]
pub struct ResumeMetrics<M: MetricSink> {
    sink: M,
    resumable: Option<M::Series>,
    resumptions: Option<M::Series>,
    unresumable: [Option<M::Series>; Unresumable::OF_STREAMS.len()],
    cuts: [Option<M::Series>; Cut::ALL.len()],
}

impl<M: MetricSink> ResumeMetrics<M> {
    /// The counters of this pool.
    pub fn new(sink: &M, pool: &str) -> Self {
        let family = |statistic| sink.family(&Metric { pool, statistic });
        let one = |statistic| sink.series(&family(statistic), &Labels::default());
        let (unresumable, cuts) = (family(&UNRESUMABLE_STREAMS), family(&CUT_STREAMS));
        Self {
            resumable: one(&RESUMABLE_STREAMS),
            resumptions: one(&RESUMED_STREAMS),
            unresumable: Unresumable::OF_STREAMS
                .map(|reason| sink.series(&unresumable, &Labels::new(&[reason.as_str()]))),
            cuts: Cut::ALL.map(|cut| sink.series(&cuts, &Labels::new(&[cut.as_str()]))),
            sink: sink.clone(),
        }
    }

    /// A stream begins that can be resumed.
    pub fn count_resumable(&self) {
        self.add(self.resumable.as_ref());
    }

    /// A stream is resumed.
    pub fn count_resumption(&self) {
        self.add(self.resumptions.as_ref());
    }

    /// A request of these APIs passes without the means to resume its response.
    pub fn count_unresumable(&self, reason: Unresumable) {
        self.add(self.unresumable.get(reason as usize).and_then(Option::as_ref));
    }

    /// The client's stream is cut.
    pub fn count_cut(&self, cut: Cut) {
        self.add(self.cuts.get(cut as usize).and_then(Option::as_ref));
    }

    /// The counts of all workers, for a report on the pool.
    pub fn totals(&self) -> Figures<u64> {
        let mut counts = Figures::default();
        let value = |series: &Option<M::Series>| series.as_ref().map_or(0, |series| self.sink.value(series));
        counts.set(&RESUMABLE_STREAMS, "", value(&self.resumable));
        counts.set(&RESUMED_STREAMS, "", value(&self.resumptions));
        let mut by_reason = |statistic: &'static Statistic,
                             reasons: &[&str],
                             series: &[Option<M::Series>]| {
            for (reason, streams) in reasons.iter().zip(series.iter().map(value)).filter(|(_, it)| *it > 0) {
                counts.set(statistic, *reason, streams);
            }
        };
        by_reason(&CUT_STREAMS, &Cut::ALL.map(Cut::as_str), &self.cuts);
        let reasons = Unresumable::OF_STREAMS.map(Unresumable::as_str);
        by_reason(&UNRESUMABLE_STREAMS, &reasons, &self.unresumable);
        counts
    }

    fn add(&self, series: Option<&M::Series>) {
        if let Some(series) = series {
            self.sink.add(series, 1);
        }
    }
}
