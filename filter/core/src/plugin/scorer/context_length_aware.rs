//! `context-length-aware`: endpoints made for prompts of a certain length.

use std::sync::Arc;

use serde::Deserialize;

use crate::input::cycle::Cycle;
use crate::plugin::{Filter, Plugin, Roles, Scorer};
use crate::rng::Rng;

/// A label gives the prompt lengths that an endpoint is for, `min-max` in tokens. With n the prompt's tokens,
/// an endpoint scores
///
/// - in its range: 0.3 + 0.7 · (0.7 / (1 + (max − min) / 10 000) + 0.3 · (max − n) / (max − min)), 1 if max =
///   min;
/// - outside: 0.3 / (1 + distance to the range / 1 000);
/// - 0.5 without the label; 0 if its value is not a range.
///
/// As a filter it keeps the endpoints in whose range the prompt is, and those without the label. A request
/// without a prompt has 0 tokens.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct ContextLengthAware {
    /// The label; not empty.
    label: String,
    /// Whether it is a filter too.
    enable_filtering: bool,
}

impl Default for ContextLengthAware {
    fn default() -> Self {
        Self { label: "llm-d.ai/context-length-range".to_owned(), enable_filtering: false }
    }
}

impl Plugin for ContextLengthAware {
    fn check(&self) -> Result<(), String> {
        if self.label.is_empty() {
            Err("label is empty; a label's name is needed".to_owned())
        } else {
            Ok(())
        }
    }

    fn roles(self: Arc<Self>) -> Roles {
        let filter: Arc<dyn Filter> = self.clone();
        Roles { filter: self.enable_filtering.then_some(filter), scorer: Some(self), ..Roles::default() }
    }
}

impl Filter for ContextLengthAware {
    fn filter(&self, cycle: &Cycle<'_>, candidates: &mut Vec<usize>, _: &mut dyn Rng) {
        let tokens = tokens(cycle);
        candidates.retain(|&endpoint| {
            let label = cycle.endpoint(endpoint).label(&self.label);
            label.is_none_or(|label| {
                LengthRange::parse(label).is_some_and(|range| range.distance(tokens) == 0)
            })
        });
    }
}

impl Scorer for ContextLengthAware {
    fn score(&self, cycle: &Cycle<'_>, candidates: &[usize], scores: &mut [f64]) {
        let tokens = tokens(cycle);
        for (score, &endpoint) in scores.iter_mut().zip(candidates) {
            let label = cycle.endpoint(endpoint).label(&self.label);
            *score =
                label.map_or(0.5, |label| LengthRange::parse(label).map_or(0.0, |range| range.score(tokens)));
        }
    }
}

fn tokens(cycle: &Cycle<'_>) -> i64 {
    i64::try_from(cycle.request.input_tokens()).unwrap_or(i64::MAX)
}

/// Prompt lengths in tokens, both ends included.
struct LengthRange {
    min: i64,
    max: i64,
}

impl LengthRange {
    /// Reads `min-max`, blanks around the numbers allowed.
    fn parse(label: &str) -> Option<Self> {
        let (min, max) = label.split_once('-')?;
        let (min, max) = (min.trim().parse().ok()?, max.trim().parse().ok()?);
        // A second dash would be the sign of a negative number.
        (0 <= min && min <= max).then_some(Self { min, max })
    }

    /// How far outside a length is; 0 inside.
    fn distance(&self, tokens: i64) -> i64 {
        (tokens - tokens.clamp(self.min, self.max)).abs()
    }

    fn score(&self, tokens: i64) -> f64 {
        /// Upper bound of the scores of lengths outside the range, exclusive, and lower bound inside: the
        /// EPP's formula.
        const OUTSIDE: f64 = 0.3;
        let distance = self.distance(tokens);
        if distance > 0 {
            return OUTSIDE / (1.0 + distance as f64 / 1_000.0);
        }
        let width = (self.max - self.min) as f64;
        if width == 0.0 {
            return 1.0;
        }
        let tightness = 1.0 / (1.0 + width / 10_000.0);
        let headroom = (self.max - tokens) as f64 / width;
        OUTSIDE + (1.0 - OUTSIDE) * (0.7 * tightness + 0.3 * headroom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::fixture::{Fixture, assert_near, prompt_of};
    use crate::test;

    fn fixture(labels: &[Option<&str>], tokens: u64) -> Fixture {
        let mut fixture = Fixture::of(labels.len());
        for (endpoint, label) in labels.iter().enumerate() {
            if let Some(label) = label {
                fixture.label(endpoint, "llm-d.ai/context-length-range", label);
            }
        }
        fixture.request.prompt = Some(prompt_of(tokens));
        fixture
    }

    #[test]
    fn tight_ranges_with_headroom_score_high_and_any_hit_above_any_miss() {
        let labels = [Some("0-10000"), Some("2000-2000"), Some("0-1000"), Some("3000-9000")];
        let expected = [0.3 + 0.7 * (0.35 + 0.3 * 0.8), 1.0, 0.15, 0.15];
        assert_near(&fixture(&labels, 2_000).scores(&ContextLengthAware::default()), &expected);
    }

    #[test]
    fn an_endpoint_without_the_label_is_neutral_and_an_unreadable_one_is_not_wanted() {
        let labels =
            [None, Some("short"), Some("9-1"), Some("1-2-3"), Some("-1-5"), Some("1--5"), Some(" 0 - 0 ")];
        let expected = [0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 1.0];
        assert_near(&fixture(&labels, 0).scores(&ContextLengthAware::default()), &expected);
    }

    #[test]
    fn the_filter_keeps_ranges_that_hold_the_prompt_and_endpoints_without_the_label() {
        let fixture = fixture(&[None, Some("0-99"), Some("100-200"), Some("oops"), Some("50-100")], 100);
        let filter = ContextLengthAware { enable_filtering: true, ..ContextLengthAware::default() };
        assert_eq!(fixture.kept(&filter, 1), [0, 2, 4]);
        assert!(Arc::new(filter).roles().filter.is_some());
        assert!(Arc::new(ContextLengthAware::default()).roles().filter.is_none());
    }

    #[test]
    fn a_label_name_is_needed() {
        assert!(ContextLengthAware { label: String::new(), enable_filtering: false }.check().is_err());
    }
}
