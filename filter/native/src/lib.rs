//! The Envoy filter as a dynamic module: Envoy's hooks over the [engine](endpoint_picker_engine).
//!
//! Envoy loads the library once and calls it on all of its threads, so all workers and listeners share one state. No rule is here.
//! [`abi`] binds Envoy's C interface and is the only module with `unsafe`; [`host`] wraps it, and everything else uses the wrappers.

#![cfg_attr(not(test), warn(clippy::expect_used, clippy::indexing_slicing, clippy::panic))]

mod abi;
mod agent;
pub mod attachment;
mod clock;
mod cluster;
pub mod config;
mod filter_config;
mod host;
#[cfg(test)]
#[cfg(feature = "loom")]
mod interleavings;
mod metrics;
mod picker;
mod proxy_name;
mod queue_thread;
mod registry;
pub mod shared;
mod stream;
pub mod users;
mod watchers;

pub use abi::{Attribute, BodyPart, HeaderMap, RequestHandle};
