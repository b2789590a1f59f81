//! The bytes between the metrics agent and the filter, and their conversion to the types of the rules.
//!
//! The schemas are in `proto/`; the code that is generated from them is committed, so a build needs no
//! protoc. Only the conversions of this crate make types of the rules from bytes of a snapshot, which are not
//! trusted.

#![cfg_attr(not(test), warn(clippy::expect_used, clippy::indexing_slicing, clippy::panic))]

mod convert;
mod encoded;
pub mod figures;
mod policy;
mod rules;
mod scores;
pub mod statistics;

pub use convert::{
    TopologyError, reading_from_core, reading_into_core, topology_from_core, topology_into_core,
};
pub use encoded::{decode_partly, next_reading};
pub use policy::{
    epp_rules_from_core, epp_rules_into_core, picker_config_into_core, pipeline_into_core, policy_into_core,
    shadow_into_core,
};
pub use prost::bytes::Bytes;
pub use prost::{DecodeError, Message};
pub use rules::NamedRules;
pub use scores::{endpoint_scores, endpoint_scores_field};

/// The generated messages.
#[allow(missing_docs, clippy::pedantic, reason = "generated; the schema's comments are the documentation")]
pub mod v1 {
    include!("gen/endpoint_picker.v1.rs");
}

/// The generated messages that the filter sends to the agent.
#[allow(missing_docs, clippy::pedantic, reason = "generated; the schema's comments are the documentation")]
pub mod report {
    include!("gen/endpoint_picker.report.v1.rs");
}

/// The generated message with the finished requests that the filter sends to the agent.
#[allow(missing_docs, clippy::pedantic, reason = "generated; the schema's comments are the documentation")]
pub mod record {
    include!("gen/endpoint_picker.record.v1.rs");
}

/// The generated messages that proxies share through the agent.
#[allow(missing_docs, clippy::pedantic, reason = "generated; the schema's comments are the documentation")]
pub mod changes {
    include!("gen/endpoint_picker.changes.v1.rs");
}

/// The generated messages that carry several requests to the agent, and their responses.
#[allow(missing_docs, clippy::pedantic, reason = "generated; the schema's comments are the documentation")]
pub mod batch {
    include!("gen/endpoint_picker.batch.v1.rs");
}

/// The generated message with the models that the agent knows.
#[allow(missing_docs, clippy::pedantic, reason = "generated; the schema's comments are the documentation")]
pub mod models {
    include!("gen/endpoint_picker.models.v1.rs");
}

/// The generated message with the prefixes that endpoints have cached.
#[allow(missing_docs, clippy::pedantic, reason = "generated; the schema's comments are the documentation")]
pub mod prefixes {
    include!("gen/endpoint_picker.prefixes.v1.rs");
}

/// The format of snapshots that this build reads and writes.
pub const FORMAT: u32 = 1;

/// The format of reports that this build reads and writes.
pub const REPORT_FORMAT: u32 = 1;

/// The format of recorded requests that this build reads and writes.
pub const RECORD_FORMAT: u32 = 1;

/// The format of shared changes, and of the messages that carry them, that this build reads and writes.
pub const CHANGES_FORMAT: u32 = 1;

/// The format of batches that this build reads and writes.
pub const BATCH_FORMAT: u32 = 1;

/// The format of the list of models that this build reads and writes.
pub const MODELS_FORMAT: u32 = 1;

/// The format of cached prefixes that this build reads and writes.
pub const PREFIXES_FORMAT: u32 = 1;

/// The status with which the agent refuses a message of another format than its own. It has no other meaning
/// in the agent's API.
pub const OTHER_FORMAT_STATUS: u16 = 422;

/// Maximum number of requests in a batch.
pub const MAX_BATCH_PARTS: usize = 256;

/// Decodes a snapshot and checks its format.
pub fn decode(bytes: &[u8]) -> Result<v1::Snapshot, SnapshotError> {
    let snapshot = v1::Snapshot::decode(bytes).map_err(SnapshotError::Malformed)?;
    check_format(snapshot.format)?;
    Ok(snapshot)
}

fn check_format(format: u32) -> Result<(), SnapshotError> {
    if format == FORMAT { Ok(()) } else { Err(SnapshotError::UnknownFormat(format)) }
}

/// Why bytes are not a snapshot.
#[derive(Debug)]
pub enum SnapshotError {
    /// Not the schema's protobuf.
    Malformed(DecodeError),
    /// Another format than [`FORMAT`]: the versions of agent and filter do not match.
    UnknownFormat(u32),
}

impl core::fmt::Display for SnapshotError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Malformed(error) => write!(f, "the snapshot is malformed: {error}"),
            Self::UnknownFormat(found) => {
                write!(
                    f,
                    "the snapshot has format {found}, this filter reads format {FORMAT}: update the older side"
                )
            }
        }
    }
}

impl core::error::Error for SnapshotError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Malformed(error) => Some(error),
            Self::UnknownFormat(_) => None,
        }
    }
}
