//! `header-label-affinity-scorer`: endpoints whose label has the value of a header.

use std::sync::Arc;

use serde::Deserialize;

use crate::input::cycle::Cycle;
use crate::plugin::{Plugin, Roles, Scorer};

/// 1 for an endpoint whose label has the value of the request's header, else 0; 0 for all without the header.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct HeaderLabelAffinityScorer {
    /// The header; needed.
    header_name: String,
    /// The label; needed.
    label_key: String,
}

impl Plugin for HeaderLabelAffinityScorer {
    fn check(&self) -> Result<(), String> {
        for (parameter, value) in [("headerName", &self.header_name), ("labelKey", &self.label_key)] {
            if value.is_empty() {
                return Err(format!("{parameter} is empty; a name is needed"));
            }
        }
        Ok(())
    }

    fn roles(self: Arc<Self>) -> Roles {
        Roles { scorer: Some(self), ..Roles::default() }
    }

    fn is_alpha(&self) -> bool {
        true
    }
}

impl Scorer for HeaderLabelAffinityScorer {
    fn score(&self, cycle: &Cycle<'_>, candidates: &[usize], scores: &mut [f64]) {
        let Some(value) = cycle.request.headers.get(&self.header_name) else { return };
        for (score, &endpoint) in scores.iter_mut().zip(candidates) {
            let is_equal = cycle.endpoint(endpoint).label(&self.label_key) == Some(value);
            *score = if is_equal { 1.0 } else { 0.0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::fixture::{Fixture, headers};
    use crate::test;

    fn scores(sent: &[(&str, &str)]) -> Vec<f64> {
        let scorer =
            HeaderLabelAffinityScorer { header_name: "X-Zone".to_owned(), label_key: "zone".to_owned() };
        let mut fixture = Fixture::of(3);
        fixture.label(0, "zone", "a");
        fixture.label(1, "zone", "b");
        fixture.request.headers = headers(sent);
        fixture.scores(&scorer)
    }

    #[test]
    fn the_endpoint_with_the_requests_label_scores_one() {
        assert_eq!(scores(&[("x-zone", "b")]), [0.0, 1.0, 0.0]);
        assert_eq!(scores(&[("x-zone", "c")]), [0.0; 3]);
    }

    #[test]
    fn without_the_header_no_endpoint_is_preferred() {
        assert_eq!(scores(&[]), [0.0; 3]);
        assert_eq!(scores(&[("x-zone", "")]), [0.0; 3]);
    }

    #[test]
    fn both_names_are_needed() {
        assert!(HeaderLabelAffinityScorer::default().check().is_err());
    }
}
