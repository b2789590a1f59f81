//! One version of a pool, and its encoded bytes.

use core::time::Duration;
use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use endpoint_picker::pool::Endpoints;
use endpoint_picker::pool::reading::Reading;
use endpoint_picker_wire::{FORMAT, Message, reading_from_core, topology_from_core, v1};
use metrics_agent_catalogue::grpc::GrpcPool;
use metrics_agent_support::runtime::Clock;
use parking_lot::Mutex;
use xxhash_rust::xxh64::xxh64;

use crate::scrape::slot::ReadingOrigin;

/// Bytes older than this are encoded again, because the ages in them are out of date.
const MAX_BYTES_AGE: Duration = Duration::from_millis(5);

/// The versions of a topology and of its readings. Compared for equality only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "as in the snapshot's schema")]
pub struct Versions {
    pub topology: u64,
    pub readings: u64,
}

/// The part of a pool that changes rarely: its endpoints and its policy.
#[derive(Debug)]
pub struct Topology {
    /// The endpoints.
    pub pool: Endpoints,
    /// `None`: the EPP's defaults.
    pub policy: Option<v1::Policy>,
    /// The part of the policy that matters to servers of gRPC, if they are such.
    pub(crate) grpc: Option<GrpcPool>,
}

impl Topology {
    /// A pool with a policy.
    pub fn new(pool: Endpoints, policy: Option<v1::Policy>) -> Self {
        let grpc = policy.as_ref().and_then(GrpcPool::of_policy);
        Self { pool, policy, grpc }
    }

    /// A hash of the content: equal topologies have equal versions, in every agent.
    pub fn version(&self) -> u64 {
        xxh64(&self.encoded().encode_to_vec(), 0)
    }

    fn encoded(&self) -> v1::Topology {
        v1::Topology { policy: self.policy.clone(), ..topology_from_core(&self.pool) }
    }
}

impl PartialEq for Topology {
    fn eq(&self, other: &Self) -> bool {
        self.pool.name() == other.pool.name()
            && self.pool.as_slice() == other.pool.as_slice()
            && self.policy == other.policy
    }
}

/// One version of a pool. Its bytes are encoded once and shared by all requests at the same time.
#[derive(Debug)]
pub struct PoolSnapshot {
    clock: Clock,
    versions: Versions,
    topology: Arc<Topology>,
    readings: Vec<Reading>,
    origins: Vec<ReadingOrigin>,
    with_topology: Mutex<Option<EncodedBytes>>,
    without_topology: Mutex<Option<EncodedBytes>>,
}

#[derive(Debug)]
struct EncodedBytes {
    at: Duration,
    bytes: Bytes,
}

impl PoolSnapshot {
    /// `readings` has one reading for each endpoint of the topology, in its order, and `origins` the origin
    /// of each reading.
    pub fn new(
        clock: Clock,
        versions: Versions,
        topology: Arc<Topology>,
        readings: Vec<Reading>,
        origins: Vec<ReadingOrigin>,
    ) -> Self {
        let (with_topology, without_topology) = (Mutex::new(None), Mutex::new(None));
        Self { clock, versions, topology, readings, origins, with_topology, without_topology }
    }

    /// The versions of topology and readings.
    pub fn versions(&self) -> Versions {
        self.versions
    }

    /// The pool and its policy.
    pub fn topology(&self) -> &Topology {
        &self.topology
    }

    /// One reading for each endpoint of the topology, in its order.
    pub fn readings(&self) -> &[Reading] {
        &self.readings
    }

    /// The origin of the reading of each endpoint of the topology.
    pub fn origins(&self) -> &[ReadingOrigin] {
        &self.origins
    }

    fn metric_uses(&self) -> Vec<v1::MetricUse> {
        let mut uses: BTreeMap<&str, u32> = BTreeMap::new();
        for metric in self.origins.iter().filter_map(|origin| origin.kv_usage_metric.as_ref()) {
            *uses.entry(metric).or_default() += 1;
        }
        uses.into_iter()
            .map(|(metric, endpoints)| v1::MetricUse { metric: metric.to_owned(), endpoints })
            .collect()
    }

