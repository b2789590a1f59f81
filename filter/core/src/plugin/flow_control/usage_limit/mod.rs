//! Usage limit policies: the saturation up to which requests of a priority go on.

mod priority_holdback_policy;
mod soft_reflective_ceiling_policy;
mod static_usage_limit_policy;

pub use priority_holdback_policy::PriorityHoldbackPolicy;
pub use soft_reflective_ceiling_policy::SoftReflectiveCeilingPolicy;
pub use static_usage_limit_policy::StaticUsageLimitPolicy;

use core::fmt::Debug;

/// Limits the share of the pool that each priority may use.
pub trait UsageLimitPolicy: Debug + Send + Sync {
    /// Fills in a ceiling for each of the priorities, which descend: a band goes on while the saturation is below its ceiling.
    /// Called once for each dispatch cycle, with the same `counter`, which the policy may use.
    fn ceilings(&self, saturation: f64, priorities: &[i32], counter: &mut u64, ceilings: &mut Vec<f64>);
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
