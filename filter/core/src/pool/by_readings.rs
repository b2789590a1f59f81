//! What follows from the readings alone, computed once for all requests that are decided by them.

/// What follows from the readings of a pool alone.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ByReadings {
    /// The endpoints that are ready, in the pool's order.
    pub(crate) ready: Vec<usize>,
    /// Their scores, 0..=1, by the keys of scorers that [need nothing else](crate::plugin::Scorer::needs_only_readings).
    pub(crate) scores: Vec<(u64, Vec<f64>)>,
}

impl ByReadings {
    /// The scores of these candidates by the scorer of this key, if all ready endpoints are candidates.
    pub(crate) fn scores(&self, scorer: u64, candidates: &[usize]) -> Option<&[f64]> {
        let (_, scores) = self.scores.iter().find(|(key, _)| *key == scorer)?;
        (self.ready == candidates).then_some(scores)
    }
}
