//! `running-requests-size-scorer`: the fewer requests a server works on, the better.

use std::sync::Arc;

use serde::Deserialize;

use super::score_by_least;
use crate::input::cycle::Cycle;
use crate::plugin::endpoint_attribute::Attribute;
use crate::plugin::{Plugin, Roles, Scorer};

/// (max − r) / (max − min) over the candidates, r the requests running at the endpoint; all equal → 1.
///
/// A server that does not report it counts as running none, as in the EPP.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunningRequestsSizeScorer {}

impl Plugin for RunningRequestsSizeScorer {
    fn roles(self: Arc<Self>) -> Roles {
        Roles { scorer: Some(self), ..Roles::default() }
    }
}

impl Scorer for RunningRequestsSizeScorer {
    fn score(&self, cycle: &Cycle<'_>, candidates: &[usize], scores: &mut [f64]) {
        score_by_least(candidates, scores, |endpoint| cycle.reading(endpoint).running.unwrap_or(0) as f64);
    }

    fn explain(&self, cycle: &Cycle<'_>, _: &[usize], endpoint: usize) -> Option<String> {
        Some(Attribute::Running.explain(cycle, endpoint))
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
    fn fewer_running_requests_score_higher() {
        let readings = [8, 2, 0].map(|running| Reading { running: Some(running), ..Reading::default() });
        assert_scores(&RunningRequestsSizeScorer {}, &readings, &[0.0, 0.75, 1.0]);
    }
}
