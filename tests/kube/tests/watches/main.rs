//! Watches of the agent, and its behaviour while the API server is slow, away or forbids them:
//! `make test-kube`.
//!
//! They share a cluster, which some of them stop, and run one after the other, because others measure.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod agent;
mod cluster;
mod connections;
mod kinds;
mod kubeconfig;
mod link;
mod outages;
mod pools;
mod rights;
mod scale;
mod status;
