//! `fcfs-ordering-policy`: first come, first served.

use core::time::Duration;
use std::sync::Arc;

use serde::Deserialize;

use super::{OrderingPolicy, Rank};
use crate::plugin::flow_control::arrival::Arrival;
use crate::plugin::{Plugin, Roles};

/// In the order of arrival at the queue.
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
