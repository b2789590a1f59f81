//! The statistics and hosts of a running Envoy, from `/stats` and `/clusters`.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde::Deserialize;

use super::dump::DumpedCluster;

/// Envoy's counters and gauges by name.
#[derive(Debug, Default)]
pub struct Statistics(BTreeMap<String, u64>);

impl Statistics {
    /// Reads the text of `/stats`. Lines without a number, such as lines of histograms, are ignored.
    pub fn parse(text: &str) -> Self {
        let values = text.lines().filter_map(|line| {
            let (name, value) = line.rsplit_once(": ")?;
            Some((name.to_owned(), value.parse().ok()?))
        });
        Self(values.collect())
    }

    /// A value of Envoy's own; `None` if there is none of this name.
    pub(crate) fn value(&self, name: &str) -> Option<u64> {
        self.0.get(name).copied()
    }

    /// A value of a cluster; 0 if there is none of this name.
    pub(crate) fn of_cluster(&self, cluster: &DumpedCluster, name: &str) -> u64 {
        self.value(&format!("cluster.{}.{name}", cluster.name_in_statistics())).unwrap_or(0)
    }

    /// A value without labels that the filter counts for a pool, in either form; `None` if no filter counts
    /// it.
    pub(crate) fn of_pool(&self, pool: &str, name: &str) -> Option<u64> {
        // The native module's statistics begin with the `metrics_namespace` of its configuration in Envoy.
        let native = format!(".endpoint_picker.{name}.pool.{pool}");
        let of_native = || self.0.iter().find(|(name, _)| name.ends_with(&native)).map(|(_, value)| *value);
        self.value(&format!("wasmcustom.endpoint_picker.{pool}.{name}")).or_else(of_native)
    }

    /// The values that the filter counts for a pool by a label, in either form, without zeros.
    pub(crate) fn of_pool_by(&self, pool: &str, name: &str, label: &str) -> BTreeMap<String, u64> {
        let wasm = format!("wasmcustom.endpoint_picker.{pool}.{name}|");
        let native = format!(".endpoint_picker.{name}.pool.{pool}.{label}.");
        let counted = self.0.iter().filter(|(_, count)| **count > 0).filter_map(|(key, count)| {
            let value = key.strip_prefix(&wasm).or_else(|| Some(key.split_once(&native)?.1))?;
            Some((value.to_owned(), *count))
        });
        counted.collect()
    }

    /// The responses of a cluster by status.
    pub(crate) fn responses_of(&self, cluster: &DumpedCluster) -> BTreeMap<u16, u64> {
        let prefix = format!("cluster.{}.upstream_rq_", cluster.name_in_statistics());
        let counted = self
            .0
            .iter()
            .filter(|(_, count)| **count > 0)
            .filter_map(|(key, count)| Some((key.strip_prefix(&prefix)?.parse().ok()?, *count)));
        counted.collect()
    }

    /// Whether a filter counts anything for a pool.
    pub(crate) fn has_pool(&self, pool: &str) -> bool {
        self.of_pool(pool, "snapshots").is_some() || !self.versions(pool).is_empty()
    }

    /// The versions of the filters that count for a pool.
    pub(crate) fn versions(&self, pool: &str) -> Vec<&str> {
        let wasm = format!("wasmcustom.endpoint_picker.{pool}.build_info|");
        let native = format!(".endpoint_picker.build_info.pool.{pool}.version.");
        let versions = self.0.iter().filter(|(_, value)| **value > 0).filter_map(|(name, _)| {
            let of_wasm = name.strip_prefix(&wasm).and_then(|rest| rest.split('|').next());
            of_wasm.or_else(|| name.split_once(&native)?.1.split(".form.").next())
        });
        versions.collect()
    }
}

/// The hosts of Envoy's clusters.
#[derive(Debug, Default)]
pub struct ClusterHosts(BTreeMap<String, Vec<ClusterHost>>);

/// A host of a cluster.
#[derive(Debug)]
pub(crate) struct ClusterHost {
    pub(crate) address: SocketAddr,
    /// All requests that Envoy has sent or wanted to send there.
    pub(crate) requests: u64,
    errors: u64,
    successes: u64,
    connections: u64,
    failed_connections: u64,
}

/// `/clusters?format=json`.
#[derive(Deserialize)]
#[serde(default)]
#[derive(Default)]
struct ClustersDocument {
    cluster_statuses: Vec<ClusterStatus>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ClusterStatus {
    name: String,
    host_statuses: Vec<HostStatus>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct HostStatus {
    address: ClusterAddress,
    stats: Vec<HostStatistic>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ClusterAddress {
    socket_address: SocketAddress,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SocketAddress {
    address: String,
    port_value: u16,
}

/// A counter or gauge of a host. Envoy writes 64-bit numbers as text, and leaves out zeros.
#[derive(Default, Deserialize)]
#[serde(default)]
struct HostStatistic {
    name: String,
    value: String,
}

impl ClusterHost {
    /// Whether Envoy has tried to connect to it, and has never succeeded.
    pub(crate) fn never_connected(&self) -> bool {
        self.connections > 0 && self.failed_connections >= self.connections
    }

    /// Whether requests have failed there, and none has succeeded.
    pub(crate) fn fails_always(&self) -> bool {
        self.successes == 0 && (self.errors > 0 || self.never_connected())
    }
}

impl ClusterHosts {
    /// Reads the JSON of `/clusters`. Hosts without an IP address are ignored.
    pub fn parse(json: &[u8]) -> Result<Self, serde_json::Error> {
        let document: ClustersDocument = serde_json::from_slice(json)?;
        let clusters = document.cluster_statuses.into_iter().map(|cluster| {
            let hosts = cluster.host_statuses.into_iter().filter_map(HostStatus::host);
            (cluster.name, hosts.collect())
        });
        Ok(Self(clusters.collect()))
    }

    /// The hosts of a cluster; `None` if it is not in use.
    pub(crate) fn of(&self, cluster: &str) -> Option<&[ClusterHost]> {
        self.0.get(cluster).map(Vec::as_slice)
    }
}

impl HostStatus {
    fn host(self) -> Option<ClusterHost> {
        let SocketAddress { address, port_value } = self.address.socket_address;
        let statistic = |name: &str| {
            let found = self.stats.iter().find(|it| it.name == name);
            found.and_then(|it| it.value.parse().ok()).unwrap_or(0)
        };
        Some(ClusterHost {
            address: SocketAddr::new(address.parse().ok()?, port_value),
            requests: statistic("rq_total"),
            errors: statistic("rq_error"),
            successes: statistic("rq_success"),
            connections: statistic("cx_total"),
            failed_connections: statistic("cx_connect_fail"),
        })
    }
}
