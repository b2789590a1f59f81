//! `metrics-agent doctor`: reads a running Envoy and an agent, and names the mistakes that keep requests from
//! the endpoints that the picker chooses.

mod checks;
mod dump;
mod health;
mod managers;
mod picker;
mod report;
mod statistics;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use bytes::Bytes;
pub use dump::ConfigDump;
use dump::{DumpedCluster, EnvoyRoute, VirtualHost};
pub use health::ServerHealth;
use hyper::{StatusCode, Uri};
use managers::{Manager, RouteEntry};
use metrics_agent_status::columns::counted;
use metrics_agent_status::pool::{EndpointState, PoolStatus};
use metrics_agent_support::client::credentials::ClientCredentials;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use picker::Picker;
pub use report::{Finding, Report, Severity};
pub use statistics::{ClusterHosts, Statistics};
use tokio::task::JoinSet;

use crate::agent_client::{Agent, PoolList};
use crate::fetch::{self, FetchError};

/// Maximum number of servers of one pool that are asked for their health.
const MAX_ASKED: usize = 64;

/// Reads a running Envoy and an agent, and examines them. An agent that cannot be read is a finding; an Envoy
/// that cannot be read is an error.
pub async fn examine(envoy: &EnvoyAdmin, agent: &Agent) -> Result<Report, FetchError> {
    let dump = ConfigDump::parse(&envoy.config_dump().await?)
        .map_err(|error| envoy.unreadable("/config_dump", &error))?;
    let hosts = ClusterHosts::parse(&envoy.clusters().await?)
        .map_err(|error| envoy.unreadable("/clusters", &error))?;
    let mut facts = Facts::new(dump, hosts);
    let statistics = envoy.statistics(&facts.clusters_in_statistics()).await?;
    facts.statistics = Statistics::parse(&String::from_utf8_lossy(&statistics));
    facts.agent = AgentFacts::read(agent, facts.agent_pools()).await;
    facts.health = facts.ask_servers().await;
    Ok(diagnose(&facts))
}

/// Runs all checks.
pub fn diagnose(facts: &Facts) -> Report {
    let mut report = Report::new(facts.summary());
    for (check, run) in checks::ALL {
        // A check without anything to check is not among the checks that passed.
        if let Some(findings) = run(facts) {
            report.add(check, findings);
        }
    }
    report
}

/// The admin interface of a running Envoy.
#[derive(Debug)]
pub struct EnvoyAdmin {
    url: Uri,
}

impl EnvoyAdmin {
    /// The admin interface at this URL.
    pub fn new(url: Uri) -> Self {
        Self { url }
    }

    /// The configuration in force.
    async fn config_dump(&self) -> Result<Bytes, FetchError> {
        self.get("/config_dump").await
    }

    /// The clusters with their hosts.
    async fn clusters(&self) -> Result<Bytes, FetchError> {
        self.get("/clusters?format=json").await
    }

    /// The statistics of the filter and of these clusters. The statistics of all clusters would be many
    /// megabytes in a large gateway.
    async fn statistics(&self, clusters: &BTreeSet<String>) -> Result<Bytes, FetchError> {
        let clusters: Vec<_> = clusters.iter().map(|name| escaped(name)).collect();
        let filter = format!(
            r"endpoint_picker|^cluster\.({})\.(upstream_rq_\d+|update_rejected)$",
            clusters.join("|")
        );
        self.get(&format!("/stats?filter={}", utf8_percent_encode(&filter, NON_ALPHANUMERIC))).await
    }

    /// The error of a response that cannot be read as Envoy's.
    fn unreadable(&self, path: &str, reason: &impl Display) -> FetchError {
        FetchError(format!("{} (--envoy-admin): the response to {path} cannot be read: {reason}", self.url))
    }

    async fn get(&self, path: &str) -> Result<Bytes, FetchError> {
        let failed = |problem: String| FetchError(format!("{} (--envoy-admin): {problem}", self.url));
        let none = ClientCredentials::default();
        let (status, body) = fetch::get(&self.url, &none, path).await.map_err(failed)?;
        if status == StatusCode::OK {
            return Ok(body);
        }
        Err(failed(format!("{path} returned {status}; is it Envoy's admin interface?")))
    }
}

