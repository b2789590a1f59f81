//! Policies of flow control: the order of waiting requests, the shares of flows, and the limits of
//! priorities.

pub(super) mod arrival;
pub(super) mod fairness;
pub(super) mod ordering;
pub(super) mod usage_limit;
