//! Workers over shared data in memory: single steps, then whole proxies with random interleavings and faults.

#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod fixture;
mod lease;
mod memory;
mod replica;
mod sharing;
mod simulation;
mod snapshot;
