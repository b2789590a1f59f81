//! The faults.

use std::time::Duration;

/// One fault at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    ServerKilled,
    ServerHangs,
    ServerResets,
    ServerSlow,
    ScrapeHangs,
    ScrapeFails,
    MetricsGarbage,
    MetricsOdd,
    MetricsHuge,
    MetricsSlow,
    AgentKilled,
    AgentPaused,
    AgentPausedLong,
    EndpointsGarbage,
    ManifestGarbage,
    EndpointLeaves,
    ClientsSlow,
    EnvoyRestarted,
    ProxyKilled,
    StoreKilled,
    StorePaused,
    StoreFull,
    StoreUnreachable,
}

impl Fault {
    /// Faults of one proxy.
    const OF_ONE: [Self; 18] = [
        Self::ServerKilled,
        Self::ServerHangs,
        Self::ServerResets,
        Self::ServerSlow,
        Self::ScrapeHangs,
        Self::ScrapeFails,
        Self::MetricsGarbage,
        Self::MetricsOdd,
        Self::MetricsHuge,
        Self::MetricsSlow,
        Self::AgentKilled,
        Self::AgentPaused,
        Self::AgentPausedLong,
        Self::EndpointsGarbage,
        Self::ManifestGarbage,
        Self::EndpointLeaves,
        Self::ClientsSlow,
        Self::EnvoyRestarted,
    ];

    /// Further faults of several proxies, each with its agent and all with one store.
    const OF_SEVERAL: [Self; 5] =
        [Self::ProxyKilled, Self::StoreKilled, Self::StorePaused, Self::StoreFull, Self::StoreUnreachable];

    /// All faults of this number of proxies.
    pub(crate) fn of(proxies: usize) -> Vec<Self> {
        let more: &[Self] = if proxies > 1 { &Self::OF_SEVERAL } else { &[] };
        [&Self::OF_ONE, more].concat()
    }

    /// Its name in the table.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::ServerKilled => "server killed and restarted",
            Self::ServerHangs => "server accepts everything, answers nothing",
            Self::ServerResets => "server resets every request",
            Self::ServerSlow => "server answers 16 bytes at a time",
            Self::ScrapeHangs => "/metrics hangs",
            Self::ScrapeFails => "/metrics answers 500",
            Self::MetricsGarbage => "/metrics is garbage",
            Self::MetricsOdd => "/metrics has NaN, Inf, -1, 1e308",
            Self::MetricsHuge => "/metrics has 100 000 series",
            Self::MetricsSlow => "/metrics comes a byte at a time",
            Self::AgentKilled => "agent killed and restarted",
            Self::AgentPaused => "agent stopped (SIGSTOP)",
            Self::AgentPausedLong => "agent stopped for 12 s",
            Self::EndpointsGarbage => "endpoints file is garbage",
            Self::ManifestGarbage => "manifest is garbage",
            Self::EndpointLeaves => "endpoint leaves and comes back",
            Self::ClientsSlow => "200 clients send a byte at a time",
            Self::EnvoyRestarted => "Envoy hot-restarted",
            Self::ProxyKilled => "proxy killed and restarted",
            Self::StoreKilled => "store killed, back empty",
            Self::StorePaused => "store stopped (SIGSTOP)",
            Self::StoreFull => "store full",
            Self::StoreUnreachable => "agent cut off from the store",
        }
    }

    /// How long it lasts: as long as `any`, unless its kind sets the duration.
    pub(crate) fn lasting(self, any: Duration) -> Duration {
        match self {
            // Longer than readings are used.
            Self::AgentPausedLong => Duration::from_secs(12),
            // A restart ends by itself.
            Self::EnvoyRestarted => Duration::ZERO,
            _ => any,
        }
    }
}
