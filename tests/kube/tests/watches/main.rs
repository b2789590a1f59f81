//! What the agent watches, and what it does when the API server is slow, away or forbids it: `make test-kube`.
//!
//! The tests have a cluster of their own, which some of them stop, and run one after the other, because others measure.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod agent;
mod cluster;
mod outages;
mod pools;
mod scale;
