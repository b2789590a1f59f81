//! `edf-ordering-policy`: earliest deadline first.

use core::time::Duration;
use std::sync::Arc;

use serde::Deserialize;

use super::{OrderingPolicy, Rank};
use crate::plugin::flow_control::arrival::Arrival;
use crate::plugin::{Plugin, Roles};

/// By the end of the time to live; requests without one go last. Equal ends in the order of arrival.
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
}
