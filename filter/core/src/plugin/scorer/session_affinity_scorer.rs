//! `session-affinity-scorer`.

use super::Scorer;
use crate::input::cycle::Cycle;
use crate::plugin::session_affinity::session_affinity_plugin;

session_affinity_plugin! {
    /// 1 for the endpoint of the request's session, 0 for the others.
    SessionAffinityScorer is a scorer
}

impl Scorer for SessionAffinityScorer {
    fn score(&self, cycle: &Cycle<'_>, candidates: &[usize], scores: &mut [f64]) {
        let bound = self.0.endpoint(cycle, candidates);
        for (score, &endpoint) in scores.iter_mut().zip(candidates) {
            *score = if bound == Some(endpoint) { 1.0 } else { 0.0 };
        }
    }
}
