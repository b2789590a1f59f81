//! Pools and cycles for the plugins' tests.

use core::time::Duration;

use super::Scorer;
use crate::cycle::{Cycle, Request};
use crate::pool::{Endpoint, Pool};
use crate::prefix::PrefixMatch;
use crate::reading::Reading;

/// The time in every test's cycle.
pub(super) const NOW: Duration = Duration::from_secs(1_000);

/// Runs `look` with a cycle over as many endpoints as there are readings.
pub(super) fn with_cycle<R>(
    readings: &[Reading],
    prefix: &PrefixMatch,
    look: impl FnOnce(&Cycle<'_>) -> R,
) -> R {
    let endpoints = (0..readings.len())
        .map(|n| Endpoint::new(format!("default/{n}"), ([10, 0, 0, 1], 8000 + n as u16).into(), vec![]))
        .collect();
    let pool = Pool::new("default".to_owned(), endpoints).unwrap();
    look(&Cycle::new(&Request::default(), &pool, readings, prefix, NOW))
}

/// Scores all endpoints and compares.
#[track_caller]
pub(super) fn assert_scores(scorer: &dyn Scorer, readings: &[Reading], expected: &[f64]) {
    let candidates: Vec<usize> = (0..readings.len()).collect();
    let mut scores = vec![0.0; readings.len()];
    with_cycle(readings, &PrefixMatch::default(), |cycle| scorer.score(cycle, &candidates, &mut scores));
    let close = scores.iter().zip(expected).all(|(score, expected)| (score - expected).abs() < 1e-9);
    assert!(close, "{scores:?} is not {expected:?}");
}

/// A reading with this many requests waiting.
pub(super) fn waiting(requests: u64) -> Reading {
    Reading { waiting: Some(requests), ..Reading::default() }
}
