//! The room of a pool for a request, and the move to another pool where there is none.

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
