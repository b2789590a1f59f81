//! A scheduling profile: filters, weighted scorers, a picker.

use std::borrow::Cow;

use crate::decision::{ProfileRun, ServedModelRun};
use crate::input::cycle::Cycle;
use crate::input::slot::Slot;
use crate::plugin::{Filter, Picker, Scorer, ServedModelFilter};
use crate::rng::Rng;

/// The score where no candidate can be compared: with the middle of the range, all are equal and neither good
/// nor bad.
const NEUTRAL: f64 = 0.5;

/// The plugins that rate the candidates and choose among them.
#[derive(Clone, Debug)]
pub(crate) struct Profile {
    /// The name in the configuration.
    pub(crate) name: String,
    /// Run in this order, each on the candidates that the one before kept.
    pub(crate) filters: Vec<Slot<dyn Filter>>,
    /// The filters by lists of models, each with its index among the filters.
    pub(crate) served_models: Vec<(usize, Slot<ServedModelFilter>)>,
    /// Scorers with their weights. Weights are not normalised; 0 and negative ones are allowed.
    pub(crate) scorers: Vec<(Slot<dyn Scorer>, f64)>,
    /// Chooses by the weighted totals.
    pub(crate) picker: Slot<dyn Picker>,
}

impl Profile {
    /// Fills in a run of the profile over the candidates that the run has. It has nothing else but the
    /// profile's index.
    pub(crate) fn run(&self, mut run: ProfileRun, cycle: Cycle<'_>, rng: &mut dyn Rng) -> ProfileRun {
        let mut candidates = core::mem::take(&mut run.scored);
        for (index, slot) in self.filters.iter().enumerate() {
            let before = candidates.clone();
            slot.plugin.filter(&cycle.of(slot), &mut candidates, rng);
            if candidates.len() < before.len() {
                let dropped = without(before, &candidates, cycle.pool.as_slice().len());
                run.dropped.extend(dropped.into_iter().map(|endpoint| (endpoint, index)));
            }
        }
        if candidates.is_empty() {
            return run;
        }
        run.totals.resize(candidates.len(), 0.0);
        run.scores.reserve(candidates.len() * self.scorers.len());
        for (slot, weight) in &self.scorers {
            let cycle = cycle.of(slot);
            let scores = append_scores(&*slot.plugin, &cycle, &candidates, &mut run.scores);
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
            filtered(run, at).collect()
        };
        Some(rated).filter(|rated| !rated.is_empty())
    }

    /// The effects of the filters by lists of models in a run.
    pub(crate) fn served_model_runs(
        &self,
        run: &ProfileRun,
        cycle: &Cycle<'_>,
    ) -> impl Iterator<Item = ServedModelRun> {
        self.served_models.iter().filter_map(|(at, slot)| {
            let candidates: Vec<usize> = filtered(run, *at).collect();
            (!candidates.is_empty()).then(|| slot.run(cycle, &candidates))
        })
    }
}

/// The endpoints that the filter of this index filtered in a run: also those that it, or a later filter,
/// dropped.
fn filtered(run: &ProfileRun, filter: usize) -> impl Iterator<Item = usize> {
    let dropped = run.dropped.iter().filter(move |&&(_, by)| by >= filter);
    run.scored.iter().copied().chain(dropped.map(|&(endpoint, _)| endpoint))
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

/// Appends one score, 0..=1, for each of `candidates` to `scores`. Returns the new ones.
///
/// Endpoints whose readings are [too old](Cycle::is_known) are left out of the comparison, and get the mean
/// of the others' scores: neither better nor worse than a random endpoint of those that are compared.
fn append_scores<'s>(
    scorer: &dyn Scorer,
    cycle: &Cycle<'_>,
    candidates: &[usize],
    scores: &'s mut Vec<f64>,
) -> &'s [f64] {
    let start = scores.len();
    if let Some(known) = cycle.known_scores(candidates) {
        scores.extend_from_slice(known);
    } else {
        scores.resize(start + candidates.len(), 0.0);
        write_comparable_scores(scorer, cycle, candidates, scores.get_mut(start..).unwrap_or_default());
    }
    scores.get(start..).unwrap_or_default()
}

