//! Counts of resumptions, and of the streams that are cut all the same.

use endpoint_picker_wire::report::{self, StreamReason};

use super::request::Unresumable;
use super::resumption::Cut;
use crate::metrics::{Labels, Metric, MetricKind, MetricSink};

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
        let family = |name, labels| sink.family(&Metric { kind: MetricKind::Counter, pool, name, labels });
        let one = |name| sink.series(&family(name, &[]), &Labels::default());
        let unresumable = family("unresumable_streams", &["reason"]);
        let cuts = family("cut_streams", &["reason"]);
        Self {
            resumable: one("resumable_streams"),
            resumptions: one("resumed_streams"),
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
    pub fn totals(&self) -> report::Resumptions {
        let value = |series: &Option<M::Series>| series.as_ref().map_or(0, |series| self.sink.value(series));
        let by_reason = |reasons: &[&str], series: &[Option<M::Series>]| {
            let counts = reasons.iter().zip(series.iter().map(value)).filter(|(_, streams)| *streams > 0);
            counts.map(|(reason, streams)| StreamReason { reason: (*reason).to_owned(), streams }).collect()
        };
        report::Resumptions {
            resumable: value(&self.resumable),
            resumed: value(&self.resumptions),
            cut: by_reason(&Cut::ALL.map(Cut::as_str), &self.cuts),
            unresumable: by_reason(&Unresumable::OF_STREAMS.map(Unresumable::as_str), &self.unresumable),
        }
    }

    fn add(&self, series: Option<&M::Series>) {
        if let Some(series) = series {
            self.sink.add(series, 1);
        }
    }
}
