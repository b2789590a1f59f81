//! Numbers of the statistics that reports have, and their fields in a report.

use core::time::Duration;
use std::collections::BTreeMap;

use crate::report::{Rejected, Report, StatisticCount, StreamReason};
use crate::statistics::{
    self, ABSTAINED, CUT_STREAMS, Count, REJECTED, RESUMABLE_STREAMS, RESUMED_STREAMS, Statistic,
    UNRESUMABLE_STREAMS,
};

/// Numbers by statistic and by the value of its label, which is empty without one.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures<T>(BTreeMap<(&'static str, String), T>);

/// A count or a rate.
pub trait Figure: Copy + Default {
    /// The end of the names of such figures.
    const SUFFIX: &'static str;

    /// The sum.
    #[must_use]
    fn plus(self, more: Self) -> Self;
}

impl Figure for u64 {
    const SUFFIX: &'static str = "";

    fn plus(self, more: Self) -> Self {
        self.saturating_add(more)
    }
}

impl Figure for f64 {
    const SUFFIX: &'static str = "_per_second";

    fn plus(self, more: Self) -> Self {
        self + more
    }
}

impl<T: Figure> Figures<T> {
    /// Sets the number of this value.
    pub fn set(&mut self, statistic: &'static Statistic, value: impl Into<String>, figure: T) {
        self.0.insert((statistic.name, value.into()), figure);
    }

    /// The numbers by the value of the label.
    pub fn by_value(&self, statistic: &'static Statistic) -> impl Iterator<Item = (&str, T)> {
        let own = self.0.range((statistic.name, String::new())..);
        let own = own.take_while(|((name, _), _)| *name == statistic.name);
        own.map(|((_, value), figure)| (value.as_str(), *figure))
    }

    /// The sum over all values; `None` without any.
    pub fn total(&self, statistic: &'static Statistic) -> Option<T> {
        self.by_value(statistic).map(|(_, figure)| figure).reduce(T::plus)
    }

    /// Adds other numbers.
    pub fn add(&mut self, more: &Self) {
        for (key, figure) in &more.0 {
            let sum = self.0.entry(key.clone()).or_default();
            *sum = sum.plus(*figure);
        }
    }

