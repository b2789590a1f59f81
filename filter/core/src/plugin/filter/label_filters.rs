//! `label-selector-filter`, and its deprecated form `by-label`.

use std::sync::Arc;

use serde::Deserialize;

use crate::cycle::Cycle;
use crate::plugin::{Filter, LabelSelector, Plugin, Roles};
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
}

/// `by-label`: keeps the endpoints whose label has one of the values. Deprecated.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ByLabel {
    /// The label; not empty.
    label: String,
    /// The values; an endpoint without the label has the empty one.
    valid_values: Vec<String>,
    /// Keeps endpoints without the label too.
    allows_no_label: bool,
}

impl Plugin for ByLabel {
    fn check(&self) -> Result<(), String> {
        if self.label.is_empty() {
            return Err("label is empty; a label's name is needed".to_owned());
        }
        if self.valid_values.is_empty() && !self.allows_no_label {
            return Err("validValues is empty; name one, or set allowsNoLabel".to_owned());
        }
        Ok(())
    }

    fn roles(self: Arc<Self>) -> Roles {
        Roles { filter: Some(self), ..Roles::default() }
    }
}

impl Filter for ByLabel {
    fn filter(&self, cycle: &Cycle<'_>, candidates: &mut Vec<usize>, _: &mut dyn Rng) {
        candidates.retain(|&endpoint| {
            let label = cycle.endpoint(endpoint).label(&self.label);
            label.is_none() && self.allows_no_label
                || self.valid_values.iter().any(|value| value == label.unwrap_or_default())
        });
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

    fn by_label(valid_values: &[&str], allows_no_label: bool) -> ByLabel {
        let valid_values = valid_values.iter().map(|&value| value.to_owned()).collect();
        ByLabel { label: "tier".to_owned(), valid_values, allows_no_label }
    }

    #[test]
    fn the_deprecated_form_keeps_listed_values_and_if_wanted_endpoints_without_the_label() {
        assert_eq!(fixture().kept(&by_label(&["gold"], false), 1), [0]);
        assert_eq!(fixture().kept(&by_label(&["gold"], true), 1), [0, 3]);
        assert_eq!(fixture().kept(&by_label(&[], true), 1), [3]);
        assert_eq!(fixture().kept(&by_label(&[""], false), 1), [2, 3]);
    }

    #[test]
    fn the_deprecated_form_needs_a_label_and_something_to_keep() {
        assert!(by_label(&[], false).check().is_err());
        assert!(ByLabel { label: String::new(), ..by_label(&["x"], false) }.check().is_err());
        assert_eq!(by_label(&[], true).check(), Ok(()));
    }
}
