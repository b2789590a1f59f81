//! `topology-affinity-filter`: endpoints close to the endpoint of the stage before.

use std::sync::Arc;

use serde::Deserialize;

use crate::input::cycle::Cycle;
use crate::input::providers::TopologyLevel;
use crate::plugin::{Filter, Need, Plugin, Roles};
use crate::rng::Rng;

/// Keeps the candidates that share a place of the level `min_affinity`, or a closer one, with the endpoint
/// that an earlier stage picked; all, if there is none, if its places are not known, or if no candidate is
/// close enough.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct TopologyAffinityFilter {
    min_affinity: TopologyLevel,
    /// Name of the `topology-extractor`; empty: its type's.
    topology_producer_name: String,
}

impl Plugin for TopologyAffinityFilter {
    fn roles(self: Arc<Self>) -> Roles {
        Roles { filter: Some(self), ..Roles::default() }
    }

    fn needs(&self) -> Vec<Need<'_>> {
        vec![Need::topology(&self.topology_producer_name)]
    }

    fn is_alpha(&self) -> bool {
        true
    }
}

impl Filter for TopologyAffinityFilter {
    fn filter(&self, cycle: &Cycle<'_>, candidates: &mut Vec<usize>, _: &mut dyn Rng) {
        let Some(near) = cycle.peer_topology() else { return };
        let is_close =
            |&endpoint: &usize| near.level(endpoint).is_some_and(|level| level <= self.min_affinity);
        if candidates.iter().any(is_close) {
            candidates.retain(is_close);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::TopologyAffinityScorer;
    use crate::plugin::fixture::{Fixture, assert_near};
    use crate::test;
    use serde_json::json;

    const HOST: &str = "kubernetes.io/hostname";
    const ZONE: &str = "topology.kubernetes.io/zone";

    /// Candidates (a, 1), (b, 1), (c, 2) and one without labels, and an endpoint that is the peer.
    fn fixture(host: &str) -> Fixture {
        near(host, Some(4))
    }

    fn near(host: &str, peer: Option<usize>) -> Fixture {
        let mut fixture = Fixture::of(5);
        for (endpoint, (host, zone)) in [("a", "1"), ("b", "1"), ("c", "2")].into_iter().enumerate() {
            fixture.label(endpoint, HOST, host);
            fixture.label(endpoint, ZONE, zone);
        }
        fixture.label(4, HOST, host);
        fixture.label(4, ZONE, "1");
        fixture.peer = peer;
        fixture
    }

    fn kept(fixture: &Fixture, parameters: serde_json::Value) -> Vec<usize> {
        let filter: TopologyAffinityFilter = serde_json::from_value(parameters).unwrap();
        let mut candidates = vec![0, 1, 2, 3];
        let rng = &mut crate::rng::SplitMix64::new(1);
        fixture.with_cycle(|cycle| filter.filter(cycle, &mut candidates, rng));
        candidates
    }

    #[test]
    fn candidates_that_are_close_enough_are_kept() {
        assert_eq!(kept(&fixture("a"), json!({"minAffinity": "zone"})), [0, 1]);
        assert_eq!(kept(&fixture("a"), json!({})), [0]);
    }

    #[test]
    fn all_are_kept_where_none_can_be_close() {
        assert_eq!(kept(&fixture("z"), json!({})), [0, 1, 2, 3], "no candidate is on the host");
        let alone = near("a", None);
        assert_eq!(kept(&alone, json!({})), [0, 1, 2, 3], "there is no peer");
        let unknown = near("a", Some(3));
        assert_eq!(kept(&unknown, json!({"minAffinity": "region"})), [0, 1, 2, 3], "the peer has no places");
    }

    #[test]
    fn levels_have_fixed_scores() {
        let scores = fixture("a").scores(&TopologyAffinityScorer::default());
        assert_near(&scores[..4], &[1.0, 0.05, 0.0, 0.0]);
        let alone = near("a", None);
        assert_near(&alone.scores(&TopologyAffinityScorer::default()), &[0.0; 5]);
    }

    #[test]
    fn an_unknown_level_is_refused() {
        let error =
            serde_json::from_value::<TopologyAffinityFilter>(json!({"minAffinity": "node"})).unwrap_err();
        assert!(error.to_string().contains("`host`"), "{error}");
    }
}
