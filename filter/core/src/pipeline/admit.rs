//! The first step of a decision: whether the request is scheduled at all.

use super::Pipeline;
use crate::decision::rejection::Rejection;
use crate::input::cycle::Cycle;
use crate::rng::Rng;

impl Pipeline {
    /// Turns a request away that has no candidate, that is sheddable while the pool is saturated, or that an admitter refuses.
    /// Saturation is checked before the admitters, as in the EPP. With flow control, the request has waited for its capacity already.
    pub(super) fn admit(
        &self,
        cycle: &Cycle<'_>,
        candidates: &[usize],
        rng: &mut dyn Rng,
    ) -> Result<(), Rejection> {
        if candidates.is_empty() {
            return Err(Rejection::no_candidates());
        }
        let is_sheddable = cycle.request.priority < 0 && self.flow_control.is_none();
        if is_sheddable && self.detector.plugin.saturation(cycle, candidates, 0) >= 1.0 {
            return Err(Rejection::shed());
        }
        for slot in &self.admitters {
            let admission = slot.plugin.admit(&cycle.of(slot.key), candidates, rng);
            admission.map_err(|reason| Rejection::not_admitted(&reason))?;
        }
        Ok(())
    }
}
