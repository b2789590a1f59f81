//! `legacy-filter-tree`: the decision tree of the first endpoint pickers, v0.1 to v0.5 of the Gateway API
//! Inference Extension.

use std::sync::Arc;

use serde::Deserialize;

use crate::input::cycle::Cycle;
use crate::plugin::parameter::allow;
use crate::plugin::{Filter, Plugin, Roles};
use crate::pool::reading::Lora;
use crate::rng::Rng;

/// Keeps the endpoints at the end of the tree; with a `random-picker` the profile decides as those versions
/// did.
///
/// A node that would keep none is skipped. Missing values count as 0, as in these versions.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct LegacyFilterTree {
    version: TreeVersion,
    /// Requests waiting up to which an endpoint takes requests that are not critical. From v0.4 on saturation
    /// decides about these.
    queue_threshold_critical: u64,
    /// KV usage up to which an endpoint takes them.
    kv_cache_threshold: f64,
    /// Requests waiting from which adapters no longer go before queues; `None`: 50 in v0.1, then 128.
    #[serde(rename = "queueingThresholdLoRA")]
    queueing_threshold_lora: Option<u64>,
    /// Probability with which a request goes to an endpoint that has its adapter rather than to one with room
    /// for it, from v0.2 on.
    lora_affinity_threshold: f64,
}

/// Versions with different trees.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
enum TreeVersion {
    #[serde(rename = "v0.1")]
    V01,
    #[default]
    #[serde(rename = "v0.2", alias = "v0.3")]
    V02,
    #[serde(rename = "v0.4", alias = "v0.5")]
    V04,
}

impl Default for LegacyFilterTree {
    fn default() -> Self {
        Self {
            version: TreeVersion::default(),
            queue_threshold_critical: 5,
            kv_cache_threshold: 0.8,
            queueing_threshold_lora: None,
            lora_affinity_threshold: 0.999,
        }
    }
}

impl Plugin for LegacyFilterTree {
    fn check(&self) -> Result<(), String> {
        let (kv, affinity) = (self.kv_cache_threshold, self.lora_affinity_threshold);
        allow((0.0..=1.0).contains(&kv), "kvCacheThreshold", kv, "0 to 1")?;
        allow((0.0..=1.0).contains(&affinity), "loraAffinityThreshold", affinity, "0 to 1")
    }

    fn roles(self: Arc<Self>) -> Roles {
        Roles { filter: Some(self), ..Roles::default() }
    }
}

impl Filter for LegacyFilterTree {
    fn filter(&self, cycle: &Cycle<'_>, candidates: &mut Vec<usize>, rng: &mut dyn Rng) {
        let mut walk = TreeWalk { tree: self, cycle, rng };
        *candidates = walk.root(candidates);
    }
}

/// One request on its way through the tree.
struct TreeWalk<'a> {
    tree: &'a LegacyFilterTree,
    cycle: &'a Cycle<'a>,
    rng: &'a mut dyn Rng,
}

