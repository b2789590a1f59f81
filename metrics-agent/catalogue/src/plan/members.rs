//! Selects the endpoints of a pool.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

use endpoint_picker::pool::Endpoint;
use metrics_agent_sources::endpoints::PORT_OF_POOL;
use metrics_agent_sources::kubernetes::{Pod, PodSelector};

use crate::scraping::DataSource;

/// The labels with the active target ports of an endpoint; the first one found decides. On pods these are
/// annotations (the EPP's key and its alias); endpoints of a file have labels only.
pub const ACTIVE_PORTS: [&str; 2] = ["llm-d.ai/active-ports", "inference.networking.k8s.io/active-ports"];

/// An endpoint of a pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// Its pod; `None` for endpoints of flags and files.
    pub pod: Option<Arc<Pod>>,
    /// Whether name servers deny its host name, so that its address may belong to another host.
    pub is_denied: bool,
}

impl Member {
    /// An endpoint of flags and files. `denied` are the names of endpoints whose host name is denied, all
    /// ranks of a server under one name.
    pub fn declared(endpoint: Endpoint, denied: &BTreeSet<String>) -> Self {
        let name = endpoint.name();
        let of_server = name.rsplit_once("-rank-").map_or(name, |(server, _)| server);
        let is_denied = denied.contains(name) || denied.contains(of_server);
        Self { endpoint, pod: None, is_denied }
    }

    /// The uid of its pod, which identifies the pod for all time.
    pub fn pod_uid(&self) -> Option<Arc<str>> {
        self.pod.as_ref().map(|pod| Arc::clone(&pod.uid))
    }

    /// Its rank among the endpoints of its server, by the name that [`Members::among`] and pods of several
    /// ports give it.
    pub fn rank(&self) -> Option<u16> {
        self.endpoint.name().rsplit_once("-rank-")?.1.parse().ok()
    }

    /// The address of one of its other data sources.
    pub fn address_of(&self, source: &DataSource) -> SocketAddr {
        let node = self.pod.as_ref().and_then(|pod| pod.node).filter(|_| source.is_on_node);
        let own = self.endpoint.address();
        SocketAddr::new(node.unwrap_or_else(|| own.ip()), source.port.map_or(own.port(), NonZeroU16::get))
    }

    /// The name of its pod; of endpoints of flags and files their own name without the namespace.
    pub fn pod_name(&self) -> &str {
        let own = self.endpoint.name();
        self.pod.as_ref().map_or_else(|| own.split_once('/').map_or(own, |(_, name)| name), |pod| &pod.name)
    }
}

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
    /// An endpoint keeps its port, as in the EPP's file discovery, unless a label lists its active ports.
    /// Then it becomes one endpoint for each active target port, named `<name>-rank-<i>` after the port's
    /// index in the pool; other ports are skipped. An endpoint without a port has the pool's; with several of
    /// them it becomes one endpoint for each.
    pub fn among(&self, found: &[Endpoint]) -> Vec<Endpoint> {
        let Self::Selected { namespace, labels, target_ports } = self else { return found.to_vec() };
        let belongs = |endpoint: &&Endpoint| {
            endpoint.name().split_once('/').is_some_and(|(own, _)| own == namespace)
                && labels.iter().all(|(key, value)| endpoint.label(key) == Some(value))
        };
        let mut members = Vec::new();
        for endpoint in found.iter().filter(belongs) {
            match ACTIVE_PORTS.iter().find_map(|key| endpoint.label(key)) {
                Some(active) => {
                    let ranks = active_ports(active, target_ports);
                    members.extend(ranks.map(|(rank, port)| at(endpoint, port, Some(rank))));
                }
                None if endpoint.address().port() != PORT_OF_POOL => members.push(endpoint.clone()),
                None => {
                    let is_only = target_ports.len() == 1;
                    let ranks = target_ports.iter().copied().enumerate();
                    members.extend(ranks.map(|(rank, port)| at(endpoint, port, (!is_only).then_some(rank))));
                }
            }
        }
        members
    }

    /// The pods that belong to the pool; `None`: it does not select.
    pub fn selector(&self) -> Option<PodSelector> {
        match self {
            Self::All => None,
            Self::Selected { namespace, labels, .. } => {
                Some(PodSelector { namespace: namespace.clone(), labels: labels.clone() })
            }
        }
    }

    /// The endpoints of the pool's pods, in the order of the pods: as in the EPP one for each active target
    /// port, named `<namespace>/<pod>-rank-<i>` after the port's index in the pool.
    pub fn of_pods(&self, pods: &[Arc<Pod>]) -> Vec<Member> {
        let Self::Selected { namespace, target_ports, .. } = self else { return Vec::new() };
        let mut members = Vec::with_capacity(pods.len() * target_ports.len());
        for pod in pods {
            let member = |(rank, port): (usize, NonZeroU16)| {
                let labels = pod.labels.iter().map(|(key, value)| (key.clone(), value.clone())).collect();
                let name = format!("{namespace}/{}-rank-{rank}", pod.name);
                let endpoint = Endpoint::new(name, SocketAddr::new(pod.ip, port.get()), labels);
                Member { endpoint, pod: Some(Arc::clone(pod)), is_denied: false }
            };
            match &pod.active_ports {
                Some(active) => members.extend(active_ports(active, target_ports).map(member)),
                None => members.extend(target_ports.iter().copied().enumerate().map(member)),
            }
        }
        members
    }
}

