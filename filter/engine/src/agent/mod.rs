//! The requests to the metrics agent: polls for snapshots, and reports.

mod call;
mod report;
mod snapshot_client;

pub(crate) use call::path_of_pool;

pub use call::{AUTHORITY, AgentAnswer, AgentRequest, CONTENT_TYPE, CallError, CallId};
pub use report::{ReportProblem, Reporter};
pub use snapshot_client::{NewSnapshot, PollError, PollOutcome, PollTimes, SnapshotClient};
