//! Fairness policies: which flow of a band goes next.

mod global_strict_fairness_policy;
mod program_aware_fairness;
mod round_robin_fairness_policy;

pub use global_strict_fairness_policy::GlobalStrictFairnessPolicy;
pub use program_aware_fairness::ProgramAwareFairness;
pub(crate) use program_aware_fairness::Range;
pub use round_robin_fairness_policy::RoundRobinFairnessPolicy;

use std::sync::Arc;

/// The rule by which a band serves its flows.
#[derive(Clone, Debug, PartialEq)]
pub enum Fairness {
    /// The request that the ordering policy ranks first, whatever its flow.
    GlobalStrict,
    /// The flows in turn.
    RoundRobin,
    /// The flow that has been served least, or waits longest.
    ProgramAware(Arc<ProgramAwareFairness>),
}
