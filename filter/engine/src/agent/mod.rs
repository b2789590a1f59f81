//! The [link](Link) to the metrics agent: polls for snapshots and cached prefixes, reports, and the exchange of changes with
//! other proxies.

mod call;
mod link;
mod prefix_client;
mod recent_errors;
mod report;
mod snapshot_client;
mod topology_log;

pub(crate) use call::path_of_pool;

pub use call::{AUTHORITY, AgentRequest, AgentResponse, CONTENT_TYPE, CallError, CallId};
pub use link::{Call, Link, LinkedPool};
pub use prefix_client::{PrefixClient, PrefixError, PrefixOutcome};
pub use recent_errors::RecentErrors;
pub use report::{ReportProblem, Reporter};
pub use snapshot_client::{NewSnapshot, PollError, PollOutcome, PollTimes, SnapshotClient};
pub use topology_log::TopologyLog;
