//! The servers of a run, and the omniscient picker in front of them.

use crate::timed_servers::TimedServers;
use anyhow::{Context, Result};
use metrics_agent_replay::simulation::fleet::Fleet;
use metrics_agent_replay::simulation::pickers::Omniscient;
use metrics_agent_server_model::{BatchRequest, ServiceTimes};
use std::net::SocketAddr;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Tokens in a chunk of a response after the first one. With one token in each, the clients would need more
/// processor time than the proxies.
const STREAM_INTERVAL: u64 = 16;

/// Starts servers with empty caches. All of the fleet are equal.
pub(super) fn start(fleet: &Fleet) -> Result<TimedServers> {
    let times = ServiceTimes { stream_interval: STREAM_INTERVAL, ..fleet.times };
    TimedServers::start(fleet.servers.len(), times)
}

/// An omniscient picker of real servers.
///
/// It does not see requests that are on their way to a server.
#[derive(Debug)]
pub(super) struct OmniscientClient<'a> {
    servers: &'a TimedServers,
    addresses: Vec<SocketAddr>,
    picker: Mutex<Omniscient>,
    begin: Instant,
}

impl<'a> OmniscientClient<'a> {
    pub(super) fn new(servers: &'a TimedServers) -> Self {
        Self { servers, addresses: servers.addresses(), picker: Mutex::default(), begin: Instant::now() }
    }

    pub(super) fn pick(&self, request: &BatchRequest) -> Result<SocketAddr> {
        let outlooks = self.servers.outlooks(request)?;
        let mut picker = self.picker.lock().unwrap_or_else(PoisonError::into_inner);
        let picked = picker.pick(&outlooks, self.begin.elapsed());
        self.addresses.get(picked).copied().context("no server")
    }
}
