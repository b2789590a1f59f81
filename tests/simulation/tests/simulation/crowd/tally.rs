//! Counts of a simulation.

use core::fmt;
use core::time::Duration;

use endpoint_picker_simulation::proxy::Traffic;

/// Counts of a simulation. The reference is one proxy with all requests.
#[derive(Debug, Default)]
pub(super) struct Tally {
    pub(super) requests: usize,
    /// Blocks of prompts that the picked servers had.
    pub(super) found: u64,
    /// Blocks that the picks of the single picker had.
    pub(super) found_by_one: u64,
    /// Requests to a server with more requests in flight than the pick of the single picker.
    pub(super) to_busier: usize,
    /// Simulated time.
    pub(super) time: Duration,
    pub(super) proxies: usize,
    pub(super) traffic: Traffic,
    pub(super) missed: u64,
    pub(super) longest_wait: Duration,
}

impl Tally {
    /// Blocks found, as a share of those that a single proxy finds.
    pub(super) fn cached(&self) -> f64 {
        self.found as f64 / self.found_by_one.max(1) as f64
    }

    /// The share of requests that went to a busier server.
    pub(super) fn busier(&self) -> f64 {
        self.to_busier as f64 / self.requests as f64
    }

    pub(super) fn bytes_per_request(&self) -> f64 {
        self.traffic.message_bytes as f64 / self.requests as f64
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.time.as_secs_f64();
        let (cached, busier) = (100.0 * self.cached(), 100.0 * self.busier());
        let megabytes = |bytes: usize| bytes as f64 / 1e6 / seconds;
        write!(
            f,
            "{} requests, cached {cached:.1} % of one proxy's, {busier:.1} % to a busier server; {:.0} messages/s, \
             {:.0} B/request, {:.2} MB/s of messages, {:.2} MB/s to the agent, {:.2} MB/s from it to each proxy; longest \
             wait {} ms, {} missed",
            self.requests,
            self.traffic.messages as f64 / seconds,
            self.bytes_per_request(),
            megabytes(self.traffic.message_bytes),
            megabytes(self.traffic.uploaded),
            megabytes(self.traffic.downloaded) / self.proxies as f64,
            self.longest_wait.as_millis(),
            self.missed
        )
    }
}