/// Writes scores into zeros, with the mean for endpoints that cannot be compared.
fn write_comparable_scores(scorer: &dyn Scorer, cycle: &Cycle<'_>, candidates: &[usize], scores: &mut [f64]) {
    if cycle.neutral_score_after.is_none() || !scorer.reads_readings() {
        return write_scores(scorer, cycle, candidates, scores);
    }
    let known: Vec<usize> = candidates.iter().copied().filter(|&endpoint| cycle.is_known(endpoint)).collect();
    let mut of_known = vec![0.0; known.len()];
    if !known.is_empty() {
        write_scores(scorer, cycle, &known, &mut of_known);
    }
    let mean = match known.len() {
        0 => NEUTRAL,
        count => of_known.iter().sum::<f64>() / count as f64,
    };
    // `known` has the order of `candidates`, so one pass merges them.
    let mut compared = known.iter().zip(of_known).peekable();
    for (score, endpoint) in scores.iter_mut().zip(candidates) {
        *score = compared.next_if(|(known, _)| *known == endpoint).map_or(mean, |(_, score)| score);
    }
}

/// Writes clamped scores into zeros.
pub(super) fn write_scores(scorer: &dyn Scorer, cycle: &Cycle<'_>, candidates: &[usize], scores: &mut [f64]) {
    scorer.score(cycle, candidates, scores);
    for score in scores {
        *score = clamp(*score);
    }
}

/// Into 0..=1. NaN becomes 0, where the EPP lets it through and compares it as equal to everything.
fn clamp(score: f64) -> f64 {
    if score > 0.0 { score.min(1.0) } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::plugin::fixture::{Fixture, NOW, assert_near};
    use crate::plugin::{ActiveRequestScorer, LoraAffinityScorer, QueueScorer};
    use crate::pool::reading::Reading;
    use crate::test;

    #[test]
    fn scores_are_clamped_and_never_nan() {
        let clamped = [-0.5, 0.25, 1.5, f64::NAN, f64::INFINITY].map(|score| clamp(score).to_string());
        assert_eq!(clamped, ["0", "0.25", "1", "0", "1"]);
    }

    /// Requests waiting, and the age of the reading in milliseconds; `None`: never scraped.
    fn readings(of: &[Option<(u64, u64)>]) -> Vec<Reading> {
        let reading = |(waiting, age)| Reading {
            updated: Some(NOW.saturating_sub(Duration::from_millis(age))),
            waiting: Some(waiting),
            ..Reading::default()
        };
        of.iter().map(|values| values.map(reading).unwrap_or_default()).collect()
    }

    fn scores(scorer: &dyn Scorer, of: &[Option<(u64, u64)>], neutral_score_after: Option<u64>) -> Vec<f64> {
        let candidates: Vec<usize> = (0..of.len()).collect();
        let mut scores = vec![0.0; of.len()];
        Fixture::with_readings(&readings(of)).with_cycle(|cycle| {
            let cycle =
                Cycle { neutral_score_after: neutral_score_after.map(Duration::from_millis), ..*cycle };
            write_comparable_scores(scorer, &cycle, &candidates, &mut scores);
        });
        scores
    }

    const SOME: [Option<(u64, u64)>; 5] =
        [None, Some((10, 0)), Some((99, 2001)), Some((4, 2000)), Some((0, 1))];

    #[test]
    fn stale_and_never_scraped_endpoints_get_the_mean_of_the_others() {
        let mean = (0.0 + 0.6 + 1.0) / 3.0;
        assert_near(&scores(&QueueScorer {}, &SOME, Some(2000)), &[mean, 0.0, mean, 0.6, 1.0]);
    }

    #[test]
    fn without_the_option_the_last_values_count_and_missing_ones_are_idle() {
        assert_near(&scores(&QueueScorer {}, &SOME[..3], None), &[1.0, 1.0 - 10.0 / 99.0, 0.0]);
    }

    #[test]
    fn without_any_fresh_reading_all_scores_are_neutral() {
        assert_near(&scores(&QueueScorer {}, &[None, Some((7, 9000))], Some(2000)), &[0.5, 0.5]);
        assert_near(&scores(&LoraAffinityScorer::default(), &[None], Some(2000)), &[0.5]);
    }

    #[test]
    fn a_scorer_that_reads_no_readings_scores_all() {
        assert_near(&scores(&ActiveRequestScorer::default(), &[None, None], Some(2000)), &[1.0, 1.0]);
    }
}
