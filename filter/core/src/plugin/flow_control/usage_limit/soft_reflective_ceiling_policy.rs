//! `soft-reflective-ceiling-policy`: lower priorities are dispatched in a part of the cycles.

use std::sync::Arc;

use serde::Deserialize;

use super::UsageLimitPolicy;
use crate::plugin::{Plugin, Roles};

/// Keeps the period finite where the saturation is just below 1.
const ROUND_OFF: f64 = 1e-9;

/// The highest priority always has the ceiling 1. The i-th of n below it has 1 while the saturation is below
/// 1 − i·saturation/(n − 1), and above that in every k-th cycle, k = round(saturation / (1 − saturation)),
/// else 0. At saturation 1 it has 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SoftReflectiveCeilingPolicy {}

impl Plugin for SoftReflectiveCeilingPolicy {
    fn roles(self: Arc<Self>) -> Roles {
        Roles { usage_limit: Some(self), ..Roles::default() }
    }

    fn is_alpha(&self) -> bool {
        true
    }
}

impl UsageLimitPolicy for SoftReflectiveCeilingPolicy {
    fn ceilings(&self, saturation: f64, priorities: &[i32], counter: &mut u64, ceilings: &mut Vec<f64>) {
        let steps = priorities.len().saturating_sub(1).max(1) as f64;
        // The lowest priority is the first to be held back; cycles are counted only while it is, and not yet
        // stopped.
        let alternates = priorities.len() > 1 && saturation >= 1.0 - saturation && saturation < 1.0;
        let is_open = alternates && {
            *counter = counter.wrapping_add(1);
            let period = (saturation / (1.0 - saturation + ROUND_OFF)).round().max(1.0);
            *counter as f64 % period == 0.0
        };
        ceilings.clear();
        ceilings.extend((0..priorities.len()).map(|rank| {
            let reflective = 1.0 - rank as f64 * saturation / steps;
            if rank == 0 || saturation < reflective || is_open { 1.0 } else { 0.0 }
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::super::ceilings;
    use super::*;
    use crate::test;

    const BANDS: [i32; 3] = [1, 0, -1];

    fn cycle(saturation: f64, counter: &mut u64) -> Vec<f64> {
        ceilings(&SoftReflectiveCeilingPolicy {}, saturation, &BANDS, counter)
    }

    #[test]
    fn below_the_reflective_ceilings_all_are_open() {
        let mut counter = 0;
        assert_eq!(cycle(0.49, &mut counter), [1.0; 3]);
        assert_eq!(counter, 0);
    }

    #[test]
    fn lower_priorities_are_open_in_every_kth_cycle() {
        let mut counter = 0;
        // 0.75 / 0.25: every third. The middle band is held back from 1 / 1.5 on.
        let cycles: Vec<_> = (0..6).map(|_| cycle(0.75, &mut counter)).collect();
        let (open, held) = (vec![1.0; 3], vec![1.0, 0.0, 0.0]);
        assert_eq!(cycles, [&held, &held, &open, &held, &held, &open].map(Clone::clone));
        let mut counter = 0;
        assert_eq!(cycle(0.65, &mut counter), [1.0, 1.0, 0.0]);
        assert_eq!(cycle(0.65, &mut counter), [1.0; 3]);
    }

    #[test]
    fn a_saturated_pool_serves_the_highest_priority_only() {
        for saturation in [1.0, 3.0] {
            assert_eq!(cycle(saturation, &mut 0), [1.0, 0.0, 0.0]);
        }
        assert_eq!(ceilings(&SoftReflectiveCeilingPolicy {}, 2.0, &[0], &mut 0), [1.0]);
    }
}
