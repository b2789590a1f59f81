//! Eviction of requests in flight.

pub(super) mod in_flight;
pub(super) mod reclamation;
