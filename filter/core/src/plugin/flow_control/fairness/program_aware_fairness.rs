//! `program-aware-fairness`: the program that has been served least, or that is furthest, goes first.

use core::time::Duration;
use std::sync::Arc;

use serde::Deserialize;

use super::Fairness;
use crate::plugin::parameter::allow;
use crate::plugin::{Plugin, Roles};

/// Weights of a token of a prompt and of a completion in the service that a program has attained. The EPP's
/// numbers.
const INPUT_TOKEN: f64 = 1.0;
const OUTPUT_TOKEN: f64 = 2.0;

/// The EPP decays once for each dispatch cycle, which it runs every millisecond, where no half-life is set.
const CYCLE_SECONDS: f64 = 0.001;

/// The flow with the highest `las_weight_service` · (1 − norm(attained service)) + `las_weight_head_wait` ·
/// norm(wait of its first request). `norm` places a value between the least and the greatest of all waiting
/// flows; 0.5 where these are equal.
///
/// The strategy `turn-priority` serves the flow with the highest turn + `turn_priority_time_weight` · seconds
/// that its first request waits. The turn is one more than the program's dispatched requests (#2116 of the
/// EPP).
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ProgramAwareFairness {
    strategy: ProgramStrategy,
    /// Seconds after which an idle program is forgotten; 0: never.
    eviction_ttl_seconds: f64,
    /// Accepted for the EPP's sake: an idle program is forgotten at the end of its time to live, without a
    /// sweep.
    eviction_sweep_seconds: f64,
    las_weight_service: f64,
    las_weight_head_wait: f64,
    /// Factor for each millisecond of idleness; only without a half-life.
    las_decay_factor: f64,
    /// Seconds in which the service of an idle program halves; 0: `las_decay_factor` counts.
    las_half_life_seconds: f64,
    /// Turns that a second of waiting counts.
    turn_priority_time_weight: f64,
    /// Seconds after the last response of a program without requests in flight, from which it begins with
    /// turn 1; 0: never.
    turn_priority_inactivity_seconds: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum ProgramStrategy {
    /// The least attained service.
    #[serde(alias = "")]
    Las,
    TurnPriority,
}

impl Default for ProgramAwareFairness {
    fn default() -> Self {
        Self {
            strategy: ProgramStrategy::Las,
            eviction_ttl_seconds: 3600.0,
            eviction_sweep_seconds: 300.0,
            las_weight_service: 0.8,
            las_weight_head_wait: 0.2,
            las_decay_factor: 0.99997,
            las_half_life_seconds: 60.0,
            turn_priority_time_weight: 0.05,
            turn_priority_inactivity_seconds: 120.0,
        }
    }
}

impl Plugin for ProgramAwareFairness {
    fn check(&self) -> Result<(), String> {
        let finite =
            |parameter, value: f64| allow(value >= 0.0 && value.is_finite(), parameter, value, "0 and above");
        finite("evictionTtlSeconds", self.eviction_ttl_seconds)?;
        let sweep = self.eviction_sweep_seconds;
        allow(sweep > 0.0 && sweep.is_finite(), "evictionSweepSeconds", sweep, "above 0")?;
        finite("lasWeightService", self.las_weight_service)?;
        finite("lasWeightHeadWait", self.las_weight_head_wait)?;
        let factor = self.las_decay_factor;
        allow(factor > 0.0 && factor <= 1.0, "lasDecayFactor", factor, "above 0, up to 1")?;
        finite("lasHalfLifeSeconds", self.las_half_life_seconds)?;
        finite("turnPriorityTimeWeight", self.turn_priority_time_weight)?;
        finite("turnPriorityInactivitySeconds", self.turn_priority_inactivity_seconds)
    }

    fn roles(self: Arc<Self>) -> Roles {
        Roles { fairness: Some(Fairness::ProgramAware(self)), ..Roles::default() }
    }
}

impl ProgramAwareFairness {
    /// How long an idle program is remembered; `None`: without end.
    pub(crate) fn time_to_live(&self) -> Option<Duration> {
        positive_seconds(self.eviction_ttl_seconds)
    }

    /// Whether turns count, in place of service.
    pub(crate) fn counts_turns(&self) -> bool {
        self.strategy == ProgramStrategy::TurnPriority
    }

    /// How long after its last response a program begins with turn 1; `None`: it never does.
    pub(crate) fn inactivity(&self) -> Option<Duration> {
        positive_seconds(self.turn_priority_inactivity_seconds)
    }

    /// The score of a flow whose program has this turn, and whose first request waits for `wait` seconds.
    pub(crate) fn turn_score(&self, turn: u64, wait: f64) -> f64 {
        turn as f64 + self.turn_priority_time_weight * wait
    }

    /// Seconds in which the service of a program halves; 0: it does not.
    pub(crate) fn half_life_seconds(&self) -> f64 {
        self.las_half_life_seconds
    }

    /// The service of a request with these tokens.
    pub(crate) fn service(input_tokens: u64, output_tokens: u64) -> f64 {
        INPUT_TOKEN * input_tokens as f64 + OUTPUT_TOKEN * output_tokens as f64
    }

    /// The rest of a program's service after it was idle for this time.
    pub(crate) fn decayed(&self, service: f64, idle: Duration) -> f64 {
        let seconds = idle.as_secs_f64();
        let exponent = if self.las_half_life_seconds > 0.0 {
            seconds / self.las_half_life_seconds * 0.5_f64.ln()
        } else {
            seconds / CYCLE_SECONDS * self.las_decay_factor.ln()
        };
        service * exponent.exp()
    }

    /// The score of a waiting flow; the highest goes first.
    pub(crate) fn score(&self, service: f64, services: Range, wait: f64, waits: Range) -> f64 {
        self.las_weight_service * (1.0 - services.norm(service))
            + self.las_weight_head_wait * waits.norm(wait)
    }
}

/// A time; `None` for 0 and for times that are too long to be written.
fn positive_seconds(seconds: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(Some(seconds).filter(|seconds| *seconds > 0.0)?).ok()
}

/// The least and the greatest of several values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Range {
    pub(crate) least: f64,
    pub(crate) greatest: f64,
}

