//! Metrics of the changes that proxies share.

use core::ops::AddAssign;

use super::Labels;
use super::sink::{Counter, Gauge, Metric, MetricKind, MetricSink};

/// Counts of exchanged messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharingCounts {
    /// Messages of this proxy that the agent took.
    pub sent: u64,
    /// Messages of other proxies.
    pub received: u64,
    /// Received messages that were skipped: of another version, or malformed.
    pub unreadable: u64,
    /// Syncs that failed.
    pub failed: u64,
}

impl AddAssign for SharingCounts {
    fn add_assign(&mut self, other: Self) {
        let Self { sent, received, unreadable, failed } = other;
        self.sent += sent;
        self.received += received;
        self.unreadable += unreadable;
        self.failed += failed;
    }
}

/// Metrics of the changes that proxies share.
#[derive(Debug)]
pub(super) struct SharingMetrics<M: MetricSink> {
    sent: Counter<M>,
    received: Counter<M>,
    unreadable: Counter<M>,
    failures: Counter<M>,
    /// Other proxies whose changes arrive.
    proxies: Gauge<M>,
}

impl<M: MetricSink> SharingMetrics<M> {
    pub(super) fn new(sink: &M, pool: &str) -> Self {
        let family = |kind, name| sink.family(&Metric { kind, pool, name, labels: &[] });
        let counter = |name| Counter::new(sink, &family(MetricKind::Counter, name), &Labels::default());
        Self {
            sent: counter("sharing_sent"),
            received: counter("sharing_received"),
            unreadable: counter("sharing_unreadable"),
            failures: counter("sharing_failures"),
            proxies: Gauge::new(sink, &family(MetricKind::Gauge, "sharing_proxies"), &Labels::default()),
        }
    }

    /// Counts exchanged messages. `proxies` is the number of other proxies whose changes arrive.
    pub(super) fn count(&self, counts: SharingCounts, proxies: u64) {
        let SharingCounts { sent, received, unreadable, failed } = counts;
        self.sent.add(sent);
        self.received.add(received);
        self.unreadable.add(unreadable);
        self.failures.add(failed);
        self.proxies.set(proxies);
    }

    pub(super) fn flush(&self) {
        [&self.sent, &self.received, &self.unreadable, &self.failures].into_iter().for_each(Counter::flush);
    }
}
