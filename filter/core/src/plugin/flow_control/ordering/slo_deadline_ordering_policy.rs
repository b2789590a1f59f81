//! `slo-deadline-ordering-policy`: the earliest deadline for a first token goes first.

use core::time::Duration;
use std::sync::Arc;

use serde::Deserialize;

use super::{OrderingPolicy, Rank};
use crate::plugin::flow_control::arrival::Arrival;
use crate::plugin::{Plugin, Roles};

/// By the time of receipt plus the client's aim for the time to the first token (`x-llm-d-slo-ttft-ms`). Requests without a valid
/// aim go last. Equal deadlines in the order of receipt.
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
