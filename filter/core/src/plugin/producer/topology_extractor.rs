//! `topology-extractor`: where endpoints are, and how close two are.

use std::sync::Arc;

use serde::Deserialize;

use crate::input::providers::{Topology, TopologyLevel};
use crate::plugin::parameter::or_default;
use crate::plugin::{Plugin, Roles};

/// The labels of endpoints that name their places, from the closest to the widest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TopologyExtractor {
    /// Empty: `kubernetes.io/hostname`.
    hostname: String,
    /// Empty: `topology.kubernetes.io/rack`.
    rack: String,
    /// Empty: `topology.kubernetes.io/zone`.
    zone: String,
    /// Empty: `topology.kubernetes.io/region`.
    region: String,
}

impl Plugin for TopologyExtractor {
    fn roles(self: Arc<Self>) -> Roles {
        Roles { topology: Some(Arc::new(self.topology())), ..Roles::default() }
    }

    fn is_alpha(&self) -> bool {
        true
    }
}

impl TopologyExtractor {
    /// The labels that name places.
    pub fn topology(&self) -> Topology {
        let label = |level, name, default| (level, or_default(name, default).to_owned());
        Topology([
            label(TopologyLevel::Host, &self.hostname, "kubernetes.io/hostname"),
            label(TopologyLevel::Rack, &self.rack, "topology.kubernetes.io/rack"),
            label(TopologyLevel::Zone, &self.zone, "topology.kubernetes.io/zone"),
            label(TopologyLevel::Region, &self.region, "topology.kubernetes.io/region"),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pool::{Endpoint, Endpoints};
    use crate::test;

    fn endpoint(labels: &[(&str, &str)]) -> Endpoint {
        let labels = labels.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
        Endpoint::new("default/a".to_owned(), ([10, 0, 0, 1], 8000).into(), labels)
    }

    #[test]
    fn the_closest_shared_place_counts() {
        let extractor = TopologyExtractor { rack: "rack".to_owned(), ..TopologyExtractor::default() };
        let topology = extractor.topology();
        let (host, zone) = ("kubernetes.io/hostname", "topology.kubernetes.io/zone");
        let level =
            |one: &[(&str, &str)], other: &[(&str, &str)]| topology.level(&endpoint(one), &endpoint(other));
        assert_eq!(
            level(&[(host, "a"), (zone, "1")], &[(host, "a"), (zone, "2")]),
            Some(TopologyLevel::Host)
        );
        assert_eq!(
            level(&[(host, "a"), (zone, "1")], &[(host, "b"), (zone, "1")]),
            Some(TopologyLevel::Zone)
        );
        assert_eq!(level(&[("rack", "r")], &[("rack", "r")]), Some(TopologyLevel::Rack));
        assert_eq!(level(&[(host, "")], &[(host, "")]), None, "an empty place is none");
        assert_eq!(level(&[(host, "a")], &[]), None);
        let knows =
            |labels: &[(&str, &str)]| topology.peer(&Endpoints::default(), &endpoint(labels)).is_some();
        assert!(!knows(&[(host, "")]) && knows(&[("rack", "r")]));
    }
}
