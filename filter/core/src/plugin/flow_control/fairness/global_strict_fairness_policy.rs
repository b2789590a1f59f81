//! `global-strict-fairness-policy`: one order for all flows of a band.

use std::sync::Arc;

use serde::Deserialize;

use super::Fairness;
use crate::plugin::{Plugin, Roles};

/// The request that the ordering policy ranks first among all flows of the band.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GlobalStrictFairnessPolicy {}

impl Plugin for GlobalStrictFairnessPolicy {
    fn roles(self: Arc<Self>) -> Roles {
        Roles { fairness: Some(Fairness::GlobalStrict), ..Roles::default() }
    }
}
