//! The whole agent: discover, scrape, publish, serve, and end in order.

mod extension_server;
mod pool_pods;
mod reconciler;
mod run;

use std::sync::Arc;

use extension_server::ExtensionServer;
use metrics_agent_catalogue::scraping::ScrapeSettings;
use metrics_agent_catalogue::{Options, watch};
use metrics_agent_gateway::object_reports::ObjectReports;
use metrics_agent_gateway::server::ServerSettings;
use metrics_agent_kv_events::{self as kv_events, KvEventMetrics};
use metrics_agent_sources::endpoints::{LeftOutMetrics, Sources};
use metrics_agent_sources::kubernetes::WatchMetrics;
use metrics_agent_sources::{endpoints, kubernetes};
use metrics_agent_support::client::credentials::ClientFiles;
use metrics_agent_support::credentials::Watched;
use metrics_agent_support::runtime::ResultCounter;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;
pub use run::run;
use rustls::ServerConfig;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::api::access::credentials::{ApiCredentials, Files};
use crate::api::access::{Access, AllowedHosts};
use crate::api::connections::Limits;
use crate::api::metrics::ApiMetrics;
use crate::api::{self, ApiState, connections};
use crate::publish::eds;
use crate::record::{RecordMetrics, RecordSettings};
use crate::scrape::{LeaseMetrics, ScrapeMetrics};
use crate::sharing::Share;
use crate::sharing::store::StoreMetrics;

/// The settings of one agent.
#[derive(Debug)]
pub struct Settings {
    /// Options for reading manifests, from flags.
    pub options: Options,
    /// The manifests with the pools; `None`: one pool of all endpoints.
    pub manifests: Option<watch::ManifestSettings>,
    /// Where endpoints come from.
    pub sources: Sources,
    /// The cluster whose pools and pods are watched.
    pub kubernetes: Option<kubernetes::ClusterSettings>,
    /// The only pool of the cluster to serve, `name` or `namespace/name`; `None`: all of them.
    pub only_pool: Option<String>,
    /// Reports to the cluster's objects.
    pub object_reports: ObjectReports,
    /// How endpoints are scraped.
    pub scrape: ScrapeSettings,
    /// The agent's credentials for model servers, and the authorities that it trusts.
    pub scrape_credentials: ClientFiles,
    /// The endpoint files for Envoy's EDS.
    pub eds: Option<eds::Target>,
    /// Which proxies share their changes. Agents with one store scrape for one another.
    pub share: Share,
    /// The record of requests; `None`: there is none.
    pub record: Option<RecordSettings>,
    /// Maximum number of endpoints of all sources together, and of one pool.
    pub max_endpoints: usize,
    /// Maximum number of requests of clients that may write that wait at the same time, and of others.
    pub max_waiters: usize,
    /// Limits on clients of the API.
    pub limits: Limits,
    /// Host names under which clients may address the API, besides the agent's own address.
    pub allowed_hosts: AllowedHosts,
    /// The API's certificate, and the credentials that it requires of clients.
    pub credentials: Files,
    /// How the events of the servers' KV caches are followed; `None`: they are not.
    pub kv_events: Option<kv_events::KvEventSettings>,
    /// The extension server of Envoy Gateway, if the agent is it.
    pub extension: Option<ServerSettings>,
}

/// The counters, each for the stage that counts. None has a label whose values come from outside, so the
/// number of series is fixed.
struct AgentMetrics {
    registry: Registry,
    scrape: ScrapeMetrics,
    api: ApiMetrics,
    store: StoreMetrics,
    leases: LeaseMetrics,
    kv_events: KvEventMetrics,
    discovery: endpoints::Counters,
    manifest_reads: ResultCounter,
    credential_reads: ResultCounter,
    eds_writes: ResultCounter,
    kubernetes: WatchMetrics,
    record: RecordMetrics,
}

impl AgentMetrics {
    fn new() -> Self {
        let mut registry = Registry::with_prefix("metrics_agent");
        let r = &mut registry;
        r.register("build", "The agent's version", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
        let scrape = ScrapeMetrics::register(r);
        let api = ApiMetrics::register(r);
        let store = StoreMetrics::register(r);
        let leases = LeaseMetrics::register(r);
        let kv_events = KvEventMetrics::register(r);
        let left_out = LeftOutMetrics::register(r);
        let mut counter = |name, help| ResultCounter::register(r, name, help);
        let discovery = endpoints::Counters {
            reads: counter("config_reloads", "Readings of a changed endpoints file, by result"),
            lookups: counter("name_lookups", "Lookups of model servers' host names, by result"),
            left_out,
        };
        let manifest_reads = counter("manifest_reloads", "Readings of changed manifests, by result");
        let help = "Readings of changed certificates, keys and tokens, by result";
        let credential_reads = counter("credential_reloads", help);
        let eds_writes = counter("eds_writes", "Writes of the EDS file, by result");
        let kubernetes = WatchMetrics::register(r);
        let record = RecordMetrics::register(r);
        Self {
            registry,
            scrape,
            api,
            store,
            leases,
            kv_events,
            discovery,
            manifest_reads,
            credential_reads,
            eds_writes,
            kubernetes,
            record,
        }
    }
}

/// The sockets that the agent serves.
#[derive(Debug)]
pub struct Listeners {
    /// Socket of the whole API.
    pub api: TcpListener,
    /// Socket of health checks alone; `None`: only the API has them.
    pub health: Option<TcpListener>,
    /// Socket of the extension server, if the settings have one.
    pub extension: Option<TcpListener>,
}

impl Listeners {
    /// Warns when the API is reachable from outside this host without TLS or without authentication.
    fn warn_if_open(&self, credentials: &ApiCredentials) {
        let Ok(address) = self.api.local_addr() else { return };
        if let Some(exposure) = exposure(credentials).filter(|_| !address.ip().is_loopback()) {
            tracing::warn!(%address, "the API is reachable from outside this host {exposure}");
        }
    }

    /// Serves until `closing` is cancelled, and then until every request in flight is complete.
    async fn serve(
        self,
        state: Arc<ApiState>,
        access: Access,
        tls: Option<Watched<ServerConfig>>,
        limits: Limits,
        extension: Option<ExtensionServer>,
        closing: CancellationToken,
    ) {
        let health = async {
            if let Some(listener) = self.health {
                let router = api::health_router(Arc::clone(&state));
                connections::serve(listener, router, None, limits.of_health_checks(), closing.clone()).await;
            }
        };
        let extension = async {
            if let Some((server, listener)) = extension.zip(self.extension) {
                server.serve(listener, closing.clone()).await;
            }
        };
        let router = api::router(Arc::clone(&state), access);
        let api = connections::serve(self.api, router, tls, limits, closing.clone());
        tokio::join!(api, health, extension);
    }
}

/// Names the access that the credentials leave open, with the flags that close it.
fn exposure(credentials: &ApiCredentials) -> Option<&'static str> {
    let ApiCredentials { tls, clients } = credentials;
    if clients.unauthenticated.writes {
        return Some(
            "and whoever reaches it steers all proxies (--allow-unauthenticated-writes): set --tls-cert and --tls-key, \
             and --bearer-token-file or --tls-client-ca",
        );
    }
    if clients.tokens.is_none() && !clients.certificate {
        return Some(
            "without authentication: proxies on other hosts may read, and may neither report nor share changes; set \
             --tls-cert and --tls-key, and --bearer-token-file or --tls-client-ca; or --listen on a loopback address",
        );
    }
    let is_plain = tls.is_none();
    is_plain.then_some("without TLS: tokens are sent in plain text; set --tls-cert and --tls-key")
}
