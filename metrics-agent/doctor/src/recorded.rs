//! Recorded responses of an agent, and recorded requests of clients.

use std::io::{self, Read};
use std::path::Path;

use endpoint_picker_wire::v1;
use metrics_agent_status::pool::PoolStatus;
use metrics_agent_status::snapshot::of_snapshot;

use crate::fetch::{FetchError, MAX_BYTES};

/// The status of a pool from a recorded response to `/v1/pools/{pool}` or `/v1/pools/{pool}/snapshot`.
pub fn status(path: &Path) -> Result<PoolStatus, FetchError> {
    let bytes = bytes(path)?;
    if is_json(&bytes) {
        return serde_json::from_slice(&bytes)
            .map_err(|error| refused(path, format!("not a response of /v1/pools/{{pool}}: {error}")));
    }
    of_snapshot(with_topology(path, &bytes)?).map_err(|error| refused(path, error))
}

/// A snapshot from a recorded response to `/v1/pools/{pool}/snapshot`.
pub fn snapshot(path: &Path) -> Result<v1::Snapshot, FetchError> {
    let bytes = bytes(path)?;
    if is_json(&bytes) {
        return Err(refused(
            path,
            "JSON is not a snapshot; record one with `metrics-agent snapshot --save FILE`",
        ));
    }
    with_topology(path, &bytes)
}

/// The bytes of a file, or of standard input for `-`.
pub fn bytes(path: &Path) -> Result<Vec<u8>, FetchError> {
    let read = if path == Path::new("-") {
        bounded(io::stdin().lock())
    } else {
        std::fs::File::open(path).and_then(bounded)
    };
    match read.map_err(|error| refused(path, error))? {
        bytes if bytes.len() > MAX_BYTES => Err(refused(path, format!("at most {MAX_BYTES} bytes are read"))),
        bytes => Ok(bytes),
    }
}

/// Reads at most one byte more than allowed: enough to detect that there are too many.
fn bounded(from: impl Read) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Whether the bytes are JSON. A snapshot never starts with this byte, which would be field 15.
fn is_json(bytes: &[u8]) -> bool {
    bytes.first() == Some(&b'{')
}

fn with_topology(path: &Path, bytes: &[u8]) -> Result<v1::Snapshot, FetchError> {
    let snapshot = endpoint_picker_wire::decode(bytes).map_err(|error| refused(path, error))?;
    if snapshot.topology.is_none() {
        return Err(refused(path, "the snapshot has no topology; record it without ?topology="));
    }
    Ok(snapshot)
}

fn refused(path: &Path, problem: impl core::fmt::Display) -> FetchError {
    FetchError(format!("{}: {problem}", path.display()))
}
