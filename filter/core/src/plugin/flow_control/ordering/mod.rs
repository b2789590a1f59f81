//! Ordering policies: which request of a flow goes first.

mod edf_ordering_policy;
mod fcfs_ordering_policy;
mod slo_deadline_ordering_policy;

pub use edf_ordering_policy::EdfOrderingPolicy;
pub use fcfs_ordering_policy::FcfsOrderingPolicy;
pub use slo_deadline_ordering_policy::SloDeadlineOrderingPolicy;

use core::fmt::Debug;
use core::time::Duration;

use crate::plugin::flow_control::arrival::Arrival;

/// Orders the waiting requests of a flow.
pub trait OrderingPolicy: Debug + Send + Sync {
    /// The rank of a request that begins to wait. `expires` is the end of its time to live, if it has one.
    fn rank(&self, arrival: &Arrival<'_>, expires: Option<Duration>) -> Rank;
}

/// The place of a request in its flow: smaller ranks go first, equal ones in the order of arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank {
    /// Counts first.
    pub time: Duration,
    /// Decides between equal times.
    pub tie: Duration,
}

impl Rank {
    /// Behind all requests with a deadline.
    pub const LAST: Duration = Duration::MAX;
}
