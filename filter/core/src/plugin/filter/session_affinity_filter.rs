//! `session-affinity-filter`.

use super::Filter;
use crate::input::cycle::Cycle;
use crate::plugin::session_affinity::session_affinity_plugin;
use crate::rng::Rng;

session_affinity_plugin! {
    /// Keeps only the endpoint of the request's session; all candidates, if it is not one of them.
    SessionAffinityFilter is a filter
}

impl Filter for SessionAffinityFilter {
    fn filter(&self, cycle: &Cycle<'_>, candidates: &mut Vec<usize>, _: &mut dyn Rng) {
        if let Some(bound) = self.0.endpoint(cycle, candidates) {
            candidates.retain(|&endpoint| endpoint == bound);
        }
    }
}
