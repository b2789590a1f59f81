//! Computes scores that depend on readings only.

use super::Pipeline;
use super::profile::write_scores;
use crate::input::{DecisionInput, PrecomputedScores, ready};
use crate::request::Request;

impl Pipeline {
    /// Finds the ready endpoints of this input, and scores them by those scorers of the pipelines that need
    /// only readings.
    pub fn precompute<'p>(
        input: &DecisionInput<'_>,
        pipelines: impl IntoIterator<Item = &'p Self>,
    ) -> PrecomputedScores {
        let ready = ready(input);
        let mut scores: Vec<(u64, Vec<f64>)> = Vec::new();
        let request = Request::default();
        for pipeline in pipelines {
            // Readings are never too old when they arrive; `known_scores` checks their age at the decision.
            let cycle = pipeline.cycle(&request, input, input.readings_arrived);
            for (slot, _) in pipeline.profiles.iter().flat_map(|profile| &profile.scorers) {
                // A key has the same scores in all pipelines: a scorer with other parameters has another key.
                let is_new = scores.iter().all(|(key, _)| *key != slot.key);
                if is_new && slot.plugin.needs_only_readings() {
                    let mut of_scorer = vec![0.0; ready.len()];
                    write_scores(&*slot.plugin, &cycle.of(slot), &ready, &mut of_scorer);
                    scores.push((slot.key, of_scorer));
                }
            }
        }
        PrecomputedScores { ready, scores }
    }
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;
    use crate::period::Period;
    use crate::pool::load::Load;
    use crate::pool::reading::Reading;
    use crate::pool::{Endpoint, Endpoints};
    use crate::request::subset::Subset;
    use crate::rng::SplitMix64;
    use crate::state::PluginStates;
    #[cfg(all(target_family = "wasm", target_os = "unknown"))]
    use crate::test;

    const NOW: Duration = Duration::from_secs(1_000);

    fn reading() -> impl Strategy<Value = Reading> {
        let values = (any::<bool>(), prop::option::of(0..5_u64), prop::option::of(0.0..1.2));
        values.prop_map(|(ready, waiting, kv_usage)| Reading {
            ready,
            updated: Some(NOW),
            waiting,
            kv_usage,
            ..Reading::default()
        })
    }

    proptest! {
        #[test]
        fn decisions_are_the_same_as_without_it(
            readings in vec(reading(), 1..12),
            hint in prop::option::of(vec(0..12_u8, 0..12)),
            age in 0..20_u64,
            neutral in any::<bool>(),
            failed in prop::option::of(0..12_usize),
        ) {
            let endpoints = (0..readings.len()).map(|n| {
                let host = u8::try_from(n).expect("few endpoints");
                Endpoint::new(n.to_string(), ([10, 0, 0, host], 8000).into(), vec![])
            });
            let pool = Endpoints::new("p".to_owned(), endpoints.collect()).expect("distinct endpoints");
            let pipeline = Pipeline::default().with_neutral_score_after(neutral.then_some(Duration::from_secs(5)));
            let now = NOW + Duration::from_secs(age);
            let avoids = |n| if failed == Some(n) { Period::new(now, Duration::from_secs(1)) } else { Period::default() };
            let avoided: Vec<Period> = (0..readings.len()).map(avoids).collect();
            let states = PluginStates::none();
            let input = DecisionInput {
                pool: &pool,
                readings: &readings,
                readings_arrived: NOW,
                in_flight: &[Load { requests: 1, tokens: 7 }],
                deferred: &[],
                avoided: &avoided,
                states: &states,
                precomputed: None,
            };
            let addresses = hint.as_ref().map(|hosts| hosts.iter().map(|n| format!("10.0.0.{n}:8000")).collect::<Vec<_>>());
            let subset = addresses.as_ref().map_or(Subset::All, |list| Subset::from_items(list.iter().map(String::as_str)));
            let request = Request { subset, ..Request::default() };
            let known = Pipeline::precompute(&input, [&pipeline]);
            let decide = |precomputed| {
                let input = DecisionInput { precomputed, ..input };
                let decision = pipeline.decide(&request, &input, now, &mut SplitMix64::new(7));
                (decision.outcome, decision.runs)
            };
            prop_assert_eq!(decide(Some(&known)), decide(None));
        }
    }

    #[test]
    fn queue_and_cache_are_scored_once_for_all_ready_endpoints() {
        let pool = Endpoints::new(
            "p".to_owned(),
            (0..3).map(|n| Endpoint::new(n.to_string(), ([10, 0, 0, n], 8000).into(), vec![])).collect(),
        )
        .unwrap();
        let readings = [(true, 4), (false, 0), (true, 2)].map(|(ready, waiting)| Reading {
            ready,
            waiting: Some(waiting),
            kv_usage: Some(0.25),
            ..Reading::default()
        });
        let input = DecisionInput {
            pool: &pool,
            readings: &readings,
            readings_arrived: NOW,
            in_flight: &[],
            deferred: &[],
            avoided: &[],
            states: &PluginStates::none(),
            precomputed: None,
        };
        let pipeline = Pipeline::default();
        let known = Pipeline::precompute(&input, [&pipeline, &pipeline]);
        let scores: Vec<&[f64]> = known.scores.iter().map(|(_, scores)| &scores[..]).collect();
        assert_eq!(known.ready, [0, 2]);
        assert_eq!(scores, [[0.0, 1.0], [0.75, 0.75]]);
        let (queue, _) = known.scores[0];
        assert!(known.scores(queue, &[0, 2]).is_some());
        assert_eq!(known.scores(queue, &[0]), None, "they are relative to the other candidates");
    }
}
