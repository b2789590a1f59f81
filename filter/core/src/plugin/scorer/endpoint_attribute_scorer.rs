//! `endpoint-attribute-scorer`: a score from one attribute.

use std::sync::Arc;

use serde::Deserialize;

use crate::input::cycle::Cycle;
use crate::plugin::endpoint_attribute::{Attribute, AttributeRef};
use crate::plugin::parameter::allow;
use crate::plugin::{Need, Plugin, Roles, Scorer};

/// (v − min) / (max − min) if higher is better, 1 minus that if lower is, v the endpoint's value.
///
/// min and max are those of a fixed range, outside of which the score is 0 or 1, or else the least and the
/// greatest value of any candidate; if these are equal, every candidate that has a value scores 1. One that
/// has none scores 0 and has no part in the range.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct EndpointAttributeScorer {
    attribute_key: String,
    /// The plugin that publishes the attribute; `core-metrics-extractor` if not given.
    producer: Option<String>,
    algorithm: ScoreAlgorithm,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct ScoreAlgorithm {
    #[serde(rename = "type")]
    kind: Option<ScoreKind>,
    normalization: Normalization,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ScoreKind {
    LinearLowerIsBetter,
    LinearHigherIsBetter,
}

#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Normalization {
    fixed_range: Option<AttributeRange>,
    adaptive_range: Option<Adaptive>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct AttributeRange {
    min: f64,
    max: f64,
}

/// Adapting has nothing to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Adaptive {}

impl EndpointAttributeScorer {
    fn attribute(&self) -> AttributeRef<'_> {
        AttributeRef {
            parameter: "attributeKey",
            key: &self.attribute_key,
            producer: self.producer.as_deref(),
        }
    }
}

impl Plugin for EndpointAttributeScorer {
    fn check(&self) -> Result<(), String> {
        self.attribute().check()?;
        if self.algorithm.kind.is_none() {
            let types = "linear_lower_is_better or linear_higher_is_better";
            return Err(format!("algorithm.type is not given; allowed is {types}"));
        }
        match &self.algorithm.normalization {
            Normalization { fixed_range: Some(_), adaptive_range: Some(_) } => {
                Err("algorithm.normalization has fixedRange and adaptiveRange; one is allowed".to_owned())
            }
            Normalization { fixed_range: Some(AttributeRange { min, max }), .. } => {
                let range = format!("{min} to {max}");
                allow(min < max, "algorithm.normalization.fixedRange", range, "min below max")
            }
            Normalization { .. } => Ok(()),
        }
    }

    fn roles(self: Arc<Self>) -> Roles {
        Roles { scorer: Some(self), ..Roles::default() }
    }

    fn needs(&self) -> Vec<Need<'_>> {
        self.attribute().needs()
    }

    fn warnings(&self) -> Vec<String> {
        self.attribute().warnings()
    }

    fn is_alpha(&self) -> bool {
        true
    }
}

impl Scorer for EndpointAttributeScorer {
    fn score(&self, cycle: &Cycle<'_>, candidates: &[usize], scores: &mut [f64]) {
        let Some(attribute) = self.attribute().find() else { return };
        let values = || candidates.iter().map(|&endpoint| attribute.value(cycle, endpoint));
        let AttributeRange { min, max } = self.algorithm.normalization.fixed_range.unwrap_or_else(|| {
            let nothing = AttributeRange { min: f64::INFINITY, max: f64::NEG_INFINITY };
            let widen = |range: AttributeRange, value: f64| AttributeRange {
                min: range.min.min(value),
                max: range.max.max(value),
            };
            values().flatten().fold(nothing, widen)
        });
        for (score, value) in scores.iter_mut().zip(values()) {
            let Some(value) = value else { continue };
            let high = ((value - min) / (max - min)).clamp(0.0, 1.0);
            *score = match self.algorithm.kind {
                Some(_) | None if max <= min => 1.0,
                Some(ScoreKind::LinearHigherIsBetter) => high,
                Some(ScoreKind::LinearLowerIsBetter) | None => 1.0 - high,
            };
        }
    }

    fn explain(&self, cycle: &Cycle<'_>, _: &[usize], endpoint: usize) -> Option<String> {
        Some(self.attribute().find()?.explain(cycle, endpoint))
    }

