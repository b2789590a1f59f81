//! The EPP next to our picker: both get the same requests and model servers, and their choices are compared.
//!
//! - [`setup`]: the configurations that are compared. [`generator`]: their cases, drawn from a seed.
//! - [`ours`]: the responses to a case that our rules allow, without any process: one of the best endpoints,
//!   or an error.
//! - [`live_stack`]: both pickers live, in one Envoy with two listeners.
//! - [`verdict`]: whether responses agree, and the known differences.
//! - [`recording`]: the EPP's responses in a file, so that they can be checked without it.

pub mod case;
pub mod configuration;
mod draw;
pub mod generator;
mod listeners;
pub mod live_stack;
pub mod ours;
pub mod recording;
pub mod setup;
pub mod verdict;
