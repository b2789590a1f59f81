//! `kv-cache-utilization-scorer`: the more free KV cache, the better.

use std::sync::Arc;

use serde::Deserialize;

use crate::input::cycle::Cycle;
use crate::plugin::endpoint_attribute::Attribute;
use crate::plugin::{Plugin, Roles, Scorer};

/// 1 − the share of the endpoint's KV cache in use.
///
/// A server that does not report it counts as unused, as in the EPP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct KvCacheUtilizationScorer {}

impl Plugin for KvCacheUtilizationScorer {
    fn roles(self: Arc<Self>) -> Roles {
        Roles { scorer: Some(self), ..Roles::default() }
    }
}

impl Scorer for KvCacheUtilizationScorer {
    fn score(&self, cycle: &Cycle<'_>, candidates: &[usize], scores: &mut [f64]) {
        for (score, &endpoint) in scores.iter_mut().zip(candidates) {
            *score = 1.0 - cycle.reading(endpoint).kv_usage.unwrap_or(0.0);
        }
    }

    fn explain(&self, cycle: &Cycle<'_>, _: &[usize], endpoint: usize) -> Option<String> {
        Some(Attribute::KvUsage.explain(cycle, endpoint))
    }

    fn reads_readings(&self) -> bool {
        true
    }

    fn needs_only_readings(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::fixture::assert_scores;
    use crate::pool::reading::Reading;
    use crate::test;

    #[test]
    fn the_score_is_the_free_share() {
        let readings = [Some(0.8), Some(0.5), Some(0.0), None];
        let readings = readings.map(|kv_usage| Reading { kv_usage, ..Reading::default() });
        assert_scores(&KvCacheUtilizationScorer {}, &readings, &[0.2, 0.5, 1.0, 1.0]);
    }
}
