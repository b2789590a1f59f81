//! End-to-end tests: the shipped `envoy.yaml` in a real Envoy, scripted model servers around it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod agent;
mod bodies;
mod failures;
mod fixture;
mod observability;
mod picking;
mod policy;
mod policy_fixture;
mod prometheus;
mod shipped;
mod steady_load;
mod workers;
