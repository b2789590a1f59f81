//! Saturation detectors.

mod concurrency_detector;
mod max_saturation_detector;
mod utilization_detector;

pub use concurrency_detector::ConcurrencyDetector;
pub use max_saturation_detector::{CombinedChild, MaxSaturationDetector};
pub use utilization_detector::UtilizationDetector;

use core::fmt::Debug;
use core::time::Duration;

use crate::input::cycle::Cycle;

/// Measures how close to its limits a set of endpoints is.
pub trait SaturationDetector: Debug + Send + Sync {
    /// 0 when idle, 1 and above when saturated; 1 for no endpoints. `pending` requests go to one of the
    /// candidates and are in no load yet.
    fn saturation(&self, cycle: &Cycle<'_>, candidates: &[usize], pending: u64) -> f64;

    /// The time up to which, inclusively, the saturation stays valid while no reading changes; `None`: it
    /// changes with every request.
    fn holds_until(&self, cycle: &Cycle<'_>, candidates: &[usize]) -> Option<Duration>;

    /// Whether the saturation depends on readings, and is unknown without them.
    fn needs_readings(&self) -> bool;

    /// How long after the end of a request the saturation may still include it.
    fn lag(&self) -> Duration;

    /// The detectors that it combines; none for a detector that measures by itself.
    fn children(&self) -> &[CombinedChild] {
        &[]
    }
}
