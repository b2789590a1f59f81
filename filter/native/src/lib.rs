//! The Envoy filter as a dynamic module: Envoy's hooks over the [engine](endpoint_picker_engine).
//!
//! Envoy loads the library once and calls it on all of its threads, so all workers and listeners share one
//! state. No rule is here. [`abi`] binds Envoy's C interface, and [`hooks`] are the functions that Envoy
//! calls: the only modules with `unsafe`. [`envoy`] acts on the hooks, and everything else uses the wrappers.

#![cfg_attr(not(test), warn(clippy::expect_used, clippy::indexing_slicing, clippy::panic))]

mod abi;
pub mod agent;
mod cluster;
pub mod config;
mod envoy;
mod hooks;
mod metrics;
pub mod pool;
mod process;

pub use abi::{Attribute, BodyPart, HeaderMap, RequestHandle};
pub use process::counts;
