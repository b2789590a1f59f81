//! `utilization-filter`: endpoints below limits of one's own.

use std::sync::Arc;

use serde::Deserialize;

use crate::input::cycle::Cycle;
use crate::plugin::parameter::allow;
use crate::plugin::{Filter, Need, Plugin, Roles};
use crate::rng::Rng;

/// Keeps the endpoints of which every condition's value is at most its `max_value`.
///
/// Old values count as they are, and values that the server never reported as 0, as in the EPP.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct UtilizationFilter {
    /// The limits; at least one.
    conditions: Vec<MetricCondition>,
    /// Keeps all rather than none.
    fallback_on_empty: bool,
    /// Name of the `inflight-load-producer` that `active-requests` reads; empty: the only one configured.
    in_flight_load_producer_name: String,
}

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct MetricCondition {
    metric: UtilizationMetric,
    max_value: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum UtilizationMetric {
    /// Requests in flight, by this proxy's count.
    ActiveRequests,
    /// Requests running, by the server's.
    RunningRequests,
    /// Requests waiting, by the server's.
    WaitingQueue,
    /// Share of the KV cache in use, 0..=1.
    KvCacheUtilization,
}

impl UtilizationMetric {
    fn value(self, cycle: &Cycle<'_>, endpoint: usize) -> f64 {
        let reading = cycle.reading(endpoint);
        match self {
            Self::ActiveRequests => cycle.load(endpoint).requests as f64,
            Self::RunningRequests => reading.running.unwrap_or(0) as f64,
            Self::WaitingQueue => reading.waiting.unwrap_or(0) as f64,
            Self::KvCacheUtilization => reading.kv_usage.unwrap_or(0.0),
        }
    }
}

impl Plugin for UtilizationFilter {
    fn check(&self) -> Result<(), String> {
        if self.conditions.is_empty() {
            return Err("conditions is empty; at least one {metric, maxValue} is needed".to_owned());
        }
        for (index, MetricCondition { metric, max_value }) in self.conditions.iter().enumerate() {
            let (most, allowed) = match metric {
                UtilizationMetric::KvCacheUtilization => (1.0, "0 to 1"),
                UtilizationMetric::ActiveRequests
                | UtilizationMetric::RunningRequests
                | UtilizationMetric::WaitingQueue => (f64::MAX, "0 and above"),
            };
            let is_allowed = (0.0..=most).contains(max_value);
            allow(is_allowed, &format!("conditions[{index}].maxValue"), max_value, allowed)?;
        }
        Ok(())
    }

    fn roles(self: Arc<Self>) -> Roles {
        Roles { filter: Some(self), ..Roles::default() }
    }

    fn needs(&self) -> Vec<Need<'_>> {
        let reads_load =
            self.conditions.iter().any(|condition| condition.metric == UtilizationMetric::ActiveRequests);
        let need = reads_load.then(|| Need::load_producer(&self.in_flight_load_producer_name));
        need.into_iter().collect()
    }

    fn is_alpha(&self) -> bool {
        true
    }
}

impl Filter for UtilizationFilter {
    fn filter(&self, cycle: &Cycle<'_>, candidates: &mut Vec<usize>, _: &mut dyn Rng) {
        let fits = |&endpoint: &usize| {
            self.conditions
                .iter()
                .all(|condition| condition.metric.value(cycle, endpoint) <= condition.max_value)
        };
        if !self.fallback_on_empty || candidates.iter().any(fits) {
            candidates.retain(fits);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::fixture::Fixture;
    use crate::pool::load::Load;
    use crate::pool::reading::Reading;
    use crate::test;
    use serde_json::json;

    fn filter(parameters: serde_json::Value) -> UtilizationFilter {
        serde_json::from_value(parameters).unwrap()
    }

    fn fixture() -> Fixture {
        let reading = |(running, waiting, kv_usage)| Reading {
            running: Some(running),
            waiting: Some(waiting),
            kv_usage: Some(kv_usage),
            ..Reading::default()
        };
        let mut readings: Vec<Reading> = [(5, 0, 0.2), (6, 1, 0.9), (0, 9, 0.5)].map(reading).to_vec();
        readings.push(Reading::default());
        let mut fixture = Fixture::with_readings(&readings);
        fixture.in_flight = [1, 2, 3].map(|requests| Load { requests, tokens: 0 }).to_vec();
        fixture
    }

    fn kept(conditions: &[(&str, f64)]) -> Vec<usize> {
        let conditions: Vec<_> =
            conditions.iter().map(|(metric, max)| json!({"metric": metric, "maxValue": max})).collect();
        fixture().kept(&filter(json!({"conditions": conditions})), 1)
    }

    #[test]
    fn a_value_up_to_the_limit_is_kept_and_one_never_said_is_zero() {
        assert_eq!(kept(&[("running-requests", 5.0)]), [0, 2, 3]);
        assert_eq!(kept(&[("waiting-queue", 1.0)]), [0, 1, 3]);
        assert_eq!(kept(&[("kv-cache-utilization", 0.5)]), [0, 2, 3]);
        assert_eq!(kept(&[("active-requests", 1.0)]), [0, 3]);
    }

    #[test]
    fn every_condition_has_to_hold() {
        assert_eq!(kept(&[("running-requests", 5.0), ("waiting-queue", 1.0)]), [0, 3]);
    }

    #[test]
    fn none_left_is_none_unless_all_are_wanted_then() {
        let mut fixture = fixture();
        fixture.in_flight = vec![Load { requests: 9, tokens: 0 }; 4];
        let conditions = json!([{"metric": "active-requests", "maxValue": 1}]);
        assert_eq!(fixture.kept(&filter(json!({"conditions": conditions})), 1), [0; 0]);
        let forgiving = filter(json!({"conditions": conditions, "fallbackOnEmpty": true}));
        assert_eq!(fixture.kept(&forgiving, 1), [0, 1, 2, 3]);
    }

    #[test]
    fn limits_that_make_no_sense_are_refused() {
        assert!(filter(json!({})).check().is_err());
        let of = |metric, max| filter(json!({"conditions": [{"metric": metric, "maxValue": max}]})).check();
        assert_eq!(
            of("waiting-queue", -1.0).unwrap_err(),
            "conditions[0].maxValue is -1; allowed is 0 and above"
        );
        assert!(of("kv-cache-utilization", 1.5).is_err());
        assert_eq!(of("kv-cache-utilization", 1.0), Ok(()));
        let unknown = json!({"conditions": [{"metric": "gpu", "maxValue": 1}]});
        let error = serde_json::from_value::<UtilizationFilter>(unknown).unwrap_err().to_string();
        assert!(error.contains("gpu") && error.contains("kv-cache-utilization"), "{error}");
    }
}
