//! `round-robin-fairness-policy`: the flows of a band in turn.

use std::sync::Arc;

use serde::Deserialize;

use super::Fairness;
use crate::plugin::{Plugin, Roles};

/// The flows in the order of their ids, beginning after the one that was served last.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoundRobinFairnessPolicy {}

impl Plugin for RoundRobinFairnessPolicy {
    fn roles(self: Arc<Self>) -> Roles {
        Roles { fairness: Some(Fairness::RoundRobin), ..Roles::default() }
    }
}
