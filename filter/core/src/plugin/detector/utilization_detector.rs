//! `utilization-detector`: saturation from the servers' readings.

use core::time::Duration;
use std::sync::Arc;

use serde::Deserialize;

use crate::input::cycle::Cycle;
use crate::plugin::parameter::allow;
use crate::plugin::{Filter, Plugin, Roles, SaturationDetector};
use crate::rng::Rng;

/// The EPP's: 50 ms between scrapes, 2 s until readings count as stale (by its flag
/// `--metrics-staleness-threshold`), and 250 ms in which a server aborts a request.
const LAG: Duration = Duration::from_millis(2_300);

/// Mean over the endpoints of max(waiting / `queue_depth_threshold`, KV usage / `kv_cache_util_threshold`).
///
/// An endpoint whose values are older than `metrics_staleness_threshold`, or that was never scraped, counts
/// as 1 or is left out of the mean, by `staleness_policy`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct UtilizationDetector {
    /// Share by which the filter lets an endpoint exceed the thresholds, 0 or more.
    headroom: f64,
    /// Waiting requests at which an endpoint counts as saturated, above 0.
    queue_depth_threshold: f64,
    /// Share of the KV cache in use at which an endpoint counts as saturated, above 0.
    kv_cache_util_threshold: f64,
    /// Age from which values are not trusted any more.
    #[serde(deserialize_with = "crate::plugin::parameter::duration::deserialize")]
    metrics_staleness_threshold: Duration,
    staleness_policy: StalenessPolicy,
}

/// How endpoints without fresh values count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum StalenessPolicy {
    /// As 1.
    #[default]
    Saturated,
    /// Not at all. The saturation of a pool without fresh values is 0.
    Ignore,
}

impl Default for UtilizationDetector {
    fn default() -> Self {
        Self {
            headroom: 0.0,
            queue_depth_threshold: 5.0,
            kv_cache_util_threshold: 0.8,
            metrics_staleness_threshold: Duration::from_millis(200),
            staleness_policy: StalenessPolicy::Saturated,
        }
    }
}

impl Plugin for UtilizationDetector {
    fn check(&self) -> Result<(), String> {
        let is_positive = |number: f64| number > 0.0 && number.is_finite();
        let (queue, cache) = (self.queue_depth_threshold, self.kv_cache_util_threshold);
        allow(is_positive(queue), "queueDepthThreshold", queue, "above 0")?;
        allow(is_positive(cache) && cache <= 1.0, "kvCacheUtilThreshold", cache, "above 0, up to 1")?;
        allow(!self.metrics_staleness_threshold.is_zero(), "metricsStalenessThreshold", "0", "above 0")?;
        allow(self.headroom >= 0.0 && self.headroom.is_finite(), "headroom", self.headroom, "0 and above")
    }

    fn roles(self: Arc<Self>) -> Roles {
        Roles { filter: Some(self.clone()), saturation_detector: Some(self), ..Roles::default() }
    }
}

/// Scrapes in which values stay fresh at least: in the EPP 200 ms by default, which scrapes every 50 ms.
const FRESH_SCRAPES: u32 = 4;

impl UtilizationDetector {
    /// The same detector, which trusts values for some scrapes at least. Without that it would count all
    /// endpoints as stale most of the time where scrapes are rare.
    pub(crate) fn at_interval(self, scrape_interval: Duration) -> Self {
        let least = scrape_interval.saturating_mul(FRESH_SCRAPES);
        let metrics_staleness_threshold = self.metrics_staleness_threshold.max(least);
        Self { metrics_staleness_threshold, ..self }
    }

    /// Waiting requests at which an endpoint counts as saturated.
    pub fn queue_depth_threshold(&self) -> f64 {
        self.queue_depth_threshold
    }

    /// Share of the KV cache in use at which an endpoint counts as saturated.
    pub fn kv_cache_util_threshold(&self) -> f64 {
        self.kv_cache_util_threshold
    }

    /// Waiting requests and KV usage relative to their thresholds; `None` if the values are too old or there
    /// are none.
    fn utilization(&self, cycle: &Cycle<'_>, endpoint: usize) -> Option<(f64, f64)> {
        let reading = cycle.reading(endpoint);
        reading.age(cycle.now).filter(|age| *age <= self.metrics_staleness_threshold)?;
        let queue = reading.waiting.unwrap_or(0) as f64 / self.queue_depth_threshold;
        let cache = reading.kv_usage.unwrap_or(0.0) / self.kv_cache_util_threshold;
        Some((queue, cache))
    }
}

impl Filter for UtilizationDetector {
    /// Keeps fresh endpoints below both thresholds, raised by the headroom; all when that would leave none.
    fn filter(&self, cycle: &Cycle<'_>, candidates: &mut Vec<usize>, _: &mut dyn Rng) {
        let limit = 1.0 + self.headroom;
        let fits = |&endpoint: &usize| {
            self.utilization(cycle, endpoint).is_some_and(|(queue, cache)| queue < limit && cache < limit)
        };
        if candidates.iter().any(fits) {
            candidates.retain(fits);
        }
    }
}

impl SaturationDetector for UtilizationDetector {
    fn saturation(&self, cycle: &Cycle<'_>, candidates: &[usize], _: u64) -> f64 {
        if candidates.is_empty() {
            return 1.0;
        }
        let utilization = |&endpoint: &usize| self.utilization(cycle, endpoint);
        let known = candidates.iter().filter_map(utilization).map(|(queue, cache)| queue.max(cache));
        let (sum, known) =
            known.fold((0.0, 0_usize), |(sum, count), saturation| (sum + saturation, count + 1));
        match self.staleness_policy {
            StalenessPolicy::Saturated => (sum + (candidates.len() - known) as f64) / candidates.len() as f64,
            StalenessPolicy::Ignore if known == 0 => 0.0,
            StalenessPolicy::Ignore => sum / known as f64,
        }
    }

