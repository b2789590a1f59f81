//! The chart with Envoy Gateway on a real API server, with pods that are processes: `make test-gateway`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod changes;
mod install;
mod membership;
mod page;
mod picks;
mod shadow;