    fn map<U>(&self, change: impl Fn(&(&'static str, String), T) -> U) -> Figures<U> {
        Figures(self.0.iter().map(|(key, figure)| (key.clone(), change(key, *figure))).collect())
    }
}

impl Figures<u64> {
    /// These counts without those of an earlier report.
    #[must_use]
    pub fn without(&self, earlier: &Self) -> Self {
        self.map(|key, count| count.saturating_sub(earlier.0.get(key).copied().unwrap_or(0)))
    }

    /// The counts per second; empty for no time.
    pub fn per(&self, time: Duration) -> Figures<f64> {
        if time.is_zero() {
            return Figures::default();
        }
        self.map(|_, count| count as f64 / time.as_secs_f64())
    }

    /// Reads the counts of a report, without statistics that this build does not know.
    pub fn read(report: &Report) -> Self {
        let mut counts = Self::default();
        let resumptions = report.resumptions.as_ref();
        for (statistic, count) in [
            (Count::Routed.statistic(), Some(report.routed)),
            (Count::ServedElsewhere.statistic(), Some(report.served_elsewhere)),
            (Count::PromptBlocks.statistic(), Some(report.prompt_blocks)),
            (Count::PromptBlocksMatched.statistic(), Some(report.prompt_blocks_matched)),
            (&ABSTAINED, Some(report.abstained)),
            (Count::ShadowAgreed.statistic(), report.shadow_agreed),
            (Count::ShadowDisagreed.statistic(), report.shadow_disagreed),
            (&RESUMABLE_STREAMS, resumptions.map(|it| it.resumable)),
            (&RESUMED_STREAMS, resumptions.map(|it| it.resumed)),
        ] {
            if let Some(count) = count {
                counts.set(statistic, "", count);
            }
        }
        for Rejected { status, requests } in &report.rejected {
            counts.set(&REJECTED, status.to_string(), *requests);
        }
        for it in resumptions.iter().flat_map(|it| &it.cut) {
            counts.set(&CUT_STREAMS, it.reason.as_str(), it.streams);
        }
        for it in resumptions.iter().flat_map(|it| &it.unresumable) {
            counts.set(&UNRESUMABLE_STREAMS, it.reason.as_str(), it.streams);
        }
        for StatisticCount { statistic, value, count } in &report.counts {
            if let Some(row) = statistics::ALL.iter().find(|row| row.name == statistic && row.shown.is_some())
            {
                counts.set(row, value.as_str(), *count);
            }
        }
        counts
    }

    /// Adds the counts to a report. Statistics that are older than its list have fields of their own.
    pub fn write(&self, report: &mut Report) {
        for ((name, value), &count) in &self.0 {
            let streams = || StreamReason { reason: value.clone(), streams: count };
            let field = match *name {
                "routed" => &mut report.routed,
                "served_elsewhere" => &mut report.served_elsewhere,
                "abstained" => &mut report.abstained,
                "prompt_blocks" => &mut report.prompt_blocks,
                "prompt_blocks_matched" => &mut report.prompt_blocks_matched,
                "shadow_agreed" => report.shadow_agreed.get_or_insert_default(),
                "shadow_disagreed" => report.shadow_disagreed.get_or_insert_default(),
                "resumable_streams" => &mut report.resumptions.get_or_insert_default().resumable,
                "resumed_streams" => &mut report.resumptions.get_or_insert_default().resumed,
                "cut_streams" => {
                    report.resumptions.get_or_insert_default().cut.push(streams());
                    continue;
                }
                "unresumable_streams" => {
                    report.resumptions.get_or_insert_default().unresumable.push(streams());
                    continue;
                }
                "rejected" => {
                    let status = value.parse().unwrap_or_default();
                    report.rejected.push(Rejected { status, requests: count });
                    continue;
                }
                name => {
                    let (statistic, value) = (name.to_owned(), value.clone());
                    report.counts.push(StatisticCount { statistic, value, count });
                    continue;
                }
            };
            *field = field.saturating_add(count);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One count of each statistic that reports have, under a value if its values are told apart.
    fn all() -> Figures<u64> {
        let mut counts = Figures::default();
        for (count, (statistic, shown)) in (1..).zip(statistics::shown()) {
            let value = match shown.by {
                Some("status") => "429",
                Some(_) => "refused",
                None => "",
            };
            counts.set(statistic, value, count);
        }
        counts
    }

    #[test]
    fn a_report_has_every_statistic_that_people_see() {
        let mut report = Report::default();
        all().write(&mut report);
        assert_eq!(Figures::read(&report), all());
        assert!(all().0.len() > 10 && !report.counts.is_empty(), "{report:?}");
        report.counts.push(StatisticCount { statistic: "newer".to_owned(), ..StatisticCount::default() });
        assert_eq!(Figures::read(&report), all(), "a newer filter has more statistics");
    }

    #[test]
    fn counts_are_added_and_compared_with_earlier_ones() {
        let (routed, rejected) = (Count::Routed.statistic(), &REJECTED);
        let mut counts = Figures::default();
        counts.set(routed, "", u64::MAX);
        counts.set(rejected, "429", 7);
        counts.set(rejected, "503", 5);
        assert_eq!((counts.total(rejected), counts.total(&ABSTAINED)), (Some(12), None));
        let mut earlier = Figures::default();
        earlier.set(rejected, "429", 3);
        let growth = counts.without(&earlier);
        assert_eq!(growth.by_value(rejected).collect::<Vec<_>>(), [("429", 4), ("503", 5)]);
        assert_eq!(growth.per(Duration::from_secs(2)).total(rejected), Some(4.5));
        assert_eq!(growth.per(Duration::ZERO), Figures::default());
        counts.add(&earlier);
        assert_eq!((counts.total(rejected), counts.total(routed)), (Some(15), Some(u64::MAX)));
    }
}
