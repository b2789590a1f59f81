//! What the VMs of one Envoy share: the newest snapshot, and who fetches it.
//!
//! Shared data is a map of keys to bytes with compare-and-swap. For each pool:
//!
//! | key | value |
//! |---|---|
//! | `…/lease` | owner (8 bytes), its last renewal in ns since the epoch (8 bytes) |
//! | `…/version` | the readings' version (8 bytes): cheap to look at |
//! | `…/topology` | the last snapshot that carried a topology, as it came |
//! | `…/readings` | arrival in ns since the epoch (8 bytes), then the last snapshot, as it came |
//!
//! Numbers are little-endian. A writer writes the topology, then the readings, then the version, so a reader that sees
//! a version finds at least that.

use core::time::Duration;

use crate::host::{self, Result};

/// The keys of one pool.
#[derive(Debug)]
pub(crate) struct Board {
    lease: String,
    version: String,
    topology: String,
    readings: String,
}

/// Whose turn it is to fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lease {
    /// The VM that fetches.
    pub(crate) owner: u64,
    /// When it took the lease or renewed it, since the epoch.
    pub(crate) renewed: Duration,
}

impl Board {
    pub(crate) fn new(pool: &str) -> Self {
        let key = |name| key(pool, name);
        Self {
            lease: key("lease"),
            version: key("version"),
            topology: key("topology"),
            readings: key("readings"),
        }
    }

    /// A number no other VM of this Envoy gets.
    pub(crate) fn next_vm_number() -> Result<u64> {
        const KEY: &str = "endpoint-picker/vms";
        loop {
            let (value, cas) = host::shared_get(KEY)?;
            let next = number(&value).unwrap_or(0) + 1;
            if host::shared_swap(KEY, &next.to_le_bytes(), cas)? {
                return Ok(next);
            }
        }
    }

    /// The lease as it stands.
    pub(crate) fn lease(&self) -> Result<(Option<Lease>, Option<u32>)> {
        let (value, cas) = host::shared_get(&self.lease)?;
        let lease = value.split_at_checked(8).and_then(|(owner, renewed)| {
            Some(Lease { owner: number(owner)?, renewed: Duration::from_nanos(number(renewed)?) })
        });
        Ok((lease, cas))
    }

    /// Puts a lease in the place of the one of this version; says whether that worked.
    pub(crate) fn swap_lease(&self, lease: Lease, cas: Option<u32>) -> Result<bool> {
        let bytes = [lease.owner.to_le_bytes(), nanoseconds(lease.renewed).to_le_bytes()].concat();
        host::shared_swap(&self.lease, &bytes, cas)
    }

    /// The version of the newest readings, if there are any.
    pub(crate) fn version(&self) -> Result<Option<u64>> {
        Ok(number(&host::shared_get(&self.version)?.0))
    }

    /// The last snapshot that carried a topology.
    pub(crate) fn topology(&self) -> Result<Vec<u8>> {
        Ok(host::shared_get(&self.topology)?.0)
    }

    /// When the last snapshot arrived, and the snapshot.
    pub(crate) fn readings(&self) -> Result<Option<(Duration, Vec<u8>)>> {
        let mut value = host::shared_get(&self.readings)?.0;
        let Some(arrived) = value.first_chunk::<8>().map(|bytes| u64::from_le_bytes(*bytes)) else {
            return Ok(None);
        };
        value.drain(..8);
        Ok(Some((Duration::from_nanos(arrived), value)))
    }

    /// Hangs up a snapshot for all VMs.
    pub(crate) fn publish(
        &self,
        snapshot: &[u8],
        version: u64,
        has_topology: bool,
        arrived: Duration,
    ) -> Result<()> {
        if has_topology {
            host::shared_set(&self.topology, snapshot)?;
        }
        let mut stamped = Vec::with_capacity(8 + snapshot.len());
        stamped.extend(nanoseconds(arrived).to_le_bytes());
        stamped.extend(snapshot);
        host::shared_set(&self.readings, &stamped)?;
        host::shared_set(&self.version, &version.to_le_bytes())
    }
}

/// Where in shared data a pool has something. Modules of different versions in one Envoy keep apart: what they write need not
/// mean the same.
pub(crate) fn key(pool: &str, name: &str) -> String {
    format!("endpoint-picker/{}/{pool}/{name}", env!("CARGO_PKG_VERSION"))
}

fn number(bytes: &[u8]) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.try_into().ok()?))
}

/// Enough until the year 2554.
fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