impl TreeWalk<'_> {
    fn root(&mut self, all: &[usize]) -> Vec<usize> {
        let sheds = self.tree.version != TreeVersion::V04;
        if sheds && self.cycle.request.priority <= 0 {
            let LegacyFilterTree { queue_threshold_critical: queue, kv_cache_threshold: kv, .. } = *self.tree;
            let idle = self.some(all, |walk, e| walk.waiting(e) <= queue && walk.kv_usage(e) <= kv);
            return idle.map(|idle| self.queue_first(&idle)).unwrap_or_default();
        }
        let limit = self.tree.queueing_threshold_lora;
        let limit = limit.unwrap_or(if self.tree.version == TreeVersion::V01 { 50 } else { 128 });
        let has_short_queue = |walk: &Self, e| match walk.tree.version {
            TreeVersion::V01 | TreeVersion::V02 => walk.waiting(e) < limit,
            TreeVersion::V04 => walk.waiting(e) <= limit,
        };
        match self.some(all, has_short_queue) {
            Some(low) => {
                let near = self.adapter_first(low);
                self.least_kv_usage(&self.least_queue(&near))
            }
            None => self.queue_first(all),
        }
    }

    /// The path of long queues: least queue, then adapters, then least KV usage.
    fn queue_first(&mut self, endpoints: &[usize]) -> Vec<usize> {
        let short = self.least_queue(endpoints);
        let near = match self.tree.version {
            TreeVersion::V01 => {
                self.some(&short, |walk, e| walk.has_adapter(e) || walk.has_room(e)).unwrap_or(short)
            }
            TreeVersion::V02 | TreeVersion::V04 => self.adapter_by_chance(short),
        };
        self.least_kv_usage(&near)
    }

    /// Adapters where queues are short.
    fn adapter_first(&mut self, endpoints: Vec<usize>) -> Vec<usize> {
        match self.tree.version {
            TreeVersion::V01 => self
                .some(&endpoints, Self::has_adapter)
                .or_else(|| self.some(&endpoints, Self::has_room))
                .unwrap_or(endpoints),
            TreeVersion::V02 | TreeVersion::V04 => self.adapter_by_chance(endpoints),
        }
    }

    /// Endpoints with the adapter, or, rarely or if there are none, others with room for it.
    fn adapter_by_chance(&mut self, endpoints: Vec<usize>) -> Vec<usize> {
        let affine = self.some(&endpoints, Self::has_adapter);
        let free = self.some(&endpoints, |walk, e| !walk.has_adapter(e) && walk.has_room(e));
        match (affine, free) {
            (Some(affine), Some(free)) => {
                if self.rng.unit() < self.tree.lora_affinity_threshold {
                    affine
                } else {
                    free
                }
            }
            (affine, free) => affine.or(free).unwrap_or(endpoints),
        }
    }

    /// Endpoints in the first of n equal parts of the range of queues, n their number; whole requests.
    fn least_queue(&self, endpoints: &[usize]) -> Vec<usize> {
        let queues = endpoints.iter().map(|&e| self.waiting(e));
        let (min, max) = (queues.clone().min().unwrap_or(0), queues.max().unwrap_or(0));
        let limit = min + (max - min) / (endpoints.len() as u64).max(1);
        self.some(endpoints, |walk, e| walk.waiting(e) <= limit).unwrap_or_else(|| endpoints.to_vec())
    }

    /// The same for KV usage.
    fn least_kv_usage(&self, endpoints: &[usize]) -> Vec<usize> {
        let usages = endpoints.iter().map(|&e| self.kv_usage(e));
        let (min, max) = (usages.clone().fold(f64::INFINITY, f64::min), usages.fold(0.0, f64::max));
        let limit = min + (max - min) / endpoints.len() as f64;
        self.some(endpoints, |walk, e| walk.kv_usage(e) <= limit).unwrap_or_else(|| endpoints.to_vec())
    }

    /// The endpoints for which it holds; `None` if there are none.
    fn some(&self, endpoints: &[usize], holds: impl Fn(&Self, usize) -> bool) -> Option<Vec<usize>> {
        let kept: Vec<usize> = endpoints.iter().copied().filter(|&endpoint| holds(self, endpoint)).collect();
        (!kept.is_empty()).then_some(kept)
    }

    fn waiting(&self, endpoint: usize) -> u64 {
        self.cycle.reading(endpoint).waiting.unwrap_or(0)
    }

    fn kv_usage(&self, endpoint: usize) -> f64 {
        self.cycle.reading(endpoint).kv_usage.unwrap_or(0.0)
    }

    fn lora(&self, endpoint: usize) -> Option<&Lora> {
        self.cycle.reading(endpoint).lora.as_ref()
    }

    /// From v0.4 on, adapters that wait count too.
    fn has_adapter(&self, endpoint: usize) -> bool {
        let is_in = |adapters: &[String]| adapters.iter().any(|adapter| adapter == self.cycle.request.model);
        let counts_waiting = self.tree.version == TreeVersion::V04;
        self.lora(endpoint).is_some_and(|lora| is_in(&lora.running) || counts_waiting && is_in(&lora.waiting))
    }

    fn has_room(&self, endpoint: usize) -> bool {
        let counts_waiting = self.tree.version == TreeVersion::V04;
        self.lora(endpoint).is_some_and(|lora| {
            let waiting = if counts_waiting { lora.waiting.len() } else { 0 };
            lora.running.len() + waiting < lora.max as usize
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::fixture::Fixture;
    use crate::pool::reading::Reading;
    use crate::test;
    use serde_json::{Value, json};

    fn pod(waiting: u64, kv_usage: f64, lora: Option<(&[&str], &[&str], u32)>) -> Reading {
        let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect();
        let lora = lora.map(|(running, waiting, max)| Lora {
            running: names(running),
            waiting: names(waiting),
            max,
        });
        Reading { waiting: Some(waiting), kv_usage: Some(kv_usage), lora, ..Reading::default() }
    }

    fn kept(parameters: Value, priority: i32, readings: &[Reading]) -> Vec<usize> {
        let tree: LegacyFilterTree = serde_json::from_value(parameters).unwrap();
        assert_eq!(tree.check(), Ok(()));
        let mut fixture = Fixture::with_readings(readings);
        (fixture.request.model, fixture.request.priority) = ("mine", priority);
        fixture.kept(&tree, 7)
    }

    #[test]
    fn queue_and_kv_usage_are_cut_to_a_part_of_their_range() {
        let queues = [pod(0, 0.0, None), pod(3, 0.0, None), pod(10, 0.0, None)];
        assert_eq!(kept(json!({}), 1, &queues), [0, 1]);
        let usages = [pod(0, 0.0, None), pod(0, 0.3, None), pod(0, 1.0, None)];
        assert_eq!(kept(json!({}), 1, &usages), [0, 1]);
    }

    #[test]
    fn requests_that_are_not_critical_need_an_idle_endpoint_up_to_v0_3() {
        let readings = [pod(6, 0.1, None), pod(5, 0.9, None), pod(5, 0.8, None)];
        assert_eq!(kept(json!({}), 0, &readings), [2]);
        assert_eq!(kept(json!({"version": "v0.1"}), -1, &readings), [2]);
        assert_eq!(kept(json!({}), 0, &readings[..2]), [0; 0], "the request is dropped");
        assert_eq!(kept(json!({"version": "v0.5"}), -1, &readings[..2]), [1]);
        assert_eq!(kept(json!({"queueThresholdCritical": 6}), 0, &readings[..2]), [0]);
    }

    #[test]
    fn adapters_go_before_queues_that_are_short_and_after_long_ones() {
        let (mine, other): (&[&str], &[&str]) = (&["mine"], &["other"]);
        let short = [pod(100, 0.0, Some((mine, &[], 1))), pod(0, 0.0, Some((other, &[], 2)))];
        assert_eq!(kept(json!({"loraAffinityThreshold": 1}), 1, &short), [0]);
        assert_eq!(kept(json!({"loraAffinityThreshold": 0}), 1, &short), [1]);
        assert_eq!(kept(json!({"version": "v0.1"}), 1, &short), [1], "100 waiting are many in v0.1");
        let long = [pod(900, 0.0, Some((mine, &[], 1))), pod(200, 0.0, Some((other, &[], 2)))];
        assert_eq!(kept(json!({"loraAffinityThreshold": 1}), 1, &long), [1]);
        let at = [pod(128, 0.0, Some((mine, &[], 1))), pod(128, 0.5, None)];
        assert_eq!(kept(json!({"version": "v0.4", "loraAffinityThreshold": 1}), 1, &at), [0]);
    }

    #[test]
    fn adapters_that_wait_count_from_v0_4_on() {
        let waits = [pod(0, 0.0, Some((&[], &["mine"], 1))), pod(0, 0.0, Some((&[], &[], 1)))];
        assert_eq!(kept(json!({"version": "v0.4", "loraAffinityThreshold": 1}), 1, &waits), [0]);
        assert_eq!(kept(json!({"version": "v0.3"}), 1, &waits), [0, 1], "both have room");
        let full = [pod(0, 0.0, Some((&["a"], &["b"], 2))), pod(0, 0.0, Some((&["a"], &[], 2)))];
        assert_eq!(kept(json!({"version": "v0.4"}), 1, &full), [1]);
    }

    #[test]
    fn nothing_known_keeps_all_and_thresholds_are_shares() {
        assert_eq!(kept(json!({}), 0, &[Reading::default(), Reading::default()]), [0, 1]);
        assert_eq!(kept(json!({}), 1, &[]), [0; 0]);
        for (parameters, expected) in [
            (json!({"kvCacheThreshold": 1.5}), "kvCacheThreshold is 1.5; allowed is 0 to 1"),
            (json!({"loraAffinityThreshold": -1}), "loraAffinityThreshold is -1; allowed is 0 to 1"),
        ] {
            let tree: LegacyFilterTree = serde_json::from_value(parameters).unwrap();
            assert_eq!(tree.check(), Err(expected.to_owned()));
        }
        assert!(serde_json::from_value::<LegacyFilterTree>(json!({"version": "v0.6"})).is_err());
    }
}
