//! Pickers: plugins that choose among scored candidates.

mod max_score_picker;
mod random_picker;
mod weighted_random_picker;

pub use max_score_picker::MaxScorePicker;
pub use random_picker::RandomPicker;
pub use weighted_random_picker::WeightedRandomPicker;

use core::fmt::Debug;

use crate::Few;
use crate::rng::Rng;

/// Chooses among scored candidates.
pub trait Picker: Debug + Send + Sync {
    /// The chosen endpoints, best first, at least one of `candidates` (endpoint indices, never empty).
    /// `totals[i]` is the weighted score of `candidates[i]`, never NaN.
    fn pick(&self, candidates: &[usize], totals: &[f64], rng: &mut dyn Rng) -> Few<usize>;

    /// Maximum number of endpoints that it chooses.
    fn max_endpoints(&self) -> usize;

    /// Whether the first endpoint always has the highest total, so that chance decides only among equals.
    fn takes_the_highest(&self) -> bool {
        false
    }
}
