//! Selects the endpoints of a pool.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZeroU16;

use endpoint_picker::pool::Endpoint;

/// The labels with the active target ports of an endpoint; the first one found decides. On pods these are annotations (the EPP's
/// key and its alias); endpoints of a file have labels only.
pub const ACTIVE_PORTS: [&str; 2] = ["llm-d.ai/active-ports", "inference.networking.k8s.io/active-ports"];

/// Which endpoints belong to a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Members {
    /// Every discovered endpoint, unchanged.
    All,
    /// The endpoints in the pool's namespace that have all its labels.
    Selected {
        /// The pool's namespace.
        namespace: String,
        /// Labels and their values.
        labels: BTreeMap<String, String>,
        /// The pool's ports, for endpoints that serve several.
        target_ports: Vec<NonZeroU16>,
    },
}

impl Members {
    /// The pool's endpoints, in the order of discovery.
    ///
    /// An endpoint keeps its port, as in the EPP's file discovery, unless a label lists its active ports. Then it becomes one
    /// endpoint for each active target port, named `<name>-rank-<i>` after the port's index in the pool; other ports are skipped.
    pub fn among(&self, found: &[Endpoint]) -> Vec<Endpoint> {
        let Self::Selected { namespace, labels, target_ports } = self else { return found.to_vec() };
        let belongs = |endpoint: &&Endpoint| {
            endpoint.name().split_once('/').is_some_and(|(own, _)| own == namespace)
                && labels.iter().all(|(key, value)| endpoint.label(key) == Some(value))
        };
        let mut members = Vec::new();
        for endpoint in found.iter().filter(belongs) {
            match ACTIVE_PORTS.iter().find_map(|key| endpoint.label(key)) {
                Some(active) => members.extend(ranks(endpoint, active, target_ports)),
                None => members.push(endpoint.clone()),
            }
        }
        members
    }
}

fn ranks(endpoint: &Endpoint, active: &str, target_ports: &[NonZeroU16]) -> impl Iterator<Item = Endpoint> {
    let active: Vec<u16> = active.split(',').filter_map(|port| port.trim().parse().ok()).collect();
    let ports = target_ports.iter().enumerate().filter(move |(_, port)| active.contains(&port.get()));
    ports.map(|(rank, port)| {
        let labels = endpoint.labels().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
        let address = SocketAddr::new(endpoint.address().ip(), port.get());
        Endpoint::new(format!("{}-rank-{rank}", endpoint.name()), address, labels)
    })
}
