//! Recent waits of requests, from reports of all waits since the start of a proxy.

use core::time::Duration;
use std::collections::BTreeMap;

use super::QueueReport;
use super::tenants::TenantReport;
use super::waits::Waits;

/// The waits of a proxy's dispatched requests at earlier times.
#[derive(Clone, Debug)]
pub struct EarlierWaits(Earlier<Dispatched>);

/// Waits by band and by tenant.
#[derive(Clone, Debug, Default)]
struct Dispatched {
    bands: BTreeMap<i32, Waits>,
    tenants: BTreeMap<i32, BTreeMap<String, Waits>>,
}

impl EarlierWaits {
    /// Waits of a proxy's first report: no wait is recent yet.
    pub fn begin(report: &QueueReport, now: Duration) -> Self {
        Self(Earlier::begin(Dispatched::of(report), now))
    }

    /// Waits to compare the proxy's next report with.
    #[must_use]
    pub fn next(self, report: &QueueReport, now: Duration) -> Self {
        Self(self.0.next(RECENT, now, || Dispatched::of(report)))
    }

    /// The recent waits of a band.
    pub(super) fn of_band(&self, priority: i32, waits: &Waits) -> Waits {
        recent(waits, self.0.value().bands.get(&priority))
    }

    /// The recent waits of a tenant in a band.
    pub(super) fn of_tenant(&self, priority: i32, fairness_id: &str, waits: &Waits) -> Waits {
        recent(waits, self.0.value().tenants.get(&priority).and_then(|tenants| tenants.get(fairness_id)))
    }
}

fn recent(waits: &Waits, older: Option<&Waits>) -> Waits {
    older.map_or_else(|| waits.clone(), |older| waits.without(older))
}

impl Dispatched {
    fn of(report: &QueueReport) -> Self {
        let mut dispatched = Self::default();
        for band in &report.bands {
            if let Some(waits) = band.outcomes.dispatched() {
                dispatched.bands.insert(band.priority, waits.clone());
            }
            let waits = |it: &TenantReport| Some((it.fairness_id.clone(), it.outcomes.dispatched()?.clone()));
            let tenants = band.tenants.iter().filter_map(waits).collect();
            dispatched.tenants.insert(band.priority, tenants);
        }
        dispatched
    }
}

/// Waits in the queue and responses are recent for one to two of these periods.
pub const RECENT: Duration = Duration::from_secs(30);

/// A value at two earlier times: the older one is between one and two periods old, unless it is the first.
#[derive(Clone, Debug)]
pub struct Earlier<T> {
    older: (Duration, T),
    newer: (Duration, T),
}

impl<T: Clone> Earlier<T> {
    /// Begins with this value: nothing is recent yet.
    pub fn begin(value: T, now: Duration) -> Self {
        Self { older: (now, value.clone()), newer: (now, value) }
    }

    /// Values to compare the next one with. `value` is the present one.
    #[must_use]
    pub fn next(self, period: Duration, now: Duration, value: impl FnOnce() -> T) -> Self {
        if now.saturating_sub(self.newer.0) < period {
            return self;
        }
        Self { older: self.newer, newer: (now, value()) }
    }

    /// The older value.
    pub fn value(&self) -> &T {
        &self.older.1
    }

    /// The time since the older value.
    pub fn elapsed(&self, now: Duration) -> Duration {
        now.saturating_sub(self.older.0)
    }
}

#[cfg(test)]
mod tests {
    use endpoint_picker_wire::report::{Band, BandOutcome, FlowControl};

    use super::*;

    fn report(dispatched: u64) -> QueueReport {
        let outcome = "Dispatched".to_owned();
        let outcomes = vec![BandOutcome { outcome, waits: vec![dispatched], ..BandOutcome::default() }];
        let bands = vec![Band { outcomes, ..Band::default() }];
        QueueReport::read(&FlowControl { bands, ..FlowControl::default() }).unwrap()
    }

    #[test]
    fn waits_are_recent_for_one_to_two_periods() {
        let mut earlier = EarlierWaits::begin(&report(1000), Duration::ZERO);
        let recent = |earlier: &EarlierWaits, dispatched: u64| {
            earlier.of_band(0, report(dispatched).bands[0].outcomes.dispatched().unwrap()).requests()
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
        let three = report(3);
        let waits = three.bands[0].outcomes.dispatched().unwrap();
        assert_eq!(earlier.of_band(7, waits).requests(), 3, "a new band");
        assert_eq!(earlier.of_tenant(0, "a", waits).requests(), 3, "a new tenant");
    }
}
