//! `lora-affinity-scorer`: endpoints that have the adapter, or room for it.

use serde::Deserialize;

use super::{Plugin, Scorer};
use crate::cycle::Cycle;
use crate::reading::Lora;

/// 1 if the request's model is among the adapters that run at the endpoint; else 0.8 if fewer adapters run or wait there
/// than fit; else 0.6 if the model is among those that wait; else 0.
///
/// vLLM lists every adapter in use as running *and* as waiting, so an adapter in both lists counts once against the
/// room; the reference counts it twice (`count_twice`) and finds a half-empty server full. A server without adapters
/// has no room, so a pool of such servers scores 0 throughout. A base model's name is that of an adapter nobody has.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct LoraAffinityScorer {
    /// Counts an adapter that both runs and waits as two, as the reference does.
    count_twice: bool,
}

impl Plugin for LoraAffinityScorer {
    fn as_scorer(&self) -> Option<&dyn Scorer> {
        Some(self)
    }
}

impl Scorer for LoraAffinityScorer {
    fn score(&self, cycle: &Cycle<'_>, candidates: &[usize], scores: &mut [f64]) {
        for (score, &endpoint) in scores.iter_mut().zip(candidates) {
            let lora = cycle.reading(endpoint).lora.as_ref();
            *score = lora.map_or(0.0, |lora| self.suitability(lora, cycle.request.model));
        }
    }

    fn reads_readings(&self) -> bool {
        true
    }
}

impl LoraAffinityScorer {
    fn suitability(&self, lora: &Lora, model: &str) -> f64 {
        let is_in = |adapters: &[String]| adapters.iter().any(|adapter| adapter == model);
        if is_in(&lora.running) {
            1.0
        } else if self.has_room(lora) {
            0.8
        } else if is_in(&lora.waiting) {
            0.6
        } else {
            0.0
        }
    }

    fn has_room(&self, lora: &Lora) -> bool {
        let room = (lora.max as usize).saturating_sub(lora.running.len());
        let counts = |adapter: &&String| self.count_twice || !lora.running.contains(*adapter);
        // Looks at no more adapters than decide, so that a server's long lists cannot make the decision slow.
        room > 0 && lora.waiting.iter().filter(counts).take(room).count() < room
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::fixture::{Fixture, assert_near};
    use crate::reading::Reading;
    use crate::test;

    fn serving(running: &[&str], waiting: &[&str], max: u32) -> Reading {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let lora = Lora { running: names(running), waiting: names(waiting), max };
        Reading { lora: Some(lora), ..Reading::default() }
    }

    fn score(scorer: &LoraAffinityScorer, readings: &[Reading]) -> Vec<f64> {
        let mut fixture = Fixture::with_readings(readings);
        fixture.request.model = "wanted";
        fixture.scores(scorer)
    }

    #[test]
    fn running_goes_before_room_before_waiting_before_full() {
        let readings = [
            serving(&["wanted", "a"], &[], 2),
            serving(&["a"], &[], 2),
            serving(&[], &["wanted"], 2),
            serving(&["a"], &["wanted"], 2),
            serving(&["a", "b"], &["wanted"], 2),
            serving(&["a", "b"], &["c"], 2),
        ];
        assert_near(&score(&LoraAffinityScorer::default(), &readings), &[1.0, 0.8, 0.8, 0.6, 0.6, 0.0]);
    }

    #[test]
    fn an_adapter_in_both_lists_counts_once_unless_told_otherwise() {
        let vllm = [serving(&["a", "b"], &["a", "b"], 4)];
        assert_near(&score(&LoraAffinityScorer::default(), &vllm), &[0.8]);
        assert_near(&score(&LoraAffinityScorer { count_twice: true }, &vllm), &[0.0]);
    }

    #[test]
    fn a_server_without_adapters_scores_zero() {
        let readings = [Reading::default(), serving(&[], &[], 0)];
        assert_near(&score(&LoraAffinityScorer::default(), &readings), &[0.0, 0.0]);
    }
}
