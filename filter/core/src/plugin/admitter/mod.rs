//! Admitters: plugins that may turn a request away before it is scheduled.

mod latency_slo_admitter;

pub use latency_slo_admitter::LatencySloAdmitter;

use core::fmt::Debug;
use core::time::Duration;
use std::sync::Arc;

use serde::Deserialize;

use crate::input::cycle::Cycle;
use crate::plugin::parameter::allow;
use crate::plugin::{Plugin, Roles};
use crate::rng::Rng;

/// May turn a request away before it is scheduled.
pub trait Admitter: Debug + Send + Sync {
    /// Admits the request, or turns it away with a reason.
    fn admit(&self, cycle: &Cycle<'_>, candidates: &[usize], rng: &mut dyn Rng) -> Result<(), NotAdmitted>;
}

/// A request that is turned away.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotAdmitted {
    /// The reason, for the client.
    pub reason: String,
    /// Time after which the client may retry; `None`: not known.
    pub retry_after: Option<Duration>,
    /// Whether the reason is that no endpoint would keep the client's limits for the latency.
    pub misses_limits: bool,
}

/// `probabilistic-admitter`: turns a request of negative priority away with probability min(1, s^`power` ·
/// `k`), s the mean over the candidates of max(waiting / `queue_depth_threshold`, KV usage /
/// `kv_cache_util_threshold`).
///
/// A value that the server does not report counts as 0, and the age of values does not matter, as in the EPP.
/// The response is a 429, and a 500 in the EPP.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ProbabilisticAdmitter {
    /// Waiting requests at which an endpoint counts as saturated, above 0.
    queue_depth_threshold: i64,
    /// Share of the KV cache in use at which an endpoint counts as saturated, above 0.
    kv_cache_util_threshold: f64,
    /// Above 0.
    power: f64,
    /// Above 0.
    k: f64,
}

impl Default for ProbabilisticAdmitter {
    fn default() -> Self {
        Self { queue_depth_threshold: 5, kv_cache_util_threshold: 0.8, power: 5.0, k: 300.0 }
    }
}

impl Plugin for ProbabilisticAdmitter {
    fn check(&self) -> Result<(), String> {
        let positive =
            |parameter, value: f64| allow(value > 0.0 && value.is_finite(), parameter, value, "above 0");
        positive("queueDepthThreshold", self.queue_depth_threshold as f64)?;
        positive("kvCacheUtilThreshold", self.kv_cache_util_threshold)?;
        positive("power", self.power)?;
        positive("k", self.k)
    }

    fn roles(self: Arc<Self>) -> Roles {
        Roles { admitter: Some(self), ..Roles::default() }
    }
}

impl Admitter for ProbabilisticAdmitter {
    fn admit(&self, cycle: &Cycle<'_>, candidates: &[usize], rng: &mut dyn Rng) -> Result<(), NotAdmitted> {
        if cycle.request.priority >= 0 || candidates.is_empty() {
            return Ok(());
        }
        let saturation = self.saturation(cycle, candidates);
        let probability = (saturation.powf(self.power) * self.k).min(1.0);
        if rng.unit() < probability {
            let reason =
                format!("probabilistic-admitter: rejected, saturation={saturation:.3} prob={probability:.2}");
            return Err(NotAdmitted { reason, retry_after: None, misses_limits: false });
        }
        Ok(())
    }
}

impl ProbabilisticAdmitter {
    fn saturation(&self, cycle: &Cycle<'_>, candidates: &[usize]) -> f64 {
        let of_endpoint = |&endpoint: &usize| {
            let reading = cycle.reading(endpoint);
            let queue = reading.waiting.unwrap_or(0) as f64 / self.queue_depth_threshold as f64;
            queue.max(reading.kv_usage.unwrap_or(0.0) / self.kv_cache_util_threshold)
        };
        candidates.iter().map(of_endpoint).sum::<f64>() / candidates.len() as f64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::fixture::Fixture;
    use crate::pool::reading::Reading;
    use crate::rng::SplitMix64;
    use crate::test;

    fn fixture(priority: i32, loads: &[(u64, f64)]) -> Fixture {
        let reading = |&(waiting, kv_usage)| Reading {
            waiting: Some(waiting),
            kv_usage: Some(kv_usage),
            ..Reading::default()
        };
        let mut fixture = Fixture::with_readings(&loads.iter().map(reading).collect::<Vec<_>>());
        fixture.request.priority = priority;
        fixture
    }

    fn turned_away(admitter: &ProbabilisticAdmitter, fixture: &Fixture) -> usize {
        let candidates: Vec<usize> = (0..fixture.readings.len()).collect();
        let mut rng = SplitMix64::new(5);
        fixture.with_cycle(|cycle| {
            (0..10_000).filter(|_| admitter.admit(cycle, &candidates, &mut rng).is_err()).count()
        })
    }

    #[test]
    fn only_requests_of_negative_priority_are_turned_away() {
        let saturated = [(50, 1.0)];
        assert_eq!(turned_away(&ProbabilisticAdmitter::default(), &fixture(0, &saturated)), 0);
        assert_eq!(turned_away(&ProbabilisticAdmitter::default(), &fixture(-1, &saturated)), 10_000);
    }

    #[test]
    fn the_probability_grows_with_the_power_of_the_saturation() {
        // Half saturated: 0.5^2 · 1.
        let admitter = ProbabilisticAdmitter { power: 2.0, k: 1.0, ..ProbabilisticAdmitter::default() };
        let half = [(0, 0.4), (5, 0.0), (0, 0.0)];
        let turned = turned_away(&admitter, &fixture(-1, &half));
        assert!((2_350..2_650).contains(&turned), "{turned}");
        // 0.2^5 · 300 = 0.096.
        let turned = turned_away(&ProbabilisticAdmitter::default(), &fixture(-1, &[(1, 0.0)]));
        assert!((860..1_060).contains(&turned), "{turned}");
    }

    #[test]
    fn servers_that_did_not_say_are_idle() {
        let mut fixture = Fixture::of(2);
        fixture.request.priority = -1;
        assert_eq!(turned_away(&ProbabilisticAdmitter::default(), &fixture), 0);
    }

    #[test]
    fn the_reason_says_how_saturated_the_pool_is() {
        let reason = fixture(-1, &[(10, 0.0)]).with_cycle(|cycle| {
            ProbabilisticAdmitter::default().admit(cycle, &[0], &mut SplitMix64::new(1)).unwrap_err()
        });
        assert_eq!(reason.reason, "probabilistic-admitter: rejected, saturation=2.000 prob=1.00");
    }

    #[test]
    fn parameters_that_are_not_above_zero_are_refused() {
        let defaults = ProbabilisticAdmitter::default;
        assert!(ProbabilisticAdmitter { queue_depth_threshold: 0, ..defaults() }.check().is_err());
        assert!(ProbabilisticAdmitter { kv_cache_util_threshold: 0.0, ..defaults() }.check().is_err());
        assert!(ProbabilisticAdmitter { power: -1.0, ..defaults() }.check().is_err());
        assert_eq!(
            ProbabilisticAdmitter { k: 0.0, ..defaults() }.check().unwrap_err(),
            "k is 0; allowed is above 0"
        );
    }
}
