//! `label-selector-filter`: the endpoints with certain labels.

use std::sync::Arc;

use serde::Deserialize;

use crate::input::cycle::Cycle;
use crate::plugin::{Eligibility, Filter, LabelSelector, Plugin, Roles};
use crate::rng::Rng;

/// `label-selector-filter`: keeps the endpoints whose labels match. The parameters are the selector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct LabelSelectorFilter(LabelSelector);

impl Plugin for LabelSelectorFilter {
    fn check(&self) -> Result<(), String> {
        self.0.check()
    }

    fn roles(self: Arc<Self>) -> Roles {
        Roles { filter: Some(self), ..Roles::default() }
    }
}

impl Filter for LabelSelectorFilter {
    fn filter(&self, cycle: &Cycle<'_>, candidates: &mut Vec<usize>, _: &mut dyn Rng) {
        candidates.retain(|&endpoint| self.0.matches(cycle.endpoint(endpoint)));
    }

    fn eligibility(&self) -> Eligibility {
        Eligibility::SinceV011
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::fixture::Fixture;
    use crate::test;
    use serde_json::json;

    fn fixture() -> Fixture {
        let mut fixture = Fixture::of(4);
        fixture.label(0, "tier", "gold");
        fixture.label(1, "tier", "silver");
        fixture.label(2, "tier", "");
        fixture
    }

    #[test]
    fn endpoints_whose_labels_match_are_kept() {
        let selector =
            json!({"matchExpressions": [{"key": "tier", "operator": "In", "values": ["gold", "silver"]}]});
        let filter: LabelSelectorFilter = serde_json::from_value(selector).unwrap();
        assert_eq!(fixture().kept(&filter, 1), [0, 1]);
    }

    #[test]
    fn no_match_keeps_nothing() {
        let filter: LabelSelectorFilter =
            serde_json::from_value(json!({"matchLabels": {"tier": "bronze"}})).unwrap();
        assert_eq!(fixture().kept(&filter, 1), [0; 0]);
    }
}
