//! Admitters: plugins that may turn a request away before it is scheduled.

mod probabilistic_admitter;

pub use probabilistic_admitter::ProbabilisticAdmitter;

use core::fmt::Debug;

use crate::input::cycle::Cycle;
use crate::rng::Rng;

/// May turn a request away before it is scheduled.
pub trait Admitter: Debug + Send + Sync {
    /// Why the request is turned away, if it is.
    fn admit(&self, cycle: &Cycle<'_>, candidates: &[usize], rng: &mut dyn Rng) -> Result<(), String>;
}
