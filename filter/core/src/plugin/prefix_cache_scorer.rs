//! `prefix-cache-scorer`: the more of the prompt an endpoint has seen, the better.

use serde::Deserialize;

use super::{Plugin, Scorer};
use crate::cycle::Cycle;

/// w · min(1, matched tokens / scale)² + (1 − w) · matched / total blocks, w = `match_length_weight`.
///
/// A request without a prompt scores 0 everywhere.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct PrefixCacheScorer {
    /// How much the length of the match counts against its share of the prompt, 0..=1.
    match_length_weight: f64,
    /// Tokens at which a match counts as long, above 0.
    match_length_scale_tokens: f64,
}

impl Default for PrefixCacheScorer {
    fn default() -> Self {
        Self { match_length_weight: 0.0, match_length_scale_tokens: 8192.0 }
    }
}

impl Plugin for PrefixCacheScorer {
    fn as_scorer(&self) -> Option<&dyn Scorer> {
        Some(self)
    }
}

impl Scorer for PrefixCacheScorer {
    fn score(&self, cycle: &Cycle<'_>, candidates: &[usize], scores: &mut [f64]) {
        let prefix = cycle.prefix;
        let weight = self.match_length_weight;
        for (score, &endpoint) in scores.iter_mut().zip(candidates) {
            let tokens = f64::from(prefix.blocks(endpoint)) * f64::from(prefix.block_size);
            let length = (tokens / self.match_length_scale_tokens).min(1.0);
            *score = weight * length * length + (1.0 - weight) * prefix.ratio(endpoint);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::fixture::with_cycle;
    use crate::prefix::PrefixMatch;
    use crate::reading::Reading;

    fn score(scorer: &PrefixCacheScorer, matched: u32, total: u32, block_size: u32) -> f64 {
        let prefix = PrefixMatch { matched: vec![matched], total, block_size };
        with_cycle(&[Reading::default()], &prefix, |cycle| {
            let mut scores = [0.0];
            scorer.score(cycle, &[0], &mut scores);
            scores[0]
        })
    }

    #[test]
    fn by_default_the_score_is_the_matched_share() {
        let scorer = PrefixCacheScorer::default();
        assert_eq!(score(&scorer, 5, 10, 1), 0.5);
        assert_eq!(score(&scorer, 2, 10, 1), 0.2);
        assert_eq!(score(&scorer, 0, 0, 1), 0.0, "no prompt");
    }

    #[test]
    fn with_a_length_weight_a_long_match_counts_more() {
        let scorer = PrefixCacheScorer { match_length_weight: 0.5, match_length_scale_tokens: 100.0 };
        assert!((score(&scorer, 5, 10, 1) - 0.25125).abs() < 1e-12);
        assert!((score(&scorer, 50, 100, 1) - 0.375).abs() < 1e-12);
    }
}
