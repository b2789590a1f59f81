//! Fairness policies: which flow of a band goes next.

mod program_aware_fairness;

use std::sync::Arc;

use serde::Deserialize;

use crate::plugin::{Plugin, Roles};
pub use program_aware_fairness::ProgramAwareFairness;
pub(crate) use program_aware_fairness::Range;

/// The rule by which a band serves its flows.
#[derive(Clone, Debug, PartialEq)]
pub enum Fairness {
    /// The request that the ordering policy ranks first, whatever its flow.
    GlobalStrict,
    /// The flows in turn.
    RoundRobin,
    /// The flow that has been served the least, or is furthest, or waits the longest.
    ProgramAware(Arc<ProgramAwareFairness>),
}

/// `global-strict-fairness-policy`: the request that the ordering policy ranks first among all flows of the
/// band.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GlobalStrictFairnessPolicy {}

impl Plugin for GlobalStrictFairnessPolicy {
    fn roles(self: Arc<Self>) -> Roles {
        Roles { fairness: Some(Fairness::GlobalStrict), ..Roles::default() }
    }
}

/// `round-robin-fairness-policy`: the flows in the order of their ids, beginning after the one that was
/// served last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoundRobinFairnessPolicy {}

impl Plugin for RoundRobinFairnessPolicy {
    fn roles(self: Arc<Self>) -> Roles {
        Roles { fairness: Some(Fairness::RoundRobin), ..Roles::default() }
    }
}
