//! `endpoint-attribute-filter`: endpoints of which one attribute is on the right side of a threshold.

use std::sync::Arc;

use serde::Deserialize;

use super::OnMissing;
use crate::input::cycle::Cycle;
use crate::plugin::endpoint_attribute::AttributeRef;
use crate::plugin::{Filter, Need, Plugin, Roles};
use crate::rng::Rng;

/// Keeps the endpoints of which the attribute's value compares with the threshold's as its operator says, and
/// by `on_missing` those that have no value.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct EndpointAttributeFilter {
    #[serde(default)]
    attribute: String,
    /// The plugin that publishes the attribute; `core-metrics-extractor` if not given.
    #[serde(default)]
    producer: Option<String>,
    #[serde(default)]
    on_missing: OnMissing,
    /// Keeps all rather than none.
    #[serde(default)]
    fallback_on_empty: bool,
    #[serde(default)]
    algorithm: Option<Algorithm>,
}

// Not an enum with its tag in `type`: that would be read from a copy, in which null is a value.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Algorithm {
    #[serde(rename = "type")]
    _kind: AlgorithmKind,
    threshold: Threshold,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
enum AlgorithmKind {
    Threshold,
}

#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Threshold {
    operator: ThresholdOperator,
    #[serde(default)]
    value: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
enum ThresholdOperator {
    LessThan,
    LessThanOrEqual,
    GreaterThan,
    GreaterThanOrEqual,
    Equal,
    NotEqual,
}

impl Threshold {
    #[expect(clippy::float_cmp, reason = "the operators compare exactly, as in the EPP")]
    fn keeps(self, value: f64) -> bool {
        match self.operator {
            ThresholdOperator::LessThan => value < self.value,
            ThresholdOperator::LessThanOrEqual => value <= self.value,
            ThresholdOperator::GreaterThan => value > self.value,
            ThresholdOperator::GreaterThanOrEqual => value >= self.value,
            ThresholdOperator::Equal => value == self.value,
            ThresholdOperator::NotEqual => value != self.value,
        }
    }
}

impl EndpointAttributeFilter {
    fn attribute(&self) -> AttributeRef<'_> {
        AttributeRef { parameter: "attribute", key: &self.attribute, producer: self.producer.as_deref() }
    }
}

impl Plugin for EndpointAttributeFilter {
    fn check(&self) -> Result<(), String> {
        self.attribute().check()?;
        if self.algorithm.is_none() {
            return Err("algorithm is not given; allowed is one of the type threshold".to_owned());
        }
        Ok(())
    }

    fn roles(self: Arc<Self>) -> Roles {
        Roles { filter: Some(self), ..Roles::default() }
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

impl Filter for EndpointAttributeFilter {
    fn filter(&self, cycle: &Cycle<'_>, candidates: &mut Vec<usize>, _: &mut dyn Rng) {
        let (Some(attribute), Some(Algorithm { threshold, .. })) = (self.attribute().find(), self.algorithm)
        else {
            return;
        };
        let fits = |&endpoint: &usize| {
            let value = attribute.value(cycle, endpoint);
            value.map_or(self.on_missing == OnMissing::Pass, |value| threshold.keeps(value))
        };
        if !self.fallback_on_empty || candidates.iter().any(fits) {
            candidates.retain(fits);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::NeedKind;
    use crate::plugin::fixture::{Fixture, waiting};
    use crate::pool::reading::Reading;
    use crate::test;
    use serde_json::{Value, json};

    fn filter(operator: &str, value: f64, more: &Value) -> EndpointAttributeFilter {
        let threshold = json!({"operator": operator, "value": value});
        let mut parameters = json!({
            "attribute": "WaitingQueueSize", "algorithm": {"type": "threshold", "threshold": threshold},
        });
        parameters.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        serde_json::from_value(parameters).unwrap()
    }

    fn kept(operator: &str, value: f64, more: &Value) -> Vec<usize> {
        let readings = [waiting(1), waiting(2), waiting(3), Reading::default()];
        Fixture::with_readings(&readings).kept(&filter(operator, value, more), 1)
    }

    #[test]
    fn the_operator_compares_the_value_with_the_threshold() {
        let fail = || json!({"onMissing": "Fail"});
        for (operator, expected) in [
            ("LessThan", &[0][..]),
            ("LessThanOrEqual", &[0, 1]),
            ("GreaterThan", &[2]),
            ("GreaterThanOrEqual", &[1, 2]),
            ("Equal", &[1]),
            ("NotEqual", &[0, 2]),
        ] {
            assert_eq!(kept(operator, 2.0, &fail()), expected, "{operator}");
        }
    }

    #[test]
    fn an_endpoint_without_the_attribute_passes_or_fails() {
        assert_eq!(kept("LessThan", 2.0, &json!({})), [0, 3]);
        assert_eq!(kept("LessThan", 2.0, &json!({"onMissing": "Fail"})), [0]);
    }

    #[test]
    fn none_is_left_unless_all_are_kept_instead() {
        let none = |fallback: bool| json!({"onMissing": "Fail", "fallbackOnEmpty": fallback});
        assert_eq!(kept("LessThan", 0.0, &none(false)), [0; 0]);
        assert_eq!(kept("LessThan", 0.0, &none(true)), [0, 1, 2, 3]);
    }

    #[test]
    fn the_spelling_of_v0_10_names_the_producer_in_the_attribute() {
        let older = filter("Equal", 0.0, &json!({"attribute": "busy/core-metrics-extractor"}));
        let need = Need { parameter: "attribute", name: "busy", kind: NeedKind::CustomMetric };
        assert_eq!((older.check(), older.needs()), (Ok(()), vec![need]));
        assert_eq!(
            older.warnings(),
            [
                "attribute \"busy/core-metrics-extractor\" is the spelling of v0.10, and later versions of the EPP refuse it; \
              use attribute: busy and producer: core-metrics-extractor"
            ]
        );
        assert!(filter("Equal", 0.0, &json!({})).warnings().is_empty());
    }

    #[test]
    fn an_attribute_and_a_known_algorithm_are_required() {
        assert!(filter("Equal", 0.0, &json!({"attribute": ""})).check().is_err());
        assert!(filter("Equal", 0.0, &json!({"attribute": "x", "producer": "y"})).check().is_err());
        let without: EndpointAttributeFilter = serde_json::from_value(json!({"attribute": "x"})).unwrap();
        assert!(without.check().unwrap_err().contains("threshold"));
        for algorithm in [
            json!({"type": "range", "threshold": {"operator": "Equal"}}),
            json!({"type": "threshold"}),
            json!({"type": "threshold", "threshold": {"operator": "Near"}}),
        ] {
            let read = serde_json::from_value::<EndpointAttributeFilter>(
                json!({"attribute": "x", "algorithm": algorithm}),
            );
            assert!(read.is_err(), "{algorithm}");
        }
    }
}
