//! Scores of endpoints whose readings are too old to be compared.

use crate::input::cycle::Cycle;
use crate::plugin::Scorer;

/// The score where no candidate can be compared: all are equal, and none looks bad beside other scorers' scores.
const NEUTRAL: f64 = 0.5;

/// Appends one score, 0..=1, for each of `candidates` to `scores`. Returns those.
///
/// Endpoints whose readings are [too old](Cycle::is_known) are left out of the comparison, and get the mean of the others' scores:
/// no better and no worse than an endpoint drawn blindly from those that are compared.
pub(super) fn append<'s>(
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
        score(scorer, cycle, candidates, scores.get_mut(start..).unwrap_or_default());
    }
    scores.get(start..).unwrap_or_default()
}

fn score(scorer: &dyn Scorer, cycle: &Cycle<'_>, candidates: &[usize], scores: &mut [f64]) {
    if cycle.neutral_score_after.is_none() || !scorer.reads_readings() {
        return clamped(scorer, cycle, candidates, scores);
    }
    let known: Vec<usize> = candidates.iter().copied().filter(|&endpoint| cycle.is_known(endpoint)).collect();
    let mut of_known = vec![0.0; known.len()];
    if !known.is_empty() {
        clamped(scorer, cycle, &known, &mut of_known);
    }
    let mean = match known.len() {
        0 => NEUTRAL,
        count => of_known.iter().sum::<f64>() / count as f64,
    };
    let mut compared = known.iter().zip(of_known).peekable();
    for (score, endpoint) in scores.iter_mut().zip(candidates) {
        *score = compared.next_if(|(known, _)| *known == endpoint).map_or(mean, |(_, score)| score);
    }
}

/// Writes scores into zeros.
pub(super) fn clamped(scorer: &dyn Scorer, cycle: &Cycle<'_>, candidates: &[usize], scores: &mut [f64]) {
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
            score(scorer, &cycle, &candidates, &mut scores);
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
