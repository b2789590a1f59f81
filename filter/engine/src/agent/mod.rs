//! The requests to the metrics agent: polls for snapshots and cached prefixes, and reports.

mod call;
mod prefix_client;
mod recent_errors;
mod report;
mod snapshot_client;
mod topology_log;

pub(crate) use call::path_of_pool;

pub use call::{AUTHORITY, AgentRequest, AgentResponse, CONTENT_TYPE, CallError, CallId};
pub use prefix_client::{PrefixClient, PrefixError, PrefixOutcome};
pub use recent_errors::RecentErrors;
pub use report::{ReportProblem, Reporter};
pub use snapshot_client::{NewSnapshot, PollError, PollOutcome, PollTimes, SnapshotClient};
pub use topology_log::TopologyLog;
