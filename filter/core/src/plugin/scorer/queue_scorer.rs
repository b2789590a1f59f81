//! `queue-scorer`: the shorter the server's queue, the better.

use std::sync::Arc;

use serde::Deserialize;

use super::score_by_least;
use crate::input::cycle::Cycle;
use crate::plugin::endpoint_attribute::Attribute;
use crate::plugin::{Plugin, Roles, Scorer};

/// (max − q) / (max − min) over the candidates, q the requests waiting at the endpoint; all equal → 1.
///
/// A server that does not report it counts as an empty queue, as in the EPP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct QueueScorer {}

impl Plugin for QueueScorer {
    fn roles(self: Arc<Self>) -> Roles {
        Roles { scorer: Some(self), ..Roles::default() }
    }
}

impl Scorer for QueueScorer {
    fn score(&self, cycle: &Cycle<'_>, candidates: &[usize], scores: &mut [f64]) {
        score_by_least(candidates, scores, |endpoint| cycle.reading(endpoint).waiting.unwrap_or(0) as f64);
    }

    fn explain(&self, cycle: &Cycle<'_>, _: &[usize], endpoint: usize) -> Option<String> {
        Some(Attribute::Waiting.explain(cycle, endpoint))
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
    use crate::plugin::fixture::{assert_scores, waiting};
    use crate::test;

    #[test]
    fn the_shortest_queue_scores_one_and_the_longest_zero() {
        assert_scores(&QueueScorer {}, &[waiting(10), waiting(5), waiting(0)], &[0.0, 0.5, 1.0]);
    }

    #[test]
    fn equal_queues_score_one() {
        assert_scores(&QueueScorer {}, &[waiting(5), waiting(5)], &[1.0, 1.0]);
        assert_scores(&QueueScorer {}, &[waiting(7)], &[1.0]);
    }

    #[test]
    fn a_server_that_did_not_say_counts_as_empty() {
        assert_scores(&QueueScorer {}, &[waiting(4), crate::pool::reading::Reading::default()], &[0.0, 1.0]);
    }
}
