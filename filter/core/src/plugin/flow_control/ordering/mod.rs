//! Ordering policies: which request of a flow goes first.

use core::fmt::Debug;
use core::time::Duration;
use std::sync::Arc;

use serde::Deserialize;

use crate::plugin::flow_control::arrival::Arrival;
use crate::plugin::{Plugin, Roles};

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

/// `fcfs-ordering-policy`: in the order of arrival at the queue.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FcfsOrderingPolicy {}

impl Plugin for FcfsOrderingPolicy {
    fn roles(self: Arc<Self>) -> Roles {
        Roles { ordering: Some(self), ..Roles::default() }
    }
}

impl OrderingPolicy for FcfsOrderingPolicy {
    fn rank(&self, _: &Arrival<'_>, _: Option<Duration>) -> Rank {
        Rank { time: Duration::ZERO, tie: Duration::ZERO }
    }
}

/// `edf-ordering-policy`: the earliest end of the time to live first; requests without one are last. Equal
/// ends are in the order of arrival.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct EdfOrderingPolicy {}

impl Plugin for EdfOrderingPolicy {
    fn roles(self: Arc<Self>) -> Roles {
        Roles { ordering: Some(self), ..Roles::default() }
    }
}

impl OrderingPolicy for EdfOrderingPolicy {
    fn rank(&self, _: &Arrival<'_>, expires: Option<Duration>) -> Rank {
        Rank { time: expires.unwrap_or(Rank::LAST), tie: Duration::ZERO }
    }
}

/// `slo-deadline-ordering-policy`: the earliest deadline for a first token first, the time of receipt plus
/// the client's aim (`x-llm-d-slo-ttft-ms`). Requests without a valid aim are last. Equal deadlines are in
/// the order of receipt.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SloDeadlineOrderingPolicy {}

impl Plugin for SloDeadlineOrderingPolicy {
    fn roles(self: Arc<Self>) -> Roles {
        Roles { ordering: Some(self), ..Roles::default() }
    }
}

impl OrderingPolicy for SloDeadlineOrderingPolicy {
    fn rank(&self, arrival: &Arrival<'_>, _: Option<Duration>) -> Rank {
        let deadline = arrival.ttft_slo.map(|slo| arrival.received.saturating_add(slo));
        Rank { time: deadline.unwrap_or(Rank::LAST), tie: arrival.received }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    #[test]
    fn the_sooner_end_goes_first_and_no_end_goes_last() {
        let rank = |expires| EdfOrderingPolicy {}.rank(&Arrival::default(), expires);
        assert!(rank(Some(Duration::from_secs(1))) < rank(Some(Duration::from_secs(2))));
        assert!(rank(Some(Duration::from_secs(2))) < rank(None));
    }

    /// A request received after some seconds with an aim in milliseconds.
    fn rank(received: u64, slo: Option<u64>) -> Rank {
        let ttft_slo = slo.map(Duration::from_millis);
        let arrival = Arrival { received: Duration::from_secs(received), ttft_slo, ..Arrival::default() };
        SloDeadlineOrderingPolicy {}.rank(&arrival, None)
    }

    #[test]
    fn the_sooner_deadline_goes_first() {
        assert!(rank(2, Some(500)) < rank(1, Some(2_000)));
        assert!(rank(9, Some(60_000)) < rank(1, None));
    }

    #[test]
    fn equal_deadlines_go_in_the_order_of_receipt() {
        assert!(rank(1, Some(2_000)) < rank(2, Some(1_000)));
        assert!(rank(1, None) < rank(2, None));
    }
}