    /// The next reading becomes too old after that.
    fn holds_until(&self, cycle: &Cycle<'_>, candidates: &[usize]) -> Option<Duration> {
        let updated = candidates.iter().filter_map(|&endpoint| cycle.reading(endpoint).updated);
        let ends = updated.map(|updated| updated.saturating_add(self.metrics_staleness_threshold));
        Some(ends.filter(|end| *end >= cycle.now).min().unwrap_or(Duration::MAX))
    }

    fn needs_readings(&self) -> bool {
        true
    }

    fn lag(&self) -> Duration {
        LAG
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::fixture::{Fixture, NOW};
    use crate::pool::reading::Reading;
    use crate::test;

    /// (waiting, KV usage, age in ms).
    fn readings(endpoints: &[(u64, f64, u64)]) -> Vec<Reading> {
        endpoints
            .iter()
            .map(|&(waiting, kv_usage, age)| Reading {
                updated: Some(NOW.saturating_sub(Duration::from_millis(age))),
                waiting: Some(waiting),
                kv_usage: Some(kv_usage),
                ..Reading::default()
            })
            .collect()
    }

    fn detector() -> UtilizationDetector {
        UtilizationDetector {
            headroom: 0.0,
            queue_depth_threshold: 5.0,
            kv_cache_util_threshold: 0.9,
            metrics_staleness_threshold: Duration::from_millis(100),
            staleness_policy: StalenessPolicy::Saturated,
        }
    }

    fn saturation(endpoints: &[(u64, f64, u64)]) -> f64 {
        saturation_of(&readings(endpoints))
    }

    fn saturation_of(readings: &[Reading]) -> f64 {
        let candidates: Vec<usize> = (0..readings.len()).collect();
        Fixture::with_readings(readings).with_cycle(|cycle| detector().saturation(cycle, &candidates, 0))
    }

    #[test]
    fn the_filter_keeps_fresh_endpoints_below_the_thresholds() {
        let readings = readings(&[(4, 0.1, 0), (5, 0.1, 0), (0, 0.9, 0), (0, 0.0, 101), (0, 0.89, 100)]);
        assert_eq!(Fixture::with_readings(&readings).kept(&detector(), 1), [0, 4]);
        let roomy = UtilizationDetector { headroom: 0.2, ..detector() };
        assert_eq!(Fixture::with_readings(&readings).kept(&roomy, 1), [0, 1, 2, 4]);
    }

    #[test]
    fn the_filter_keeps_all_rather_than_none() {
        let readings = readings(&[(9, 0.1, 0), (0, 0.0, 500)]);
        assert_eq!(Fixture::with_readings(&readings).kept(&detector(), 1), [0, 1]);
    }

    #[test]
    fn thresholds_that_make_no_sense_are_refused() {
        let refused = [
            UtilizationDetector { queue_depth_threshold: 0.0, ..detector() },
            UtilizationDetector { kv_cache_util_threshold: 1.1, ..detector() },
            UtilizationDetector { metrics_staleness_threshold: Duration::ZERO, ..detector() },
            UtilizationDetector { headroom: -0.1, ..detector() },
        ];
        for detector in refused {
            assert!(detector.check().is_err(), "{detector:?}");
        }
        assert_eq!(detector().check(), Ok(()));
    }

    #[track_caller]
    fn assert_near(actual: f64, expected: f64) {
        assert!((actual - expected).abs() < 1e-4, "{actual} is not {expected}");
    }

    #[test]
    fn the_worse_of_queue_and_cache_decides() {
        assert_near(saturation(&[(2, 0.5, 0)]), 0.5556);
        assert_near(saturation(&[(10, 0.1, 0)]), 2.0);
        assert_near(saturation(&[(1, 0.95, 0)]), 1.0556);
        assert_near(saturation(&[(5, 0.1, 0)]), 1.0);
    }

    #[test]
    fn several_endpoints_are_averaged() {
        assert_near(saturation(&[(1, 0.1, 0), (0, 0.2, 0)]), 0.2111);
        assert_near(saturation(&[(1, 0.1, 0), (15, 0.2, 0)]), 1.6);
    }

    #[test]
    fn stale_values_count_as_saturated() {
        assert_near(saturation(&[(1, 0.1, 200)]), 1.0);
        assert_near(saturation(&[(1, 0.1, 101)]), 1.0);
        assert_near(saturation(&[(1, 0.1, 100)]), 0.2);
        assert_near(saturation(&[(1, 0.1, 0), (0, 0.2, 300)]), 0.6);
        assert_near(saturation(&[(1, 0.1, 200), (20, 0.2, 0), (1, 0.99, 0)]), 2.0333);
    }

    #[test]
    fn stale_values_can_be_left_out() {
        let ignoring = UtilizationDetector { staleness_policy: StalenessPolicy::Ignore, ..detector() };
        let saturation = |endpoints: &[(u64, f64, u64)]| {
            let candidates: Vec<usize> = (0..endpoints.len()).collect();
            let fixture = Fixture::with_readings(&readings(endpoints));
            fixture.with_cycle(|cycle| ignoring.saturation(cycle, &candidates, 0))
        };
        assert_near(saturation(&[(1, 0.1, 0), (0, 0.2, 300)]), 0.2);
        assert_near(saturation(&[(1, 0.1, 200)]), 0.0);
        assert_near(saturation(&[]), 1.0);
    }

    #[test]
    fn no_endpoints_and_never_scraped_ones_count_as_saturated() {
        assert_near(saturation(&[]), 1.0);
        assert_near(saturation_of(&[Reading::default()]), 1.0);
    }
}
