//! The EPP endpoint picker beside ours: the same requests, the same model servers, and whether both send them to the
//! same place.
//!
//! - [`setup`]: the configurations that are compared. [`generator`]: their cases, drawn from a seed.
//! - [`ours`]: what our rules expect of a case, without any process; its set of best endpoints is what chance may choose from.
//! - [`stage`]: both pickers live, in one Envoy with two listeners.
//! - [`verdict`]: whether answers agree, and the differences that are known by name.
//! - [`recording`]: the EPP's answers in a file, so that they can be checked without it.

pub mod case;
pub mod generator;
mod listeners;
pub mod ours;
pub mod recording;
pub mod setup;
pub mod stage;
pub mod verdict;
