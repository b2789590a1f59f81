//! Plugins: the pieces a scheduling profile is put together from, under the reference's type names.
//!
//! To add one: a file of its own with the parameters as a struct, its rule, and `impl Plugin` naming the roles it can
//! play; a line in [`registry`]; a section in `docs/rules.md`.

mod approx_prefix_cache_producer;
mod kv_cache_utilization_scorer;
mod max_score_picker;
mod prefix_cache_scorer;
mod queue_scorer;
pub mod registry;
mod running_requests_size_scorer;
mod utilization_detector;

use core::fmt::Debug;

pub use approx_prefix_cache_producer::ApproxPrefixCacheProducer;
pub use kv_cache_utilization_scorer::KvCacheUtilizationScorer;
pub use max_score_picker::MaxScorePicker;
pub use prefix_cache_scorer::PrefixCacheScorer;
pub use queue_scorer::QueueScorer;
pub use running_requests_size_scorer::RunningRequestsSizeScorer;
pub use utilization_detector::UtilizationDetector;

use crate::cycle::Cycle;
use crate::rng::Rng;

/// A configured plugin. Which roles it can play is its type's; which it plays is the configuration's.
pub trait Plugin: Debug {
    /// As a filter of a profile.
    fn as_filter(&self) -> Option<&dyn Filter> {
        None
    }

    /// As a scorer of a profile.
    fn as_scorer(&self) -> Option<&dyn Scorer> {
        None
    }

    /// As the picker of a profile.
    fn as_picker(&self) -> Option<&dyn Picker> {
        None
    }

    /// As the detector that admission asks.
    fn as_saturation_detector(&self) -> Option<&dyn SaturationDetector> {
        None
    }
}

/// Drops candidates.
pub trait Filter {
    /// Keeps in `candidates` (endpoint indices) those that may be picked.
    fn filter(&self, cycle: &Cycle<'_>, candidates: &mut Vec<usize>);
}

/// Rates candidates.
pub trait Scorer {
    /// Writes one score for each of `candidates` (endpoint indices) into `scores`, which has the same length and holds
    /// zeros. A score is 0..=1, higher is better; the profile clamps what is outside.
    fn score(&self, cycle: &Cycle<'_>, candidates: &[usize], scores: &mut [f64]);
}

/// Chooses among scored candidates.
pub trait Picker {
    /// The chosen endpoints, best first, at least one of `candidates` (endpoint indices, never empty). `totals[i]` is the
    /// weighted score of `candidates[i]`, never NaN.
    fn pick(&self, candidates: &[usize], totals: &[f64], rng: &mut dyn Rng) -> Vec<usize>;
}

/// Tells how close to its limits a set of endpoints is.
pub trait SaturationDetector {
    /// 0 when idle, 1 and above when saturated; 1 for no endpoints.
    fn saturation(&self, cycle: &Cycle<'_>, candidates: &[usize]) -> f64;
}

/// The score of a load where less is better, relative to the other candidates: 1 for the least loaded, 0 for the most,
/// 1 for all when all are equal.
fn score_by_least(candidates: &[usize], scores: &mut [f64], load: impl Fn(usize) -> u64) {
    let loads = || candidates.iter().map(|&endpoint| load(endpoint));
    let (Some(least), Some(most)) = (loads().min(), loads().max()) else { return };
    if least == most {
        scores.fill(1.0);
        return;
    }
    let range = (most - least) as f64;
    for (score, load) in scores.iter_mut().zip(loads()) {
        *score = (most - load) as f64 / range;
    }
}

#[cfg(test)]
mod fixture;
