//! Manifests: what is taken from them, what is refused and how, and what an agent does with them.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod check;
mod config_refusals;
mod configs;
mod engines;
mod examples;
mod files;
#[path = "../agent/harness.rs"]
#[allow(dead_code, reason = "shared with the tests of the agent")]
mod harness;
mod lists;
mod objects;
mod policies;
mod pools;
mod reading;
mod refusals;
mod reload;
#[path = "../agent/scripted.rs"]
#[allow(dead_code, reason = "shared with the tests of the agent")]
mod scripted;
mod shadows;
