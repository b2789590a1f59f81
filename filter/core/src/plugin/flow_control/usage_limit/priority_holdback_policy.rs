//! `priority-holdback-policy`: the lower the priority, the earlier its requests wait.

use std::sync::Arc;

use serde::Deserialize;

use super::UsageLimitPolicy;
use crate::plugin::parameter::allow;
use crate::plugin::{Plugin, Roles};

/// Ceilings from `max_ceiling` for the highest priority to `min_ceiling` for the lowest; `max_ceiling` for a
/// single priority.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct PriorityHoldbackPolicy {
    /// 0 up to, but not including, 1; below `max_ceiling`. Required.
    min_ceiling: Option<f64>,
    /// Above 0, up to 1.
    max_ceiling: f64,
    domain: Domain,
    shape: Shape,
}

/// The measure of the distance between priorities.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Domain {
    /// Every step is equal.
    Rank,
    /// In proportion to the numbers.
    Value,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Shape {
    Linear,
}

impl Default for PriorityHoldbackPolicy {
    fn default() -> Self {
        Self { min_ceiling: None, max_ceiling: 1.0, domain: Domain::Rank, shape: Shape::Linear }
    }
}

impl Plugin for PriorityHoldbackPolicy {
    fn check(&self) -> Result<(), String> {
        let (min, max) = (self.min_ceiling.ok_or("minCeiling is missing; it is required")?, self.max_ceiling);
        allow((0.0..1.0).contains(&min), "minCeiling", min, "0 up to, but not including, 1")?;
        allow(max > 0.0 && max <= 1.0, "maxCeiling", max, "above 0, up to 1")?;
        allow(
            min < max,
            "minCeiling",
            min,
            format_args!("a number below maxCeiling, {max}").to_string().as_str(),
        )
    }

    fn roles(self: Arc<Self>) -> Roles {
        Roles { usage_limit: Some(self), ..Roles::default() }
    }

    fn is_alpha(&self) -> bool {
        true
    }
}

impl UsageLimitPolicy for PriorityHoldbackPolicy {
    fn ceilings(&self, _: f64, priorities: &[i32], _: &mut u64, ceilings: &mut Vec<f64>) {
        let spread = self.max_ceiling - self.min_ceiling.unwrap_or_default();
        let (Some(&highest), Some(&lowest)) = (priorities.first(), priorities.last()) else { return };
        let steps = priorities.len().saturating_sub(1).max(1) as f64;
        // Priorities are 32-bit numbers, but their distance may not be one.
        let width = (f64::from(highest) - f64::from(lowest)).max(1.0);
        ceilings.clear();
        ceilings.extend(priorities.iter().enumerate().map(|(rank, &priority)| {
            let below_highest = match self.domain {
                Domain::Rank => rank as f64 / steps,
                Domain::Value => (f64::from(highest) - f64::from(priority)) / width,
            };
            self.max_ceiling - below_highest * spread
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::super::ceilings;
    use super::*;
    use crate::test;

    fn policy(min: f64, max: f64, domain: Domain) -> PriorityHoldbackPolicy {
        PriorityHoldbackPolicy { min_ceiling: Some(min), max_ceiling: max, domain, shape: Shape::Linear }
    }

    #[track_caller]
    fn assert_near(actual: &[f64], expected: &[f64]) {
        let is_near = actual.iter().zip(expected).all(|(a, b)| (a - b).abs() < 1e-9);
        assert!(actual.len() == expected.len() && is_near, "{actual:?} is not {expected:?}");
    }

    #[test]
    fn ranks_are_apart_by_equal_steps() {
        let policy = policy(0.4, 1.0, Domain::Rank);
        assert_near(&ceilings(&policy, 0.0, &[100, 1, 0, -7], &mut 0), &[1.0, 0.8, 0.6, 0.4]);
        assert_near(&ceilings(&policy, 0.0, &[3], &mut 0), &[1.0]);
    }

    #[test]
    fn values_are_apart_by_their_distance() {
        let policy = policy(0.5, 0.9, Domain::Value);
        assert_near(&ceilings(&policy, 0.0, &[10, 5, 0], &mut 0), &[0.9, 0.7, 0.5]);
        let extremes = [i32::MAX, 0, i32::MIN];
        let middle = 0.5 + 0.4 * 2_147_483_648.0 / 4_294_967_295.0;
        assert_near(&ceilings(&policy, 0.0, &extremes, &mut 0), &[0.9, middle, 0.5]);
        assert_near(&ceilings(&policy, 0.0, &[-3], &mut 0), &[0.9]);
    }

    #[test]
    fn ceilings_out_of_range_are_refused() {
        assert_eq!(
            PriorityHoldbackPolicy::default().check().unwrap_err(),
            "minCeiling is missing; it is required"
        );
        for (min, max) in [(1.0, 1.0), (-0.1, 1.0), (0.0, 0.0), (0.5, 1.1), (0.5, 0.5), (f64::NAN, 1.0)] {
            assert!(policy(min, max, Domain::Rank).check().is_err(), "{min} {max}");
        }
        assert_eq!(policy(0.0, 1.0, Domain::Rank).check(), Ok(()));
    }
}
