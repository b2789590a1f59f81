//! Tickets of requests, and how their waits end.

use core::time::Duration;

use crate::decision::rejection::{Code, DroppedReason, Rejection};

/// Identifies a request. A caller uses each only once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Something that happened to a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The request is dispatched to the choice of an endpoint. It counts as in flight until
    /// [`finish`](super::Machine::finish).
    Dispatch {
        /// The request.
        ticket: Ticket,
        /// How long it waited.
        waited: Duration,
    },
    /// The request is answered at once, because the queue has no room for it.
    Reject {
        /// The request.
        ticket: Ticket,
        /// How its wait ends.
        outcome: Outcome,
    },
    /// The request is answered, because it waited for too long.
    Expire {
        /// The request.
        ticket: Ticket,
        /// How its wait ends.
        outcome: Outcome,
        /// How long it waited.
        waited: Duration,
    },
    /// The request in flight is aborted to make room. [`finish`](super::Machine::finish) confirms that it has
    /// ended.
    Evict {
        /// The request.
        ticket: Ticket,
    },
}

/// The end of a request's wait, by the EPP's names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was dispatched.
    Dispatched,
    /// The queue was full.
    RejectedCapacity,
    /// The queue was full, and the pool had no endpoint.
    RejectedNoEndpoints,
    /// It waited for too long.
    EvictedTtl,
    /// It waited for too long, and the pool had no endpoint.
    EvictedNoEndpoints,
    /// The client went away.
    EvictedContextCancelled,
}

impl Outcome {
    /// All outcomes, in the order of their declaration.
    pub const ALL: [Self; 6] = [
        Self::Dispatched,
        Self::RejectedCapacity,
        Self::RejectedNoEndpoints,
        Self::EvictedTtl,
        Self::EvictedNoEndpoints,
        Self::EvictedContextCancelled,
    ];

    /// As the label of a metric.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Dispatched => "Dispatched",
            Self::RejectedCapacity => "RejectedCapacity",
            Self::RejectedNoEndpoints => "RejectedNoEndpoints",
            Self::EvictedTtl => "EvictedTTL",
            Self::EvictedNoEndpoints => "EvictedNoEndpoints",
            Self::EvictedContextCancelled => "EvictedContextCancelled",
        }
    }

    /// The response to the request; `None` if it was dispatched.
    pub fn rejection(self) -> Option<Rejection> {
        let (code, reason, message) = match self {
            Self::Dispatched => return None,
            Self::RejectedCapacity => (
                Code::ResourceExhausted,
                DroppedReason::Saturated,
                "request rejected pre-queue: queue at capacity",
            ),
            Self::RejectedNoEndpoints => (
                Code::ServiceUnavailable,
                DroppedReason::NoEndpoints,
                "no endpoints available: request rejected pre-queue: no endpoints available",
            ),
            Self::EvictedTtl => (
                Code::ResourceExhausted,
                DroppedReason::TtlExpired,
                "request timed out in queue: request evicted from queue: request TTL expired",
            ),
            Self::EvictedNoEndpoints => (
                Code::ServiceUnavailable,
                DroppedReason::NoEndpoints,
                "request timed out in queue and no endpoints are available: request evicted from queue: request TTL \
                 expired",
            ),
            Self::EvictedContextCancelled => (
                Code::ServiceUnavailable,
                DroppedReason::ContextCancelled,
                "client disconnected: request evicted from queue: request context cancelled",
            ),
        };
        Some(Rejection::new(code, message).with_reason(reason))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    #[test]
    fn each_answer_has_the_epps_status_and_reason() {
        let expected = [
            ("Dispatched", None),
            ("RejectedCapacity", Some((429, "rejected-saturated"))),
            ("RejectedNoEndpoints", Some((503, "rejected-no-endpoints"))),
            ("EvictedTTL", Some((429, "rejected-ttl-expired"))),
            ("EvictedNoEndpoints", Some((503, "rejected-no-endpoints"))),
            ("EvictedContextCancelled", Some((503, "rejected-context-cancelled"))),
        ];
        let answers = Outcome::ALL.map(|outcome| {
            let rejection = outcome.rejection();
            let answer = rejection.map(|it| (it.code.status(), it.reason.map_or("", DroppedReason::as_str)));
            (outcome.as_str(), answer)
        });
        assert_eq!(answers, expected);
    }
}