/// A name as a regular expression.
fn escaped(name: &str) -> String {
    let escape = |c: char| if c.is_alphanumeric() { c.to_string() } else { format!("\\{c}") };
    name.chars().map(escape).collect()
}

/// A running Envoy and an agent, as the checks see them.
#[derive(Debug)]
pub struct Facts {
    pub(crate) dump: ConfigDump,
    pub(crate) hosts: ClusterHosts,
    /// The statistics of the filter, and of [`Self::clusters_in_statistics`].
    pub statistics: Statistics,
    /// The agent.
    pub agent: AgentFacts,
    /// The health of servers of gRPC, by pool and address.
    pub health: BTreeMap<String, BTreeMap<String, ServerHealth>>,
    pub(crate) managers: Vec<Manager>,
}

/// The pools of an agent.
#[derive(Debug)]
pub struct AgentFacts {
    /// Its URL.
    pub url: String,
    /// Its version and pools, or why they cannot be read.
    pub list: Result<PoolList, String>,
    /// The pools of the pickers, or why they cannot be read.
    pub pools: BTreeMap<String, Result<PoolStatus, String>>,
}

/// A picker that picks on a route.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Picking<'a> {
    pub(crate) entry: &'a RouteEntry,
    pub(crate) picker: &'a Picker,
    /// Its place among the filters of the route.
    pub(crate) position: usize,
    /// The route's cluster, if Envoy has it.
    pub(crate) cluster: Option<&'a DumpedCluster>,
}

/// A route that the extension server leads to pools.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolRoute<'a> {
    /// The name of its route configuration.
    pub(crate) configuration: &'a str,
    pub(crate) host: &'a VirtualHost,
    pub(crate) route: &'a EnvoyRoute,
}

impl Facts {
    /// Facts without statistics and agent.
    pub fn new(dump: ConfigDump, hosts: ClusterHosts) -> Self {
        let managers = Manager::all_of(&dump);
        Self {
            dump,
            hosts,
            statistics: Statistics::default(),
            agent: AgentFacts::default(),
            health: BTreeMap::new(),
            managers,
        }
    }

    /// All pickers, each with its place: of listeners, and of routes that replace them.
    pub(crate) fn pickers(&self) -> Vec<(String, &Picker)> {
        let pickers = self.managers.iter().flat_map(|manager| {
            let own = manager.pickers().map(|(filter, picker)| (manager.place_of(filter), picker));
            let of_routes = manager.entries.iter().flat_map(|entry| {
                let pickers = entry.pickers().filter(|(_, picker)| !manager.has(picker));
                pickers.map(|(_, picker)| (entry.place.clone(), picker))
            });
            own.chain(of_routes)
        });
        pickers.collect()
    }

