//! `prefix-cache-scorer`: the more of the prompt an endpoint was sent before, the better.

use std::sync::Arc;

use serde::Deserialize;

use crate::input::cycle::Cycle;
use crate::plugin::{Need, Plugin, Roles, Scorer};

/// w · min(1, matched tokens / scale)² + (1 − w) · matched / total blocks, w = `match_length_weight`.
///
/// A request without a prompt scores 0 everywhere.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct PrefixCacheScorer {
    /// Name of the prefix producer.
    prefix_match_info_producer_name: String,
    /// How much the length of the match counts against its share of the prompt, 0..=1.
    match_length_weight: f64,
    /// Tokens at which a match counts as long, above 0.
    match_length_scale_tokens: f64,
}

impl Default for PrefixCacheScorer {
    fn default() -> Self {
        Self {
            prefix_match_info_producer_name: "approx-prefix-cache-producer".to_owned(),
            match_length_weight: 0.0,
            match_length_scale_tokens: 8192.0,
        }
    }
}

impl PrefixCacheScorer {
    /// The scorer of a producer of this name.
    pub(crate) fn reading(producer: &str) -> Self {
        Self { prefix_match_info_producer_name: producer.to_owned(), ..Self::default() }
    }
}

impl Plugin for PrefixCacheScorer {
    fn check(&self) -> Result<(), String> {
        if !(0.0..=1.0).contains(&self.match_length_weight) {
            return Err(format!("matchLengthWeight is {}; allowed is 0 to 1", self.match_length_weight));
        }
        if self.match_length_scale_tokens.is_nan() || self.match_length_scale_tokens <= 0.0 {
            return Err(format!(
                "matchLengthScaleTokens is {}; it must be above 0",
                self.match_length_scale_tokens
            ));
        }
        Ok(())
    }

    fn needs(&self) -> Vec<Need<'_>> {
        vec![Need::prefix_producer(&self.prefix_match_info_producer_name)]
    }

    fn roles(self: Arc<Self>) -> Roles {
        Roles { scorer: Some(self), ..Roles::default() }
    }
}

impl Scorer for PrefixCacheScorer {
    fn score(&self, cycle: &Cycle<'_>, candidates: &[usize], scores: &mut [f64]) {
        let prefix = cycle.prefix();
        let weight = self.match_length_weight;
        for (score, &endpoint) in scores.iter_mut().zip(candidates) {
            let blocks = prefix.blocks(endpoint);
            if blocks == 0 {
                continue;
            }
            let tokens = f64::from(blocks) * f64::from(prefix.block_size);
            let length = (tokens / self.match_length_scale_tokens).min(1.0);
            *score = weight * length * length + (1.0 - weight) * prefix.ratio(endpoint);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::fixture::{Fixture, assert_near};
    use crate::state::prefix::PrefixMatch;
    use crate::test;

    fn score(scorer: &PrefixCacheScorer, matched: u32, total: u32, block_size: u32) -> Vec<f64> {
        let mut fixture = Fixture::of(1);
        fixture.prefix(PrefixMatch { matched: vec![matched], total, block_size, ..PrefixMatch::default() });
        fixture.scores(scorer)
    }

    #[test]
    fn by_default_the_score_is_the_matched_share() {
        let scorer = PrefixCacheScorer::default();
        assert_near(&score(&scorer, 5, 10, 1), &[0.5]);
        assert_near(&score(&scorer, 2, 10, 1), &[0.2]);
        assert_near(&score(&scorer, 0, 0, 1), &[0.0]);
    }

    #[test]
    fn with_a_length_weight_a_long_match_counts_more() {
        let scorer = PrefixCacheScorer {
            match_length_weight: 0.5,
            match_length_scale_tokens: 100.0,
            ..PrefixCacheScorer::default()
        };
        assert_near(&score(&scorer, 5, 10, 1), &[0.25125]);
        assert_near(&score(&scorer, 50, 100, 1), &[0.375]);
    }

    #[test]
    fn matches_of_a_producer_that_found_nothing_score_zero() {
        assert_near(&Fixture::of(2).scores(&PrefixCacheScorer::default()), &[0.0, 0.0]);
    }
}
