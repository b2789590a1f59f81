//! `latency-scorer`: by the predicted latency, and the headroom to the client's limits.

use std::sync::Arc;

use serde::Deserialize;

use crate::input::cycle::Cycle;
use crate::input::prediction::Prediction;
use crate::plugin::parameter::{PREFIX_PRODUCER, or_default};
use crate::plugin::{Need, Plugin, Roles, Scorer};

/// Headrooms that differ by less are equal. The EPP's number.
const EQUAL: f64 = 1e-9;

/// Addend of a score before it is cut, in hundredths, so that errors of floating-point arithmetic do not
/// decide.
const TIE: f64 = 1e-6;

/// Rates the candidates whose limits would be kept, or if there are none the candidates that miss least of
/// them, by the distance of predicted times from their limits. Candidates that are not rated score 0.
///
/// Without predictions the score is composed of the KV cache, the queue and the prefix matches.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct LatencyScorer {
    /// Weight of the time to the first token.
    ttft_weight: f64,
    /// Weight of the time of a token.
    tpot_weight: f64,
    headroom_selection_strategy: HeadroomStrategy,
    #[serde(rename = "compositeKVWeight")]
    composite_kv_weight: f64,
    composite_queue_weight: f64,
    composite_prefix_weight: f64,
    /// The prefix producer whose matches count without predictions; empty: the approximate one.
    prefix_match_info_producer_name: String,
    /// Empty: the default one.
    latency_prediction_info_producer_name: String,
}

/// Which candidates are preferred among those that would keep their limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(from = "String")]
enum HeadroomStrategy {
    /// The candidates nearest to their limits.
    Least,
    /// The candidates furthest from their limits.
    Most,
}

impl From<String> for HeadroomStrategy {
    /// `most`; everything else is `Least`, as in the EPP.
    fn from(name: String) -> Self {
        if name == "most" { Self::Most } else { Self::Least }
    }
}

impl Default for LatencyScorer {
    fn default() -> Self {
        Self {
            ttft_weight: 0.8,
            tpot_weight: 0.2,
            headroom_selection_strategy: HeadroomStrategy::Least,
            composite_kv_weight: 1.0,
            composite_queue_weight: 1.0,
            composite_prefix_weight: 1.0,
            prefix_match_info_producer_name: String::new(),
            latency_prediction_info_producer_name: String::new(),
        }
    }
}

impl LatencyScorer {
    fn prefix_producer(&self) -> &str {
        or_default(&self.prefix_match_info_producer_name, PREFIX_PRODUCER)
    }
}

impl Plugin for LatencyScorer {
    fn roles(self: Arc<Self>) -> Roles {
        Roles { scorer: Some(self), ..Roles::default() }
    }

    fn needs(&self) -> Vec<Need<'_>> {
        vec![
            Need::latency_predictor(&self.latency_prediction_info_producer_name),
            Need::prefix_producer(self.prefix_producer()),
        ]
    }
}

impl Scorer for LatencyScorer {
    fn score(&self, cycle: &Cycle<'_>, candidates: &[usize], scores: &mut [f64]) {
        let predictions = cycle.predictions();
        let Some(predictions) = predictions else { return self.composite(cycle, candidates, scores) };
        let at = |endpoint: usize| predictions.at(endpoint).copied().unwrap_or_default();
        let group = CandidateGroup::of(cycle, candidates, at);
        let [mut ttft, mut tpot] = [DistanceRange::NONE; 2];
        for &endpoint in candidates {
            let prediction = at(endpoint);
            if group.has(cycle, endpoint, &prediction) {
                ttft.add(prediction.ttft_headroom.abs());
                tpot.add(prediction.tpot_headroom.abs());
            }
        }
        let (alpha, beta) = self.weights(&ttft, &tpot);
        let is_most =
            group == CandidateGroup::Positive && self.headroom_selection_strategy == HeadroomStrategy::Most;
        for (slot, &endpoint) in scores.iter_mut().zip(candidates) {
            let prediction = at(endpoint);
            if group.has(cycle, endpoint, &prediction) {
                let distance = alpha * ttft.share(prediction.ttft_headroom.abs())
                    + beta * tpot.share(prediction.tpot_headroom.abs());
                let share = if is_most { distance } else { 1.0 - distance };
                *slot = ((100.0 * share + TIE).floor() + 1.0) / 100.0;
            }
        }
    }
}

