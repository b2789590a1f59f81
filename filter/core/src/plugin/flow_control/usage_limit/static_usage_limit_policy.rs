//! `static-usage-limit-policy`: one ceiling for all priorities.

use std::sync::Arc;

use serde::Deserialize;

use super::UsageLimitPolicy;
use crate::plugin::parameter::allow;
use crate::plugin::{Plugin, Roles};

/// `threshold` for every priority.
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
    use super::super::ceilings;
    use super::*;
    use crate::test;

    #[test]
    fn all_priorities_have_the_threshold() {
        assert_eq!(ceilings(&StaticUsageLimitPolicy::default(), 0.3, &[5, 0, -1], &mut 0), [1.0; 3]);
        assert!(StaticUsageLimitPolicy { threshold: f64::NAN }.check().is_err());
        assert!(StaticUsageLimitPolicy { threshold: -0.5 }.check().is_err());
    }
}
