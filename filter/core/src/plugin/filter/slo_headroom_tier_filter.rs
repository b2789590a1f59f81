//! `slo-headroom-tier-filter`: endpoints that would keep the client's limits.

use std::sync::Arc;

use serde::Deserialize;

use crate::input::cycle::Cycle;
use crate::input::prediction::Prediction;
use crate::plugin::parameter::allow;
use crate::plugin::{Filter, Need, Plugin, Roles};
use crate::rng::Rng;

/// Keeps the candidates with both predicted headrooms at 0 or above, or with probability
/// `epsilon_explore_neg` the others. Keeps all where one of these groups is empty, or without predictions.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct SloHeadroomTierFilter {
    /// 0..=1.
    epsilon_explore_neg: f64,
    /// Empty: the default one.
    latency_prediction_info_producer_name: String,
}

impl Default for SloHeadroomTierFilter {
    fn default() -> Self {
        Self { epsilon_explore_neg: 0.01, latency_prediction_info_producer_name: String::new() }
    }
}

impl Plugin for SloHeadroomTierFilter {
    fn check(&self) -> Result<(), String> {
        let epsilon = self.epsilon_explore_neg;
        allow((0.0..=1.0).contains(&epsilon), "epsilonExploreNeg", epsilon, "0 to 1")
    }

    fn roles(self: Arc<Self>) -> Roles {
        Roles { filter: Some(self), ..Roles::default() }
    }

    fn needs(&self) -> Vec<Need<'_>> {
        vec![Need::latency_predictor(&self.latency_prediction_info_producer_name)]
    }
}

impl Filter for SloHeadroomTierFilter {
    fn filter(&self, cycle: &Cycle<'_>, candidates: &mut Vec<usize>, rng: &mut dyn Rng) {
        let predictions = cycle.predictions();
        let Some(predictions) = predictions.filter(|_| candidates.len() > 1) else { return };
        let is_positive = |endpoint: usize| predictions.at(endpoint).is_some_and(Prediction::is_positive);
        let positive = candidates.iter().filter(|&&endpoint| is_positive(endpoint)).count();
        if positive > 0 && positive < candidates.len() {
            let is_kept = rng.unit() >= self.epsilon_explore_neg;
            candidates.retain(|&endpoint| is_positive(endpoint) == is_kept);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::fixture::Fixture;
    use crate::test;

    fn fixture(headrooms: &[(f64, f64)]) -> Fixture {
        let mut fixture = Fixture::of(headrooms.len());
        fixture.predictions(headrooms.iter().map(|&(ttft_headroom, tpot_headroom)| Prediction {
            ttft_headroom,
            tpot_headroom,
            ..Prediction::default()
        }));
        fixture
    }

    fn filter(json: &str) -> SloHeadroomTierFilter {
        serde_json::from_str(json).unwrap()
    }

    const MIXED: [(f64, f64); 4] = [(1.0, 0.0), (-1.0, 5.0), (5.0, -1.0), (0.0, 0.0)];

    #[test]
    fn endpoints_with_headroom_are_kept_and_the_others_now_and_then() {
        let never = filter(r#"{"epsilonExploreNeg": 0}"#);
        assert_eq!(fixture(&MIXED).kept(&never, 1), [0, 3]);
        assert_eq!(fixture(&MIXED).kept(&filter(r#"{"epsilonExploreNeg": 1}"#), 1), [1, 2]);
        let (fixture, filter) = (fixture(&MIXED), filter("{}"));
        let explored = (0..10_000).filter(|&seed| fixture.kept(&filter, seed) == [1, 2]).count();
        assert!((70..130).contains(&explored), "{explored} of 10000");
    }

    #[test]
    fn all_are_kept_where_all_have_headroom_or_none_has_and_without_predictions() {
        let always = filter(r#"{"epsilonExploreNeg": 1}"#);
        assert_eq!(fixture(&MIXED[1..3]).kept(&always, 1), [0, 1]);
        assert_eq!(fixture(&[MIXED[0], MIXED[3]]).kept(&always, 1), [0, 1]);
        assert_eq!(fixture(&MIXED[..1]).kept(&always, 1), [0]);
        assert_eq!(Fixture::of(2).kept(&always, 1), [0, 1], "no predictions");
    }

    #[test]
    fn a_probability_is_0_to_1() {
        let refused = filter(r#"{"epsilonExploreNeg": 1.5}"#).check().unwrap_err();
        assert_eq!(refused, "epsilonExploreNeg is 1.5; allowed is 0 to 1");
    }
}
