//! `load-aware-scorer`: half a point for an empty queue, less for a longer one.

use std::sync::Arc;

use serde::Deserialize;

use crate::input::cycle::Cycle;
use crate::plugin::endpoint_attribute::Attribute;
use crate::plugin::{Plugin, Roles, Scorer};

/// 0.5 · (1 − min(q, t) / t), q the requests waiting at the endpoint, t = `threshold`.
///
/// Unlike `queue-scorer` it does not compare candidates with each other. A server that does not report it
/// counts as an empty queue, as in the EPP.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct LoadAwareScorer {
    /// Waiting requests from which the score is 0; 0 and less count as 128.
    threshold: i64,
}

const THRESHOLD: i64 = 128;

impl Default for LoadAwareScorer {
    fn default() -> Self {
        Self { threshold: THRESHOLD }
    }
}

impl Plugin for LoadAwareScorer {
    fn roles(self: Arc<Self>) -> Roles {
        Roles { scorer: Some(self), ..Roles::default() }
    }
}

impl Scorer for LoadAwareScorer {
    fn score(&self, cycle: &Cycle<'_>, candidates: &[usize], scores: &mut [f64]) {
        let threshold = if self.threshold > 0 { self.threshold } else { THRESHOLD } as f64;
        for (score, &endpoint) in scores.iter_mut().zip(candidates) {
            let waiting = cycle.reading(endpoint).waiting.unwrap_or(0) as f64;
            *score = 0.5 * (1.0 - waiting.min(threshold) / threshold);
        }
    }

    fn explain(&self, cycle: &Cycle<'_>, _: &[usize], endpoint: usize) -> Option<String> {
        Some(Attribute::Waiting.explain(cycle, endpoint))
    }

    fn reads_readings(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::fixture::{assert_scores, waiting};
    use crate::pool::reading::Reading;
    use crate::test;

    #[test]
    fn the_score_falls_to_zero_at_the_threshold() {
        let scorer = LoadAwareScorer { threshold: 10 };
        assert_scores(&scorer, &[0, 2, 5, 10, 15].map(waiting), &[0.5, 0.4, 0.25, 0.0, 0.0]);
    }

    #[test]
    fn a_server_that_did_not_say_counts_as_empty() {
        assert_scores(&LoadAwareScorer::default(), &[Reading::default()], &[0.5]);
    }

    #[test]
    fn a_threshold_of_nothing_is_the_default() {
        for threshold in [0, -1, THRESHOLD] {
            assert_scores(&LoadAwareScorer { threshold }, &[64, 128].map(waiting), &[0.25, 0.0]);
        }
    }
}
