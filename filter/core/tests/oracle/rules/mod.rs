//! The whole decision a second time, slow and obvious, by the reference's rules.

mod admission;
mod cycle;
mod engine;
mod filters;
mod handlers;
mod memory;
mod pickers;
mod plan;
mod prompts;
mod scores;

pub(crate) use engine::{Expected, Oracle, Scene};
