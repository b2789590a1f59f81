//! Reads snapshots.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use endpoint_picker_wire::{self as wire, Bytes, SnapshotError, v1};

use crate::pool_view::{PoolView, Topology, TopologyRefusal};
use crate::proxy::{ProxyError, Result};

/// Why a snapshot cannot be used.
#[derive(Debug)]
pub enum ReadError {
    /// The proxy refused a call.
    Proxy(ProxyError),
    /// The bytes are not a snapshot.
    Malformed(SnapshotError),
    /// The endpoints and the policy cannot be used.
    Refused(TopologyRefusal),
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Proxy(error) => error.fmt(f),
            Self::Malformed(error) => error.fmt(f),
            Self::Refused(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for ReadError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Proxy(error) => Some(error),
            Self::Malformed(error) => Some(error),
            Self::Refused(error) => Some(error),
        }
    }
}

/// Reads an encoded snapshot that arrived at this time. Readings that the view has are not decoded again.
/// `topology` returns the newest encoded snapshot that has a topology; it is called if the view has another
/// topology.
///
/// Returns `None` if that topology has another version: the worker that publishes is between two writes, and
/// the next read finds both.
pub fn read(
    view: &Arc<PoolView>,
    bytes: Bytes,
    arrived: Duration,
    topology: impl FnOnce() -> Result<Vec<u8>>,
) -> core::result::Result<Option<PoolView>, ReadError> {
    let snapshot = wire::decode_partly(bytes).map_err(ReadError::Malformed)?;
    follow(view, snapshot, arrived, topology)
}

/// The same for a snapshot that is decoded but for its readings, and whose endpoints and policy are not used.
pub(crate) fn follow(
    view: &Arc<PoolView>,
    snapshot: v1::EncodedSnapshot,
    arrived: Duration,
    topology: impl FnOnce() -> Result<Vec<u8>>,
) -> core::result::Result<Option<PoolView>, ReadError> {
    let version = snapshot.topology_version;
    let newer = |topology| {
        let newer = PoolView::after(view, topology, snapshot, arrived);
        newer.map(Some).map_err(|error| ReadError::Malformed(SnapshotError::Malformed(error)))
    };
    if view.versions().is_some_and(|versions| versions.topology == version) {
        return newer(Arc::clone(view.topology()));
    }
    let carrier = wire::decode(&topology().map_err(ReadError::Proxy)?).map_err(ReadError::Malformed)?;
    let Some(topology) = carrier.topology.filter(|_| carrier.topology_version == version) else {
        return Ok(None);
    };
    newer(Arc::new(Topology::compile(topology).map_err(ReadError::Refused)?))
}
