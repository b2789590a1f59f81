//! `topology-extractor`: where endpoints are, and how close two are.

use std::sync::Arc;

use serde::Deserialize;

use crate::plugin::parameter::or_default;
use crate::plugin::{Plugin, Roles};
use crate::pool::Endpoint;

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

/// How close two endpoints are: the closest place that they share. A smaller one is closer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum TopologyLevel {
    /// The same server machine.
    #[default]
    #[serde(alias = "")]
    Host,
    /// The same rack.
    Rack,
    /// The same zone.
    Zone,
    /// The same region.
    Region,
}

impl Plugin for TopologyExtractor {
    fn roles(self: Arc<Self>) -> Roles {
        Roles { topology: Some(self), ..Roles::default() }
    }

    fn is_alpha(&self) -> bool {
        true
    }
}

impl TopologyExtractor {
    fn labels(&self) -> [(TopologyLevel, &str); 4] {
        [
            (TopologyLevel::Host, or_default(&self.hostname, "kubernetes.io/hostname")),
            (TopologyLevel::Rack, or_default(&self.rack, "topology.kubernetes.io/rack")),
            (TopologyLevel::Zone, or_default(&self.zone, "topology.kubernetes.io/zone")),
            (TopologyLevel::Region, or_default(&self.region, "topology.kubernetes.io/region")),
        ]
    }

    /// Whether the endpoint has one of the labels.
    pub fn knows(&self, endpoint: &Endpoint) -> bool {
        self.labels().iter().any(|(_, label)| place(endpoint, label).is_some())
    }

    /// The closest place that both endpoints share; `None`: they share none. Each label counts by itself: endpoints on one host are
    /// close even if their zones differ.
    pub fn level(&self, one: &Endpoint, other: &Endpoint) -> Option<TopologyLevel> {
        let shares =
            |(_, label): &(_, &str)| place(one, label).is_some_and(|own| place(other, label) == Some(own));
        self.labels().into_iter().find(shares).map(|(level, _)| level)
    }
}

/// The endpoint's value of a label; an empty one counts as none.
fn place<'a>(endpoint: &'a Endpoint, label: &str) -> Option<&'a str> {
    endpoint.label(label).filter(|place| !place.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    fn endpoint(labels: &[(&str, &str)]) -> Endpoint {
        let labels = labels.iter().map(|&(key, value)| (key.to_owned(), value.to_owned())).collect();
        Endpoint::new("default/a".to_owned(), ([10, 0, 0, 1], 8000).into(), labels)
    }

    #[test]
    fn the_closest_shared_place_counts() {
        let extractor = TopologyExtractor { rack: "rack".to_owned(), ..TopologyExtractor::default() };
        let (host, zone) = ("kubernetes.io/hostname", "topology.kubernetes.io/zone");
        let level =
            |one: &[(&str, &str)], other: &[(&str, &str)]| extractor.level(&endpoint(one), &endpoint(other));
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
        assert!(!extractor.knows(&endpoint(&[(host, "")])) && extractor.knows(&endpoint(&[("rack", "r")])));
    }
}
