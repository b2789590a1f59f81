//! The endpoints of a subset hint that were not chosen.
//!
//! Without a hint the proxy balances over the whole pool when all chosen endpoints fail. With a hint it must not leave the hint,
//! so it gets all of the hint's endpoints as a list, in the order in which it tries them.

use core::num::NonZeroUsize;

use super::Pipeline;
use super::profile::without;
use crate::decision::ProfileRun;
use crate::input::candidates;
use crate::input::cycle::Cycle;
use crate::plugin::{MaxScorePicker, Picker};
use crate::rng::Rng;

impl Pipeline {
    /// The candidates that this run's filters kept and its picker did not choose, best first. Behind them those that the run left
    /// out because they failed a moment ago, rated among themselves.
    pub(super) fn rest_of_hint(&self, run: &ProfileRun, cycle: &Cycle<'_>, rng: &mut dyn Rng) -> Vec<usize> {
        let mut rest = not_picked(run, rng);
        let dropped = run.dropped.iter().map(|&(endpoint, _)| endpoint);
        let has_run: Vec<usize> = run.scored.iter().copied().chain(dropped).collect();
        let endpoints = cycle.pool.endpoints().len();
        let avoided = without(candidates(cycle.request, cycle.view), &has_run, endpoints);
        if !avoided.is_empty() {
            let mut last = self.profile_of(run).run(run.profile, *cycle, avoided, rng);
            last.picked.clear();
            rest.extend(not_picked(&last, rng));
        }
        rest
    }
}

/// The endpoints that a run rated and did not pick, best first, equal ones in random order.
fn not_picked(run: &ProfileRun, rng: &mut dyn Rng) -> Vec<usize> {
    let rated = run.scored.iter().zip(&run.totals).filter(|(endpoint, _)| !run.picked.contains(endpoint));
    let (endpoints, totals): (Vec<usize>, Vec<f64>) =
        rated.map(|(&endpoint, &total)| (endpoint, total)).unzip();
    MaxScorePicker::of(NonZeroUsize::MAX).pick(&endpoints, &totals, rng)
}
