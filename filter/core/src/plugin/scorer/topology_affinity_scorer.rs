//! `topology-affinity-scorer`: close to the endpoint of the stage before is better.

use std::sync::Arc;

use serde::Deserialize;

use crate::input::cycle::Cycle;
use crate::input::providers::TopologyLevel;
use crate::plugin::{Need, Plugin, Roles, Scorer};

/// 1 on the host of the endpoint that an earlier stage picked, 0.2 in its rack, 0.05 in its zone, 0.02 in its
/// region, 0 elsewhere. Without such an endpoint all score 0.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
pub struct TopologyAffinityScorer {
    /// Name of the `topology-extractor`; empty: its type's.
    topology_producer_name: String,
}

impl Plugin for TopologyAffinityScorer {
    fn roles(self: Arc<Self>) -> Roles {
        Roles { scorer: Some(self), ..Roles::default() }
    }

    fn needs(&self) -> Vec<Need<'_>> {
        vec![Need::topology(&self.topology_producer_name)]
    }

    fn is_alpha(&self) -> bool {
        true
    }
}

impl Scorer for TopologyAffinityScorer {
    fn score(&self, cycle: &Cycle<'_>, candidates: &[usize], scores: &mut [f64]) {
        let Some(near) = cycle.peer_topology() else { return };
        for (score, &endpoint) in scores.iter_mut().zip(candidates) {
            *score = match near.level(endpoint) {
                Some(TopologyLevel::Host) => 1.0,
                Some(TopologyLevel::Rack) => 0.2,
                Some(TopologyLevel::Zone) => 0.05,
                Some(TopologyLevel::Region) => 0.02,
                None => 0.0,
            };
        }
    }
}
