//! A scheduling profile: filters, weighted scorers, a picker.

use std::borrow::Cow;

use super::neutral_score;
use super::slot::Slot;
use crate::decision::ProfileRun;
use crate::input::cycle::Cycle;
use crate::plugin::{Filter, Picker, Scorer};
use crate::rng::Rng;

/// The plugins that rate the candidates and choose among them.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    /// The name in the configuration.
    pub(crate) name: String,
    /// Run in this order, each on the candidates that the one before kept.
    pub(crate) filters: Vec<Slot<dyn Filter>>,
    /// Scorers with their weights. Weights are not normalised; 0 and negative ones are allowed.
    pub(crate) scorers: Vec<(Slot<dyn Scorer>, f64)>,
    /// Chooses by the weighted totals.
    pub(crate) picker: Slot<dyn Picker>,
}

impl Profile {
    /// Runs the profile over `candidates`. `profile` is its index among the pipeline's.
    pub(crate) fn run(
        &self,
        profile: usize,
        cycle: Cycle<'_>,
        mut candidates: Vec<usize>,
        rng: &mut dyn Rng,
    ) -> ProfileRun {
        let mut run = ProfileRun { profile, ..ProfileRun::default() };
        for (index, slot) in self.filters.iter().enumerate() {
            let before = candidates.clone();
            slot.plugin.filter(&cycle.of(slot.key), &mut candidates, rng);
            if candidates.len() < before.len() {
                let dropped = without(before, &candidates, cycle.pool.endpoints().len());
                run.dropped.extend(dropped.into_iter().map(|endpoint| (endpoint, index)));
            }
        }
        if candidates.is_empty() {
            return run;
        }
        run.totals = vec![0.0; candidates.len()];
        run.scores = Vec::with_capacity(candidates.len() * self.scorers.len());
        for (slot, weight) in &self.scorers {
            let cycle = cycle.of(slot.key);
            let scores = neutral_score::append(&*slot.plugin, &cycle, &candidates, &mut run.scores);
            for (score, total) in scores.iter().zip(&mut run.totals) {
                *total += score * weight;
            }
        }
        run.picked = self.picker.plugin.pick(&candidates, &run.totals, rng);
        run.scored = candidates;
        run
    }

    /// The endpoints that a plugin of this profile filtered or scored in a run; `None` if there are none.
    pub(crate) fn rated<'a>(&self, plugin: u64, run: &'a ProfileRun) -> Option<Cow<'a, [usize]>> {
        let rated = if self.scorers.iter().any(|(slot, _)| slot.key == plugin) {
            Cow::Borrowed(&run.scored[..])
        } else {
            let at = self.filters.iter().position(|slot| slot.key == plugin)?;
            let dropped = run.dropped.iter().filter(|&&(_, filter)| filter >= at);
            run.scored.iter().copied().chain(dropped.map(|&(endpoint, _)| endpoint)).collect()
        };
        Some(rated).filter(|rated| !rated.is_empty())
    }
}

/// The endpoints among `all` that are not in `kept`, in a pool of this size.
pub(super) fn without(mut all: Vec<usize>, kept: &[usize], pool: usize) -> Vec<usize> {
    let mut is_kept = vec![false; pool];
    for &endpoint in kept {
        if let Some(is_kept) = is_kept.get_mut(endpoint) {
            *is_kept = true;
        }
    }
    all.retain(|&endpoint| !is_kept.get(endpoint).copied().unwrap_or(false));
    all
}