impl LatencyScorer {
    /// The weights of both distances; a distance that is the same for all has none.
    fn weights(&self, ttft: &DistanceRange, tpot: &DistanceRange) -> (f64, f64) {
        let sum = self.ttft_weight + self.tpot_weight;
        if tpot.is_point() {
            (1.0, 0.0)
        } else if ttft.is_point() {
            (0.0, 1.0)
        } else if sum > 0.0 {
            (self.ttft_weight / sum, self.tpot_weight / sum)
        } else {
            (1.0, 0.0)
        }
    }

    /// Scores without predictions, in hundredths.
    fn composite(&self, cycle: &Cycle<'_>, candidates: &[usize], scores: &mut [f64]) {
        let waiting = |endpoint: usize| cycle.reading(endpoint).waiting.unwrap_or(0) as f64;
        let longest = candidates.iter().map(|&endpoint| waiting(endpoint)).fold(0.0, f64::max);
        let prefix = cycle.prefix();
        let Self { composite_kv_weight, composite_queue_weight, composite_prefix_weight, .. } = *self;
        let sum = composite_kv_weight + composite_queue_weight + composite_prefix_weight;
        for (slot, &endpoint) in scores.iter_mut().zip(candidates) {
            let room = 1.0 - cycle.reading(endpoint).kv_usage.unwrap_or(0.0);
            let queue = if longest > 0.0 { (longest - waiting(endpoint)) / longest } else { 1.0 };
            let weighted = composite_kv_weight * room
                + composite_queue_weight * queue
                + composite_prefix_weight * prefix.ratio(endpoint);
            let score = if sum > 0.0 { weighted / sum } else { room };
            *slot = (100.0 * score + TIE).round() / 100.0;
        }
    }
}

/// The candidates that are rated: the first of these groups that is not empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CandidateGroup {
    /// All limits would be kept.
    Positive,
    /// Nothing is in flight there.
    Idle,
    /// Only the limit for tokens would be missed.
    SlowTokens,
    /// Only the limit for the first token would be missed.
    LateFirstToken,
    /// Both would be missed.
    Others,
}

impl CandidateGroup {
    fn of(cycle: &Cycle<'_>, candidates: &[usize], at: impl Fn(usize) -> Prediction) -> Self {
        let groups = [Self::Positive, Self::Idle, Self::SlowTokens, Self::LateFirstToken];
        let is_taken =
            |group: &Self| candidates.iter().any(|&endpoint| group.has(cycle, endpoint, &at(endpoint)));
        groups.into_iter().find(is_taken).unwrap_or(Self::Others)
    }

    fn has(self, cycle: &Cycle<'_>, endpoint: usize, prediction: &Prediction) -> bool {
        let keeps = (prediction.ttft_headroom >= 0.0, prediction.tpot_headroom >= 0.0);
        match self {
            Self::Positive => prediction.is_positive(),
            Self::Idle => cycle.load(endpoint).requests == 0,
            Self::SlowTokens => keeps == (true, false),
            Self::LateFirstToken => keeps == (false, true),
            Self::Others => keeps == (false, false),
        }
    }
}

/// The range of some distances.
#[derive(Clone, Copy, Debug)]
struct DistanceRange {
    least: f64,
    most: f64,
}

impl DistanceRange {
    /// The range of no distances.
    const NONE: Self = Self { least: f64::INFINITY, most: f64::NEG_INFINITY };

    fn add(&mut self, distance: f64) {
        self.least = self.least.min(distance);
        self.most = self.most.max(distance);
    }

    fn is_point(&self) -> bool {
        self.most - self.least <= EQUAL
    }

