//! Usage limit policies: the saturation up to which requests of a priority are dispatched.

mod priority_holdback_policy;
mod session_admission_policy;
mod soft_reflective_ceiling_policy;

use core::fmt::Debug;
use std::sync::Arc;

use serde::Deserialize;

use crate::plugin::parameter::allow;
use crate::plugin::{Plugin, Roles};
pub use priority_holdback_policy::PriorityHoldbackPolicy;
pub use session_admission_policy::SessionAdmissionPolicy;
pub use soft_reflective_ceiling_policy::SoftReflectiveCeilingPolicy;

/// Limits the share of the pool that each priority may use.
pub trait UsageLimitPolicy: Debug + Send + Sync {
    /// Fills in a ceiling for each of the priorities, which descend: a band is served while the saturation is
    /// below its ceiling. Called once for each dispatch cycle, with the same `counter`, which the policy may
    /// use.
    fn ceilings(&self, saturation: f64, priorities: &[i32], counter: &mut u64, ceilings: &mut Vec<f64>);

    /// The part of the servers' caches that sessions in work may fill; `None`: they are not limited.
    fn cache_share(&self) -> Option<f64> {
        None
    }
}

/// The policy's ceilings, for tests.
#[cfg(test)]
fn ceilings(
    policy: &dyn UsageLimitPolicy,
    saturation: f64,
    priorities: &[i32],
    counter: &mut u64,
) -> Vec<f64> {
    let mut ceilings = Vec::new();
    policy.ceilings(saturation, priorities, counter, &mut ceilings);
    ceilings
}

/// `static-usage-limit-policy`: `threshold` for every priority.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct StaticUsageLimitPolicy {
    /// Saturation from which requests wait, 0 or more; 1: the pool is saturated.
    threshold: f64,
}

impl Default for StaticUsageLimitPolicy {
    fn default() -> Self {
        Self { threshold: 1.0 }
    }
}

impl Plugin for StaticUsageLimitPolicy {
    fn check(&self) -> Result<(), String> {
        let threshold = self.threshold;
        allow(threshold >= 0.0 && threshold.is_finite(), "threshold", threshold, "0 and above")
    }

    fn roles(self: Arc<Self>) -> Roles {
        Roles { usage_limit: Some(self), ..Roles::default() }
    }
}

impl UsageLimitPolicy for StaticUsageLimitPolicy {
    fn ceilings(&self, _: f64, priorities: &[i32], _: &mut u64, ceilings: &mut Vec<f64>) {
        ceilings.clear();
        ceilings.resize(priorities.len(), self.threshold);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    #[test]
    fn all_priorities_have_the_threshold() {
        assert_eq!(ceilings(&StaticUsageLimitPolicy::default(), 0.3, &[5, 0, -1], &mut 0), [1.0; 3]);
        assert!(StaticUsageLimitPolicy { threshold: f64::NAN }.check().is_err());
        assert!(StaticUsageLimitPolicy { threshold: -0.5 }.check().is_err());
    }
}
