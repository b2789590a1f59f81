//! End-to-end tests of what only the wasm filter has: VMs that can trap, changes that they share, the
//! functions that they may call, and an Envoy cluster that reaches the agent.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod capabilities;
mod cut_off_answers;
mod refused_calls;
mod resync;
mod route_metadata;
mod secured_agent;
mod spare_agent;
mod traps;
mod withheld_bodies;
mod without_answers;