    fn reads_readings(&self) -> bool {
        !self.attribute().find().is_some_and(Attribute::is_load)
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::plugin::NeedKind;
    use crate::plugin::fixture::{Fixture, NOW, assert_near, waiting};
    use crate::pool::load::Load;
    use crate::pool::reading::{GPU_UTILIZATION, Reading};
    use crate::test;
    use serde_json::json;

    fn scorer(attribute: &str, kind: &str, normalization: &serde_json::Value) -> EndpointAttributeScorer {
        let algorithm = json!({"type": kind, "normalization": normalization});
        serde_json::from_value(json!({"attributeKey": attribute, "algorithm": algorithm})).unwrap()
    }

    fn scores(scorer: &EndpointAttributeScorer, readings: &[Reading]) -> Vec<f64> {
        assert_eq!(scorer.check(), Ok(()));
        Fixture::with_readings(readings).scores(scorer)
    }

    #[test]
    fn values_are_compared_with_each_other() {
        let readings = [waiting(10), waiting(4), waiting(0), Reading::default()];
        let lower = scorer("WaitingQueueSize", "linear_lower_is_better", &json!({"adaptiveRange": {}}));
        assert_near(&scores(&lower, &readings), &[0.0, 0.6, 1.0, 0.0]);
        let higher = scorer("WaitingQueueSize", "linear_higher_is_better", &json!({}));
        assert_near(&scores(&higher, &readings), &[1.0, 0.4, 0.0, 0.0]);
    }

    #[test]
    fn the_explanation_has_the_value_its_source_and_its_age() {
        let taken = Some(NOW.saturating_sub(Duration::from_millis(40)));
        let attributes = vec![("busy".to_owned(), 2.5), (GPU_UTILIZATION.to_owned(), 0.75)];
        let readings = [Reading { updated: taken, attributes, ..waiting(3) }, Reading::default()];
        let mut fixture = Fixture::with_readings(&readings);
        fixture.in_flight = vec![Load { requests: 2, tokens: 0 }];
        let explain = |attribute: &str, endpoint: usize| {
            let scorer = scorer(attribute, "linear_lower_is_better", &json!({}));
            fixture.with_cycle(|cycle| scorer.explain(cycle, &[0, 1], endpoint)).unwrap()
        };
        assert_eq!(explain("WaitingQueueSize", 0), "WaitingQueueSize 3 of core-metrics-extractor, 40 ms old");
        assert_eq!(explain("busy", 0), "busy 2.5 of core-metrics-extractor, 40 ms old");
        assert_eq!(explain("busy", 1), "no busy of core-metrics-extractor");
        let load = "InFlightRequests/inflight-load-producer";
        assert_eq!(explain(load, 0), "InFlightRequests 2 of inflight-load-producer, now");
        let gpu = "GPUUtilization/dcgm-extractor";
        assert_eq!(explain(gpu, 0), "GPUUtilization 0.75 of dcgm-extractor, of unknown age");
    }

    #[test]
    fn equal_values_score_one_and_missing_ones_zero() {
        let lower = scorer("WaitingQueueSize", "linear_lower_is_better", &json!({}));
        assert_near(&scores(&lower, &[waiting(5), Reading::default(), waiting(5)]), &[1.0, 0.0, 1.0]);
        assert_near(&scores(&lower, &[Reading::default()]), &[0.0]);
    }

    #[test]
    fn a_fixed_range_does_not_depend_on_the_others() {
        let range = json!({"fixedRange": {"min": 0.2, "max": 0.7}});
        let lower = scorer("KVCacheUsagePercent", "linear_lower_is_better", &range);
        let readings = [0.1, 0.2, 0.45, 0.9].map(|kv| Reading { kv_usage: Some(kv), ..Reading::default() });
        assert_near(&scores(&lower, &readings), &[1.0, 1.0, 0.5, 0.0]);
    }

    #[test]
    fn what_is_in_flight_is_an_attribute_too() {
        let algorithm = json!({"type": "linear_lower_is_better"});
        for (attribute, expected) in [("InFlightRequests", [1.0, 0.0]), ("InFlightTokens", [0.0, 1.0])] {
            let scorer: EndpointAttributeScorer = serde_json::from_value(json!({
                "attributeKey": attribute, "producer": "inflight-load-producer", "algorithm": algorithm,
            }))
            .unwrap();
            let mut fixture = Fixture::of(2);
            fixture.in_flight = vec![Load { requests: 1, tokens: 9 }, Load { requests: 2, tokens: 3 }];
            assert_near(&fixture.scores(&scorer), &expected);
        }
    }

    #[test]
    fn an_attribute_that_is_not_published_is_refused_with_the_list_of_those_there_are() {
        let of_load = |attribute: &str| -> EndpointAttributeScorer {
            let producer = "inflight-load-producer";
            serde_json::from_value(json!({"attributeKey": attribute, "producer": producer})).unwrap()
        };
        let error = of_load("gpu_temperature").check().unwrap_err();
        assert!(
            error.contains("gpu_temperature") && error.contains("InFlightTokens of inflight-load-producer")
        );
        assert!(of_load("WaitingQueueSize").check().is_err(), "wrong producer");
        assert!(scorer("", "linear_lower_is_better", &json!({})).check().is_err(), "no name");
    }

    #[test]
    fn a_custom_metric_is_an_attribute_by_its_own_name() {
        let scorer = scorer("gpu_temperature", "linear_lower_is_better", &json!({}));
        let need = Need { parameter: "attributeKey", name: "gpu_temperature", kind: NeedKind::CustomMetric };
        assert_eq!(scorer.needs(), [need]);
        let reading =
            |name: &str, value| Reading { attributes: vec![(name.to_owned(), value)], ..Reading::default() };
        let readings =
            [reading("gpu_temperature", 80.0), reading("gpu_temperature", -20.0), reading("other", 1.0)];
        assert_near(&scores(&scorer, &readings), &[0.0, 1.0, 0.0]);
    }

    #[test]
    fn ranges_that_make_no_sense_are_refused() {
        let check =
            |normalization| scorer("WaitingQueueSize", "linear_lower_is_better", &normalization).check();
        assert!(check(json!({"fixedRange": {"min": 1, "max": 1}})).is_err());
        assert!(check(json!({"fixedRange": {"min": 0, "max": 1}, "adaptiveRange": {}})).is_err());
        let untyped = json!({"attributeKey": "WaitingQueueSize"});
        assert!(serde_json::from_value::<EndpointAttributeScorer>(untyped).unwrap().check().is_err());
    }
}
