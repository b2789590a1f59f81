//! All counters of the agent in one registry.

use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::api::metrics::ApiMetrics;
use crate::runtime::telemetry::ResultCounter;
use crate::scrape::{LeaseMetrics, ScrapeMetrics};
use crate::sharing::store::StoreMetrics;
use crate::sources::endpoints;
use crate::sources::kubernetes::WatchMetrics;

/// The counters, each for the stage that counts. None has a label whose values come from outside, so the number of series is fixed.
pub(super) struct Metrics {
    pub(super) registry: Registry,
    pub(super) scrape: ScrapeMetrics,
    pub(super) api: ApiMetrics,
    pub(super) store: StoreMetrics,
    pub(super) leases: LeaseMetrics,
    pub(super) discovery: endpoints::Counters,
    pub(super) manifest_reads: ResultCounter,
    pub(super) credential_reads: ResultCounter,
    pub(super) eds_writes: ResultCounter,
    pub(super) kubernetes: WatchMetrics,
}

impl Metrics {
    pub(super) fn new() -> Self {
        let mut registry = Registry::with_prefix("metrics_agent");
        let r = &mut registry;
        r.register("build", "The agent's version", Info::new([("version", env!("CARGO_PKG_VERSION"))]));
        let scrape = ScrapeMetrics::register(r);
        let api = ApiMetrics::register(r);
        let store = StoreMetrics::register(r);
        let leases = LeaseMetrics::register(r);
        let mut counter = |name, help| ResultCounter::register(r, name, help);
        let discovery = endpoints::Counters {
            reads: counter("config_reloads", "Readings of a changed endpoints file, by result"),
            lookups: counter("name_lookups", "Lookups of model servers' host names, by result"),
        };
        let manifest_reads = counter("manifest_reloads", "Readings of changed manifests, by result");
        let help = "Readings of changed certificates, keys and tokens, by result";
        let credential_reads = counter("credential_reloads", help);
        let eds_writes = counter("eds_writes", "Writes of the EDS file, by result");
        let kubernetes = WatchMetrics::register(r);
        Self {
            registry,
            scrape,
            api,
            store,
            leases,
            discovery,
            manifest_reads,
            credential_reads,
            eds_writes,
            kubernetes,
        }
    }
}
