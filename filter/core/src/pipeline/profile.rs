//! A scheduling profile: filters, weighted scorers, a picker.

use std::borrow::Cow;

use super::neutral_score;
use crate::cycle::Cycle;
use crate::decision::ProfileRun;
use crate::plugin::Instance;
use crate::rng::Rng;

/// Which plugins rate the candidates and choose among them. Plugins are given by their index among the instances.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Profile {
    /// What the configuration calls it.
    pub(crate) name: String,
    /// Run in this order, each on what the one before left.
    pub(crate) filters: Vec<usize>,
    /// Scorers with their weights. Weights are not normalised; 0 and negative ones are allowed.
    pub(crate) scorers: Vec<(usize, f64)>,
    /// Chooses by the weighted totals.
    pub(crate) picker: usize,
}

impl Profile {
    /// Runs the profile, the pipeline's `profile`-th, over `candidates`.
    pub(crate) fn run(
        &self,
        profile: usize,
        plugins: &[Instance],
        cycle: Cycle<'_>,
        mut candidates: Vec<usize>,
        rng: &mut dyn Rng,
    ) -> ProfileRun {
        let mut run = ProfileRun { profile, ..ProfileRun::default() };
        for &index in &self.filters {
            let Some(filter) = plugins[index].plugin.as_filter() else { continue };
            let before = candidates.clone();
            filter.filter(&cycle.of(index), &mut candidates, rng);
            if candidates.len() < before.len() {
                let mut stays = vec![false; cycle.pool.endpoints().len()];
                for &endpoint in &candidates {
                    stays[endpoint] = true;
                }
                let gone = before.into_iter().filter(|&endpoint| !stays[endpoint]);
                run.dropped.extend(gone.map(|endpoint| (endpoint, index)));
            }
        }
        if candidates.is_empty() {
            return run;
        }
        run.totals = vec![0.0; candidates.len()];
        run.scores = vec![0.0; candidates.len() * self.scorers.len()];
        for (&(index, weight), scores) in
            self.scorers.iter().zip(run.scores.chunks_exact_mut(candidates.len()))
        {
            let Some(scorer) = plugins[index].plugin.as_scorer() else { continue };
            neutral_score::score(scorer, &cycle.of(index), &candidates, scores);
            for (score, total) in scores.iter().zip(&mut run.totals) {
                *total += score * weight;
            }
        }
        if let Some(picker) = plugins[self.picker].plugin.as_picker() {
            run.picked = picker.pick(&candidates, &run.totals, rng);
        }
        run.scored = candidates;
        run
    }

    /// The endpoints that a run of this profile had a plugin filter or score; `None` if it had no use for the plugin.
    pub(crate) fn asked<'a>(&self, plugin: usize, run: &'a ProfileRun) -> Option<Cow<'a, [usize]>> {
        let asked = if self.scorers.iter().any(|&(scorer, _)| scorer == plugin) {
            Cow::Borrowed(&run.scored[..])
        } else {
            let at = self.filters.iter().position(|&filter| filter == plugin)?;
            let dropped = run.dropped.iter().filter(|(_, filter)| self.filters[at..].contains(filter));
            run.scored.iter().copied().chain(dropped.map(|&(endpoint, _)| endpoint)).collect()
        };
        Some(asked).filter(|asked| !asked.is_empty())
    }
}
