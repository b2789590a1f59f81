//! The Envoy filter as a dynamic module: Envoy's hooks over the [engine](endpoint_picker_engine).
//!
//! Envoy loads the library once and calls it on all of its threads, so all workers and listeners share one
//! state. No rule is here. [`abi`] binds Envoy's C interface and is the only module with `unsafe`; [`envoy`]
//! handles its hooks, and everything else uses the wrappers.

#![cfg_attr(not(test), warn(clippy::expect_used, clippy::indexing_slicing, clippy::panic))]

mod abi;
pub mod agent;
mod cluster;
pub mod config;
mod envoy;
mod metrics;
pub mod pool;
mod process;

pub use abi::{Attribute, BodyPart, HeaderMap, RequestHandle};
pub use process::counts;
