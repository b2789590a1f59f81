//! `lora-affinity-scorer`: endpoints that have the adapter, or room for it.

use std::sync::Arc;

use serde::Deserialize;

use crate::input::cycle::Cycle;
use crate::plugin::{Plugin, Roles, Scorer};
use crate::pool::reading::Lora;

/// 1 if the request's model is among the adapters that run at the endpoint; else 0.8 if fewer adapters run or
/// wait there than fit; else 0.6 if the model is among those that wait; else 0.
///
/// vLLM lists every adapter in use as running *and* as waiting, so an adapter in both lists counts once
/// against the room; the EPP counts it twice (`count_twice`) and finds a half-empty server full. A base
/// model's name is that of an adapter that no server has.
///
/// vLLM reports no adapters before its first request. Such a server counts as one without adapters and with
/// the room of the pool's largest: the EPP scores it 0 (`unreported_as_empty: false`), so that it gets no
/// request and never reports any. In a pool where no server reports adapters all score 0.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct LoraAffinityScorer {
    /// Counts an adapter that both runs and waits as two, as the EPP does.
    count_twice: bool,
    /// Counts an endpoint that reports no adapters as an empty one, while another endpoint of the pool
    /// reports some.
    unreported_as_empty: bool,
}

impl Default for LoraAffinityScorer {
    fn default() -> Self {
        Self { count_twice: false, unreported_as_empty: true }
    }
}

impl Plugin for LoraAffinityScorer {
    fn roles(self: Arc<Self>) -> Roles {
        Roles { scorer: Some(self), ..Roles::default() }
    }
}

impl Scorer for LoraAffinityScorer {
    fn score(&self, cycle: &Cycle<'_>, candidates: &[usize], scores: &mut [f64]) {
        // Most pools report adapters everywhere or nowhere; the others of the pool count only where one is
        // missing.
        let mut unreported = None;
        for (score, &endpoint) in scores.iter_mut().zip(candidates) {
            *score = match &cycle.reading(endpoint).lora {
                Some(lora) => self.suitability(lora, cycle.request.model),
                None => *unreported.get_or_insert_with(|| self.of_unreported(cycle)),
            };
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

    fn of_unreported(&self, cycle: &Cycle<'_>) -> f64 {
        let reported = cycle.readings.iter().filter_map(|reading| reading.lora.as_ref());
        let most = reported.map(|lora| lora.max).max();
        match most.filter(|_| self.unreported_as_empty) {
            Some(max) => self.suitability(&Lora { max, ..Lora::default() }, cycle.request.model),
            None => 0.0,
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
    use crate::pool::reading::Reading;
    use crate::test;

    fn serving(running: &[&str], waiting: &[&str], max: u32) -> Reading {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let lora = Lora { running: names(running), waiting: names(waiting), max };
        Reading { lora: Some(lora), ..Reading::default() }
    }

    fn score(scorer: &LoraAffinityScorer, readings: &[Reading]) -> Vec<f64> {
        let mut fixture = Fixture::with_readings(readings);
        fixture.request.model = "mine";
        fixture.scores(scorer)
    }

    #[test]
    fn running_goes_before_room_before_waiting_before_full() {
        let readings = [
            serving(&["mine", "a"], &[], 2),
            serving(&["a"], &[], 2),
            serving(&[], &["mine"], 2),
            serving(&["a"], &["mine"], 2),
            serving(&["a", "b"], &["mine"], 2),
            serving(&["a", "b"], &["c"], 2),
        ];
        assert_near(&score(&LoraAffinityScorer::default(), &readings), &[1.0, 0.8, 0.8, 0.6, 0.6, 0.0]);
    }

    #[test]
    fn an_adapter_in_both_lists_counts_once_unless_told_otherwise() {
        let vllm = [serving(&["a", "b"], &["a", "b"], 4)];
        assert_near(&score(&LoraAffinityScorer::default(), &vllm), &[0.8]);
        assert_near(
            &score(&LoraAffinityScorer { count_twice: true, ..LoraAffinityScorer::default() }, &vllm),
            &[0.0],
        );
    }

    #[test]
    fn who_reports_no_adapters_yet_counts_as_empty_while_another_reports_some() {
        let readings = [serving(&["a"], &[], 2), Reading::default(), serving(&["a", "b"], &[], 2)];
        assert_near(&score(&LoraAffinityScorer::default(), &readings), &[0.8, 0.8, 0.0]);
        let as_the_epp = LoraAffinityScorer { unreported_as_empty: false, ..LoraAffinityScorer::default() };
        assert_near(&score(&as_the_epp, &readings), &[0.8, 0.0, 0.0]);
        let without_room = [serving(&[], &[], 0), Reading::default()];
        assert_near(&score(&LoraAffinityScorer::default(), &without_room), &[0.0, 0.0]);
        let nowhere = [Reading::default(), Reading::default()];
        assert_near(&score(&LoraAffinityScorer::default(), &nowhere), &[0.0, 0.0]);
    }

    #[test]
    fn others_of_the_pool_count_also_when_they_are_no_candidates() {
        let readings = [serving(&["a"], &[], 2), Reading::default()];
        let mut fixture = Fixture::with_readings(&readings);
        fixture.request.model = "mine";
        let mut scores = [0.0];
        fixture.with_cycle(|cycle| LoraAffinityScorer::default().score(cycle, &[1], &mut scores));
        assert_near(&scores, &[0.8]);
    }

    #[test]
    fn a_server_without_adapters_scores_zero() {
        let readings = [Reading::default(), serving(&[], &[], 0)];
        assert_near(&score(&LoraAffinityScorer::default(), &readings), &[0.0, 0.0]);
    }
}