    /// The encoded snapshot. Its ages are accurate to 5 ms.
    pub fn bytes(&self, with_topology: bool) -> Bytes {
        let mut encoded = if with_topology { &self.with_topology } else { &self.without_topology }.lock();
        let now = self.clock.now();
        match &*encoded {
            Some(encoded) if now.saturating_sub(encoded.at) < MAX_BYTES_AGE => encoded.bytes.clone(),
            _ => {
                let bytes = self.encode(with_topology, now);
                *encoded = Some(EncodedBytes { at: now, bytes: bytes.clone() });
                bytes
            }
        }
    }

    fn encode(&self, with_topology: bool, now: Duration) -> Bytes {
        let snapshot = v1::Snapshot {
            format: FORMAT,
            topology_version: self.versions.topology,
            readings_version: self.versions.readings,
            topology: with_topology.then(|| self.topology.encoded()),
            readings: self.readings.iter().map(|reading| reading_from_core(reading, now)).collect(),
            kv_usage_metrics: if with_topology { self.metric_uses() } else { Vec::new() },
        };
        snapshot.encode_to_vec().into()
    }
}

#[cfg(test)]
mod tests {
    use endpoint_picker_wire::decode;

    use super::*;

    fn published(clock: Clock) -> PoolSnapshot {
        let endpoints =
            vec![endpoint_picker::pool::Endpoint::new("n".to_owned(), "10.0.0.1:1".parse().unwrap(), vec![])];
        let pool = Endpoints::new("p".to_owned(), endpoints).unwrap();
        let topology = Topology::new(pool, None);
        let reading = Reading { ready: true, updated: Some(clock.now()), ..Reading::default() };
        PoolSnapshot::new(
            clock,
            Versions { topology: 1, readings: 2 },
            Arc::new(topology),
            vec![reading],
            vec![ReadingOrigin::default()],
        )
    }

    #[tokio::test(start_paused = true)]
    async fn ages_are_accurate_whenever_the_bytes_are_requested() {
        let published = published(Clock::start());
        assert_eq!(decode(&published.bytes(false)).unwrap().readings[0].age_ms, Some(0));
        tokio::time::advance(Duration::from_secs(7)).await;
        assert_eq!(decode(&published.bytes(false)).unwrap().readings[0].age_ms, Some(7000));
    }

    #[test]
    fn a_topologys_version_depends_on_its_content() {
        let topology = |address: &str, failure_mode| {
            let endpoint =
                endpoint_picker::pool::Endpoint::new("n".to_owned(), address.parse().unwrap(), vec![]);
            let policy = v1::Policy { failure_mode, ..v1::Policy::default() };
            Topology::new(Endpoints::new("p".to_owned(), vec![endpoint]).unwrap(), Some(policy))
        };
        let version = topology("10.0.0.1:1", 1).version();
        assert_eq!(topology("10.0.0.1:1", 1).version(), version);
        assert_ne!(topology("10.0.0.2:1", 1).version(), version);
        assert_ne!(topology("10.0.0.1:1", 2).version(), version);
    }

    #[tokio::test(start_paused = true)]
    async fn requests_at_the_same_time_share_the_bytes() {
        let published = published(Clock::start());
        assert_eq!(published.bytes(false).as_ptr(), published.bytes(false).as_ptr());
    }

    #[tokio::test(start_paused = true)]
    async fn the_topology_is_encoded_only_on_request() {
        let published = published(Clock::start());
        let with = decode(&published.bytes(true)).unwrap();
        assert_eq!(with.topology.unwrap().pool, "p");
        let without = decode(&published.bytes(false)).unwrap();
        assert_eq!((without.topology, without.topology_version, without.readings_version), (None, 1, 2));
        assert_eq!(without.readings.len(), 1);
    }
}
