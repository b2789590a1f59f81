//! What can break.

use std::time::Duration;

/// One fault at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
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
}

impl Fault {
    pub(super) const ALL: [Self; 18] = [
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

    /// For the report.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::ServerKilled => "server killed and restarted",
            Self::ServerHangs => "server takes everything, answers nothing",
            Self::ServerResets => "server resets every request",
            Self::ServerSlow => "server answers 16 bytes at a time",
            Self::ScrapeHangs => "/metrics hangs",
            Self::ScrapeFails => "/metrics answers 500",
            Self::MetricsGarbage => "/metrics is garbage",
            Self::MetricsOdd => "/metrics says NaN, Inf, -1, 1e308",
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
        }
    }

    /// How long it lasts, if it could last as long as `any`.
    pub(super) fn lasting(self, any: Duration) -> Duration {
        match self {
            // Longer than readings count.
            Self::AgentPausedLong => Duration::from_secs(12),
            // It lasts by itself.
            Self::EnvoyRestarted => Duration::ZERO,
            _ => any,
        }
    }
}
