//! Model servers that take time for a request, for the comparisons of choices.

use anyhow::{Context, Result};
use endpoint_picker_model_server::ModelServer;
use metrics_agent_server_model::{BatchRequest, Outlook, PrefixCacheCounts, ServiceTimes};
use std::net::SocketAddr;

/// Number of servers in the comparisons of choices.
pub(crate) const SERVERS: usize = 12;

/// Running servers; they end when dropped.
#[derive(Debug)]
pub(crate) struct TimedServers(Vec<ModelServer>);

impl TimedServers {
    /// Starts this number, with empty caches.
    pub(crate) fn start(count: usize, times: ServiceTimes) -> Result<Self> {
        let start = |_| ModelServer::start_with_service_times("server", times);
        (0..count).map(start).collect::<Result<_>>().map(Self)
    }

    /// Their addresses.
    pub(crate) fn addresses(&self) -> Vec<SocketAddr> {
        self.0.iter().map(ModelServer::address).collect()
    }

    /// Lookups and hits of all their prefix caches so far.
    pub(crate) fn prefix_cache(&self) -> PrefixCacheCounts {
        let counts = self.0.iter().map(ModelServer::prefix_cache);
        counts.fold(PrefixCacheCounts::default(), |sum, one| PrefixCacheCounts {
            queried: sum.queried + one.queried,
            hit: sum.hit + one.hit,
        })
    }

    /// Time that a request would meet at each of them now.
    pub(crate) fn outlooks(&self, request: &BatchRequest) -> Result<Vec<Outlook>> {
        let outlook =
            |server: &ModelServer| server.outlook(request).context("a server without service times");
        self.0.iter().map(outlook).collect()
    }

    /// The number of requests that each received since its records were dropped; drops them.
    pub(crate) fn take_requests(&self) -> Vec<usize> {
        self.0.iter().map(|server| server.take_requests().len()).collect()
    }

    /// Drops the records of requests, which would grow.
    pub(crate) fn forget_requests(&self) {
        self.0.iter().map(ModelServer::take_requests).for_each(drop);
    }
}

/// The counts since others.
pub(crate) fn counts_since(now: PrefixCacheCounts, before: PrefixCacheCounts) -> PrefixCacheCounts {
    PrefixCacheCounts { queried: now.queried - before.queried, hit: now.hit - before.hit }
}

/// Fraction of the prompt tokens that the servers had cached.
pub(crate) fn cached_share(counts: PrefixCacheCounts) -> f64 {
    counts.hit as f64 / counts.queried as f64
}
