//! What requests waited recently, though proxies report the waits since their start.

use core::time::Duration;
use std::collections::BTreeMap;

use super::report::QueueReport;
use super::waits::Waits;

/// Recent waits are those of between one and two of these periods.
const PERIOD: Duration = Duration::from_secs(30);

/// The waits of a proxy's dispatched requests at earlier times, by priority.
#[derive(Clone, Debug)]
pub struct EarlierWaits {
    since: Duration,
    older: BTreeMap<i32, Waits>,
    newer: BTreeMap<i32, Waits>,
}

impl EarlierWaits {
    /// Those of a proxy's first report: no wait is recent yet.
    pub(in crate::api) fn begin(report: &QueueReport, now: Duration) -> Self {
        let waits = dispatched(report);
        Self { since: now, older: waits.clone(), newer: waits }
    }

    /// Those to compare the proxy's next report with.
    #[must_use]
    pub(in crate::api) fn next(self, report: &QueueReport, now: Duration) -> Self {
        if now.saturating_sub(self.since) < PERIOD {
            return self;
        }
        Self { since: now, older: self.newer, newer: dispatched(report) }
    }

    /// The recent waits of a band.
    pub(super) fn recent(&self, priority: i32, waits: &Waits) -> Waits {
        self.older.get(&priority).map_or_else(|| waits.clone(), |older| waits.without(older))
    }
}

fn dispatched(report: &QueueReport) -> BTreeMap<i32, Waits> {
    let bands = report.bands.iter();
    bands.filter_map(|band| Some((band.priority, band.dispatched()?.clone()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use endpoint_picker_wire::report::{Band, BandOutcome, FlowControl};

    fn report(dispatched: u64) -> QueueReport {
        let outcome = "Dispatched".to_owned();
        let outcomes = vec![BandOutcome { outcome, waits: vec![dispatched], wait_seconds: 0.0 }];
        let bands = vec![Band { outcomes, ..Band::default() }];
        QueueReport::read(&FlowControl { bands, ..FlowControl::default() }).unwrap()
    }

    #[test]
    fn waits_are_recent_for_one_to_two_periods() {
        let mut earlier = EarlierWaits::begin(&report(1000), Duration::ZERO);
        let recent = |earlier: &EarlierWaits, dispatched: u64| {
            earlier.recent(0, report(dispatched).bands[0].dispatched().unwrap()).requests()
        };
        let mut found = vec![recent(&earlier, 1000)];
        // One request a second.
        for second in 1..=95 {
            let now = report(1000 + second);
            earlier = earlier.next(&now, Duration::from_secs(second));
            found.push(recent(&earlier, 1000 + second));
        }
        assert_eq!(
            (found[0], found[29], found[30], found[59], found[60], found[95]),
            (0, 29, 30, 59, 30, 35)
        );
        assert_eq!(earlier.recent(7, report(3).bands[0].dispatched().unwrap()).requests(), 3, "a new band");
    }
}