impl Range {
    /// The place of a value, 0..=1.
    fn norm(self, value: f64) -> f64 {
        let width = self.greatest - self.least;
        if width > 0.0 { (value - self.least) / width } else { 0.5 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    #[test]
    fn the_service_of_an_idle_program_halves_in_a_minute() {
        let policy = ProgramAwareFairness::default();
        let service = ProgramAwareFairness::service(100, 450);
        assert!((service - 1_000.0).abs() < 1e-9, "{service}");
        let left = policy.decayed(service, Duration::from_secs(120));
        assert!((left - 250.0).abs() < 1e-9, "{left}");
    }

    #[test]
    fn without_a_half_life_the_factor_counts_each_millisecond() {
        let policy = ProgramAwareFairness {
            las_half_life_seconds: 0.0,
            las_decay_factor: 0.5,
            ..ProgramAwareFairness::default()
        };
        let left = policy.decayed(800.0, Duration::from_millis(3));
        assert!((left - 100.0).abs() < 1e-9, "{left}");
    }

    #[test]
    fn little_service_counts_four_times_a_long_wait() {
        let policy = ProgramAwareFairness::default();
        let (services, waits) = (Range { least: 0.0, greatest: 100.0 }, Range { least: 0.0, greatest: 10.0 });
        let score = |service, wait| policy.score(service, services, wait, waits);
        assert!(score(0.0, 0.0) > score(100.0, 10.0));
        assert!(score(20.0, 0.0) < score(40.0, 10.0));
        let equal = Range { least: 5.0, greatest: 5.0 };
        assert!((policy.score(5.0, equal, 5.0, equal) - 0.5).abs() < 1e-9);
    }

    #[test]
    fn parameters_out_of_range_are_refused() {
        let defaults = ProgramAwareFairness::default;
        let refused = [
            ProgramAwareFairness { eviction_ttl_seconds: -1.0, ..defaults() },
            ProgramAwareFairness { eviction_sweep_seconds: 0.0, ..defaults() },
            ProgramAwareFairness { las_weight_service: -0.1, ..defaults() },
            ProgramAwareFairness { las_weight_head_wait: f64::NAN, ..defaults() },
            ProgramAwareFairness { las_decay_factor: 1.1, ..defaults() },
            ProgramAwareFairness { las_half_life_seconds: f64::INFINITY, ..defaults() },
            ProgramAwareFairness { turn_priority_time_weight: -0.1, ..defaults() },
            ProgramAwareFairness { turn_priority_inactivity_seconds: -1.0, ..defaults() },
        ];
        for policy in refused {
            assert!(policy.check().is_err(), "{policy:?}");
        }
        assert_eq!(defaults().check(), Ok(()));
    }
}