    /// The place of a distance in the range, 0..=1.
    fn share(&self, distance: f64) -> f64 {
        if self.is_point() { 0.5 } else { (distance - self.least) / (self.most - self.least) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::fixture::{Fixture, assert_near};
    use crate::pool::load::Load;
    use crate::pool::reading::Reading;
    use crate::state::prefix::PrefixMatch;
    use crate::test;

    /// Headrooms of the first and of further tokens, and requests in flight, of each endpoint.
    fn fixture(endpoints: &[(f64, f64, u64)]) -> Fixture {
        let mut fixture = Fixture::of(endpoints.len());
        fixture.in_flight = endpoints.iter().map(|&(_, _, requests)| Load { requests, tokens: 0 }).collect();
        fixture.predictions(endpoints.iter().map(|&(ttft_headroom, tpot_headroom, _)| Prediction {
            ttft_headroom,
            tpot_headroom,
            ..Prediction::default()
        }));
        fixture
    }

    fn scorer(json: &str) -> LatencyScorer {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn endpoints_that_keep_the_limits_are_rated_by_the_headroom_they_leave() {
        let fixture = fixture(&[(100.0, 0.0, 1), (200.0, 0.0, 1), (400.0, 0.0, 0), (-1.0, 0.0, 0)]);
        // Places in the range: 0, 1/3, 1.
        assert_near(&fixture.scores(&LatencyScorer::default()), &[1.01, 0.67, 0.01, 0.0]);
        let most = scorer(r#"{"headroomSelectionStrategy": "most"}"#);
        assert_near(&fixture.scores(&most), &[0.01, 0.34, 1.01, 0.0]);
        let other = scorer(r#"{"headroomSelectionStrategy": "any"}"#);
        assert_near(&fixture.scores(&other), &[1.01, 0.67, 0.01, 0.0]);
    }

    #[test]
    fn both_headrooms_count_by_their_weights() {
        let fixture = fixture(&[(100.0, 20.0, 1), (200.0, 0.0, 1)]);
        assert_near(&fixture.scores(&LatencyScorer::default()), &[0.81, 0.21]);
        let tokens = scorer(r#"{"ttftWeight": 0, "tpotWeight": 3}"#);
        assert_near(&fixture.scores(&tokens), &[0.01, 1.01]);
        let neither = scorer(r#"{"ttftWeight": 0, "tpotWeight": 0}"#);
        assert_near(&fixture.scores(&neither), &[1.01, 0.01]);
    }

    #[test]
    fn equal_headrooms_score_one_half() {
        assert_near(&fixture(&[(-10.0, 0.0, 1); 2]).scores(&LatencyScorer::default()), &[0.51, 0.51]);
        let equal_first = fixture(&[(5.0, 1.0, 1), (5.0, 2.0, 1)]);
        assert_near(&equal_first.scores(&LatencyScorer::default()), &[1.01, 0.01]);
    }

    #[test]
    fn endpoints_that_miss_the_limits_are_rated_by_what_they_miss() {
        let scores = |endpoints: &[(f64, f64, u64)]| fixture(endpoints).scores(&LatencyScorer::default());
        let all = [(-100.0, -1.0, 1), (-200.0, 1.0, 1), (50.0, -3.0, 2), (60.0, -1.0, 2)];
        assert_near(&scores(&all), &[0.0, 0.0, 0.81, 0.21]);
        assert_near(&scores(&all[..2]), &[0.0, 0.51]);
        assert_near(&scores(&[all[0], (-300.0, -1.0, 1)]), &[1.01, 0.01]);
        assert_near(&scores(&[all[0], all[3], (-900.0, -9.0, 0)]), &[0.0, 0.0, 0.51]);
        let most = scorer(r#"{"headroomSelectionStrategy": "most"}"#);
        assert_near(&fixture(&[all[0], (-300.0, -1.0, 1)]).scores(&most), &[1.01, 0.01]);
    }

    #[test]
    fn without_predictions_caches_queues_and_prefixes_are_composed() {
        let reading =
            |waiting, kv| Reading { waiting: Some(waiting), kv_usage: Some(kv), ..Reading::default() };
        let mut fixture = Fixture::with_readings(&[reading(4, 0.5), reading(0, 0.25)]);
        fixture.prefix(PrefixMatch {
            matched: vec![3, 0],
            total: 4,
            block_size: 64,
            ..PrefixMatch::default()
        });
        assert_near(&fixture.scores(&LatencyScorer::default()), &[0.42, 0.58]);
        let queue =
            scorer(r#"{"compositeKVWeight": 0, "compositeQueueWeight": 2, "compositePrefixWeight": 0}"#);
        assert_near(&fixture.scores(&queue), &[0.0, 1.0]);
        let none =
            scorer(r#"{"compositeKVWeight": 0, "compositeQueueWeight": 0, "compositePrefixWeight": 0}"#);
        assert_near(&fixture.scores(&none), &[0.5, 0.75]);
        assert_near(&Fixture::of(1).scores(&LatencyScorer::default()), &[0.67]);
    }
}
