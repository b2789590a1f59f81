//! The whole decision a second time, slow and obvious, by the EPP's rules.

mod admission;
mod cycle;
mod engine;
mod filters;
mod handlers;
mod latency;
mod legacy_tree;
mod pickers;
mod plan;
mod plugin_state;
mod predictions;
mod prompts;
mod regression;
pub(crate) mod scorers;
mod sources;

pub(crate) use engine::{Expected, Oracle, Situation};
