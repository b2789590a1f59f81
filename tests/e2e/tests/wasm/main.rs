//! End-to-end tests of what only the wasm filter has: VMs that can trap, changes that they share, and the functions that they may call.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod capabilities;
mod cut_off_answers;
mod refused_calls;
mod resync;
mod traps;
mod withheld_bodies;
mod without_answers;
