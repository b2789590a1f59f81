//! End-to-end tests: the shipped `envoy.yaml` in a real Envoy, scripted model servers around it. They run with the form of the filter that
//! the environment variable `FILTER` names, `wasm` or `native`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod agent;
mod bodies;
mod failures;
mod listeners;
mod observability;
mod picking;
mod policy;
mod sharing;
mod shipped;
mod workers;
