//! The room of pools for a request, and the choice of another pool where there is none.

use core::fmt;

/// The room of a pool for one more request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// The request can be sent at once.
    Free,
    /// The pool is saturated; with flow control, the request would wait or be rejected.
    Saturated,
    /// No endpoint is ready, or every ready one is avoided because it failed.
    NoEndpoints,
}

/// Why another pool takes a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FallbackReason {
    /// The request's own pool has no ready endpoint, or every ready one is avoided because it failed.
    NoEndpoints,
    /// The request's own pool is saturated.
    Saturated,
    /// The endpoints of the request's own pool have failed it, and a later attempt went to another pool.
    Failed,
}

impl FallbackReason {
    /// The reason as a label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoEndpoints => "no_endpoints",
            Self::Saturated => "saturated",
            Self::Failed => "failed",
        }
    }
}

/// The move of a request from its own pool to another one of the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback {
    /// The request's own pool.
    pub from: String,
    /// Why that pool did not take it.
    pub reason: FallbackReason,
}

impl fmt::Display for Fallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let reason = match self.reason {
            FallbackReason::NoEndpoints => "has no endpoints",
            FallbackReason::Saturated => "is saturated",
            FallbackReason::Failed => "has failed it",
        };
        write!(f, "fallback: pool {} {reason}", self.from)
    }
}

/// The pool that takes a request in place of its own pool: the first of `others` that is free. If none is and
/// its own pool has no endpoints, it is the first saturated one. `None`: its own pool takes it, has it wait,
/// rejects it, or sheds it (`is_shed`) although others are free.
///
/// `others` are in the order of the list, and are read up to the choice.
pub fn other_pool<P>(
    own: Room,
    is_shed: bool,
    others: impl IntoIterator<Item = (P, Room)>,
) -> Option<(P, FallbackReason)> {
    let reason = match own {
        Room::Free => return None,
        Room::Saturated if is_shed => return None,
        Room::Saturated => FallbackReason::Saturated,
        Room::NoEndpoints => FallbackReason::NoEndpoints,
    };
    let mut saturated = None;
    for (pool, room) in others {
        match room {
            Room::Free => return Some((pool, reason)),
            Room::Saturated if own == Room::NoEndpoints => saturated = saturated.or(Some(pool)),
            Room::Saturated | Room::NoEndpoints => {}
        }
    }
    saturated.map(|pool| (pool, reason))
}

#[cfg(test)]
mod tests {
    use super::Room::{Free, NoEndpoints, Saturated};
    use super::*;
    use crate::test;

    /// The place of the choice among others with this room.
    fn choice(own: Room, is_shed: bool, others: &[Room]) -> Option<usize> {
        other_pool(own, is_shed, others.iter().copied().enumerate()).map(|(place, _)| place)
    }

    #[test]
    fn the_first_pool_with_room_takes_the_request_and_of_a_pool_without_endpoints_also_a_saturated_one() {
        for (own, others, expected) in [
            (Free, &[Free][..], None),
            (Saturated, &[NoEndpoints, Saturated, Free, Free], Some(2)),
            (Saturated, &[NoEndpoints, Saturated], None),
            (NoEndpoints, &[NoEndpoints, Saturated, Free], Some(2)),
            (NoEndpoints, &[NoEndpoints, Saturated, Saturated], Some(1)),
            (NoEndpoints, &[NoEndpoints], None),
            (NoEndpoints, &[], None),
        ] {
            assert_eq!(choice(own, false, others), expected, "{own:?} {others:?}");
        }
    }

    #[test]
    fn a_request_that_its_pool_sheds_stays_while_the_pool_has_endpoints() {
        assert_eq!(choice(Saturated, true, &[Free]), None);
        assert_eq!(choice(NoEndpoints, true, &[Free]), Some(0));
    }

    #[test]
    fn the_reason_is_the_own_pools_state_and_pools_after_the_choice_are_not_measured() {
        let mut measured = 0;
        let others = [(0, Saturated), (1, Free), (2, Free)].into_iter().inspect(|_| measured += 1);
        assert_eq!(other_pool(Saturated, false, others), Some((1, FallbackReason::Saturated)));
        assert_eq!(measured, 2);
        assert_eq!(other_pool(NoEndpoints, false, [(5, Free)]), Some((5, FallbackReason::NoEndpoints)));
    }
}
