//! End-to-end tests of what only the native module has: panics that it catches, and its own way to the
//! agent.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod agents;
mod clusters;
mod panics;
