//! Manifests: how they are read, which are refused and with which message, and how an agent applies them.

#![allow(clippy::unwrap_used, reason = "in a test, a panic is the report")]

mod base_models;
mod check;
mod cluster;
mod config_refusals;
mod configs;
mod drift;
mod engines;
mod examples;
mod files;
mod gpu;
#[path = "../agent/harness.rs"]
#[allow(dead_code, reason = "shared with the tests of the agent")]
mod harness;
mod lists;
mod lowering;
mod objects;
mod observed_latency;
mod plugins;
mod policies;
mod policy_refusals;
mod pools;
mod public;
mod reading;
mod refusals;
mod reload;
#[path = "../agent/scripted.rs"]
#[allow(dead_code, reason = "shared with the tests of the agent")]
mod scripted;
mod shadows;
mod versions;