/// The target ports in a list of active ports, each with its index in the pool. Other ports of the list are
/// skipped.
fn active_ports(active: &str, target_ports: &[NonZeroU16]) -> impl Iterator<Item = (usize, NonZeroU16)> {
    let active: Vec<u16> = active.split(',').filter_map(|port| port.trim().parse().ok()).collect();
    let ports = target_ports.iter().copied().enumerate();
    ports.filter(move |(_, port)| active.contains(&port.get()))
}

/// The endpoint at another port, which is a rank of it.
fn at(endpoint: &Endpoint, port: NonZeroU16, rank: Option<usize>) -> Endpoint {
    let labels = endpoint.labels().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    let address = SocketAddr::new(endpoint.address().ip(), port.get());
    let name = match rank {
        Some(rank) => format!("{}-rank-{rank}", endpoint.name()),
        None => endpoint.name().to_owned(),
    };
    Endpoint::new(name, address, labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pod(name: &str, ip: &str, active_ports: Option<&str>) -> Arc<Pod> {
        Arc::new(Pod {
            name: name.to_owned(),
            uid: format!("uid of {name}").into(),
            ip: ip.parse().unwrap(),
            labels: [("llm-d.ai/role".to_owned(), "decode".to_owned())].into(),
            active_ports: active_ports.map(str::to_owned),
            node: None,
        })
    }

    #[test]
    fn a_pod_has_an_endpoint_for_each_active_target_port() {
        let ports = [8000, 8001, 8002].map(|port| NonZeroU16::new(port).unwrap());
        let labels = [("app".to_owned(), "llama".to_owned())].into();
        let members =
            Members::Selected { namespace: "team-a".to_owned(), labels, target_ports: ports.into() };
        let pods = [
            pod("a", "10.0.0.1", None),
            pod("b", "2001:db8::1", Some("8002, 8000,9000,x")),
            pod("c", "10.0.0.3", Some("")),
        ];
        let found = members.of_pods(&pods);
        let printed = found.iter().map(|Member { endpoint, pod, .. }| {
            assert_eq!(endpoint.label("llm-d.ai/role"), Some("decode"));
            (endpoint.name(), endpoint.printed_address(), &*pod.as_ref().unwrap().uid)
        });
        let expected = [
            ("team-a/a-rank-0", "10.0.0.1:8000", "uid of a"),
            ("team-a/a-rank-1", "10.0.0.1:8001", "uid of a"),
            ("team-a/a-rank-2", "10.0.0.1:8002", "uid of a"),
            ("team-a/b-rank-0", "[2001:db8::1]:8000", "uid of b"),
            ("team-a/b-rank-2", "[2001:db8::1]:8002", "uid of b"),
        ];
        assert_eq!(printed.collect::<Vec<_>>(), expected);
        assert_eq!(Members::All.of_pods(&pods), []);
    }

    /// Example of `dcgm-data-source`.
    #[test]
    fn a_source_may_have_the_address_of_the_pods_node() {
        use crate::scraping::{Scheme, ScrapeSettings, SourceKind};

        let settings = ScrapeSettings {
            interval: core::time::Duration::from_secs(1),
            timeout: core::time::Duration::from_secs(1),
            scheme: Scheme::Http,
            path: "/metrics".parse().unwrap(),
            unready_after: None,
            engines: None,
            as_epp: false,
        };
        let settings = Arc::new(settings);
        let endpoint = Endpoint::new("a".to_owned(), ([10, 0, 0, 1], 8000).into(), vec![]);
        let on_node = Pod { node: Some([192, 0, 2, 7].into()), ..(*pod("a", "10.0.0.1", None)).clone() };
        let address = |is_on_node, pod: &Pod| {
            let port = NonZeroU16::new(9400);
            let source =
                DataSource { kind: SourceKind::Gpu, settings: Arc::clone(&settings), port, is_on_node };
            let pod = Some(Arc::new(pod.clone()));
            Member { endpoint: endpoint.clone(), pod, is_denied: false }.address_of(&source).to_string()
        };
        assert_eq!(address(true, &on_node), "192.0.2.7:9400");
        assert_eq!(address(false, &on_node), "10.0.0.1:9400");
        assert_eq!(address(true, &pod("a", "10.0.0.1", None)), "10.0.0.1:9400", "its node is not known");
    }
}
