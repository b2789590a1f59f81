//! The parts of a pipeline that plugins of other roles read.

use std::sync::Arc;

use serde::Deserialize;

use crate::epp_rules::EppRules;
use crate::headers::Headers;
use crate::input::load_estimator::LoadEstimator;
use crate::pool::{Endpoint, Endpoints};

/// The parts of a pipeline that plugins of other roles read: one field of a cycle, which is copied for each
/// plugin.
#[derive(Clone, Debug)]
pub(crate) struct Providers {
    pub(crate) load_estimator: LoadEstimator,
    /// The index of the prefix producer whose matches add no load.
    pub(crate) load_prefixes: Option<u16>,
    pub(crate) agent_identities: Vec<Arc<AgentSessionHeaders>>,
    pub(crate) topologies: Vec<Arc<Topology>>,
    pub(crate) epp_rules: EppRules,
}

impl Providers {
    /// The header that names the agent session of a request, and the session.
    pub(crate) fn agent_identity<'h>(&self, headers: Headers<'h>) -> Option<(&str, &'h str)> {
        self.agent_identities.iter().find_map(|names| names.find(headers))
    }
}

/// The headers by which agents name their session, in the order in which they count. An empty name matches
/// none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentSessionHeaders(pub(crate) Vec<String>);

impl AgentSessionHeaders {
    /// The header that names the session, and its value as it is; `None`: there is none of these headers.
    pub fn find<'a>(&self, headers: Headers<'a>) -> Option<(&str, &'a str)> {
        self.0.iter().find_map(|name| Some((name.as_str(), headers.get(name)?)))
    }
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

/// The labels of endpoints that name their places, from the closest to the widest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology(pub(crate) [(TopologyLevel, String); 4]);

impl Topology {
    /// The closest place that both endpoints share; `None`: they share none. Each label counts by itself:
    /// endpoints on one host are close even if their zones differ.
    pub fn level(&self, one: &Endpoint, other: &Endpoint) -> Option<TopologyLevel> {
        let shares =
            |(_, label): &&(_, String)| place(one, label).is_some_and(|own| place(other, label) == Some(own));
        self.0.iter().find(shares).map(|&(level, _)| level)
    }

    /// The distance of endpoints to one of them; `None`: it has none of the labels.
    pub(crate) fn peer<'a>(&'a self, pool: &'a Endpoints, peer: &'a Endpoint) -> Option<PeerTopology<'a>> {
        let is_known = self.0.iter().any(|(_, label)| place(peer, label).is_some());
        is_known.then_some(PeerTopology { topology: self, pool, peer })
    }
}

/// The endpoint's value of a label; an empty one counts as none.
fn place<'a>(endpoint: &'a Endpoint, label: &str) -> Option<&'a str> {
    endpoint.label(label).filter(|place| !place.is_empty())
}

/// The distance of endpoints to one of them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerTopology<'a> {
    topology: &'a Topology,
    pool: &'a Endpoints,
    peer: &'a Endpoint,
}

impl PeerTopology<'_> {
    /// The closest place that the endpoint shares; `None`: it shares none.
    pub(crate) fn level(&self, endpoint: usize) -> Option<TopologyLevel> {
        self.topology.level(self.peer, self.pool.endpoint(endpoint))
    }
}