    /// All pickers that pick, route by route.
    pub(crate) fn picking(&self) -> impl Iterator<Item = Picking<'_>> {
        self.managers.iter().flat_map(|manager| &manager.entries).flat_map(|entry| {
            let cluster = entry.cluster.as_ref().and_then(|name| self.dump.cluster(name));
            let pickers = entry.pickers().filter(|(_, picker)| picker.picks());
            pickers.map(move |(position, picker)| Picking { entry, picker, position, cluster })
        })
    }

    /// The routes of gateways that the extension server leads to pools.
    pub(crate) fn pool_routes(&self) -> Vec<PoolRoute<'_>> {
        let mut found = Vec::new();
        for routes in self.dump.routes.values() {
            for host in &routes.virtual_hosts {
                let routes =
                    host.routes.iter().map(|route| PoolRoute { configuration: &routes.name, host, route });
                found.extend(routes.filter(|route| !route.route.marked_pools().is_empty()));
            }
        }
        found
    }

    /// Whether the filter comes from an extension server, and not from a configuration by hand.
    pub(crate) fn is_of_extension(&self) -> bool {
        let has_server = self.agent.list.as_ref().is_ok_and(|list| list.extension.is_some());
        has_server || !self.pool_routes().is_empty()
    }

    /// The pools of all pickers.
    pub(crate) fn pools(&self) -> BTreeSet<&str> {
        self.pickers().into_iter().map(|(_, picker)| picker.config.pool.as_str()).collect()
    }

    /// The pools of the pickers with an agent.
    pub(crate) fn agent_pools(&self) -> BTreeSet<&str> {
        let pickers = self.pickers().into_iter().filter(|(_, picker)| picker.config.has_agent());
        pickers.map(|(_, picker)| picker.config.pool.as_str()).collect()
    }

    /// Asks the servers of pools of gRPC for their health, where Envoy speaks plain text to them.
    async fn ask_servers(&self) -> BTreeMap<String, BTreeMap<String, ServerHealth>> {
        let mut asked = JoinSet::new();
        for pool in self.pools() {
            let Some(status) = self.agent.pool(pool).filter(|status| status.grpc.is_some()) else { continue };
            let mut clusters =
                self.picking().filter(|it| it.picker.config.pool == pool).filter_map(|it| it.cluster);
            if clusters.any(DumpedCluster::has_transport_socket) {
                continue;
            }
            let ready = status.endpoints.iter().filter(|endpoint| endpoint.state != EndpointState::NotReady);
            for endpoint in ready.take(MAX_ASKED) {
                let Ok(address) = endpoint.address.parse() else { continue };
                let (pool, name) = (pool.to_owned(), endpoint.address.clone());
                asked.spawn(async move { (pool, name, ServerHealth::of(address).await) });
            }
        }
        let mut health: BTreeMap<String, BTreeMap<_, _>> = BTreeMap::new();
        for (pool, address, of_server) in asked.join_all().await {
            health.entry(pool).or_default().insert(address, of_server);
        }
        health
    }

    /// The names in statistics of the clusters that the checks read: the agent's, and the clusters of the
    /// pickers' routes.
    pub fn clusters_in_statistics(&self) -> BTreeSet<String> {
        let pickers = self.pickers().into_iter();
        let agents =
            pickers.filter_map(|(_, picker)| self.dump.cluster(picker.config.agent_cluster.as_ref()?));
        agents
            .chain(self.picking().filter_map(|it| it.cluster))
            .map(DumpedCluster::name_in_statistics)
            .collect()
    }

    /// Whether Envoy's statistics cannot show what this picker does.
    pub(crate) fn lacks_statistics_of(&self, picker: &Picker) -> bool {
        let is_silent = self.dump.has_stats_matcher || picker.counts_with_requests_only(self.dump.version);
        is_silent && !self.statistics.has_pool(&picker.config.pool)
    }

    /// A line about Envoy, one about the agent, and one about each pool with requests.
    pub(crate) fn summary(&self) -> Vec<String> {
        let version = self.dump.version.map(|version| format!(" {version}")).unwrap_or_default();
        let (listeners, clusters) = (self.dump.listeners.len(), self.dump.clusters.len());
        let pickers = self.pickers().len();
        let envoy = format!(
            "Envoy{version}: {}, {}, {}",
            counted(listeners, "listener"),
            counted(clusters, "cluster"),
            counted(pickers, "endpoint picker")
        );
        let agent = self.agent.list.as_ref().ok().map(|list| {
            let AgentFacts { url, .. } = &self.agent;
            format!("agent {} at {url}: {}", list.version, counted(list.pools.len(), "pool"))
        });
        core::iter::once(envoy).chain(agent).chain(checks::summary(self)).collect()
    }
}

impl Default for AgentFacts {
    fn default() -> Self {
        Self { url: String::new(), list: Err("not read".to_owned()), pools: BTreeMap::new() }
    }
}

impl AgentFacts {
    async fn read(agent: &Agent, pools: BTreeSet<&str>) -> Self {
        let list = agent.pools().await.map_err(|error| error.to_string());
        let mut statuses = BTreeMap::new();
        if list.is_ok() {
            for pool in pools {
                let status = agent.status(Some(pool)).await.map_err(|error| error.to_string());
                statuses.insert(pool.to_owned(), status);
            }
        }
        Self { url: agent.url.to_string(), list, pools: statuses }
    }

    /// The status of a pool, if it can be read.
    pub(crate) fn pool(&self, name: &str) -> Option<&PoolStatus> {
        self.pools.get(name)?.as_ref().ok()
    }

    /// Whether the agent does not have this pool; `None` if that is not known.
    pub(crate) fn lacks(&self, name: &str) -> Option<bool> {
        let list = self.list.as_ref().ok()?;
        let is_listed = list.pools.iter().any(|pool| pool == name);
        Some(!is_listed && self.pools.get(name)?.is_err())
    }
}
