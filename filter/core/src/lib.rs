//! The decision rules of an endpoint picker for LLM inference.
//!
//! Everything here is a function of its arguments: no I/O, no clock, no random numbers of its own, no Envoy.
//! A shell (the proxy-wasm filter, a test, a simulation) owns the state, and passes the time and a random
//! number generator, so the same inputs always give the same [`Decision`](decision::Decision).
//!
//! The rules are the same as in the Kubernetes Gateway API Inference Extension's endpoint picker (the EPP),
//! under its plugin names and parameters; `docs/reference/differences.md` lists every deliberate difference.
//!
//! Time is a [`Duration`](core::time::Duration) since an origin the shell chooses once and keeps.

#![warn(clippy::expect_used, clippy::panic, clippy::indexing_slicing)]

pub mod cached_prefixes;
pub mod config;
pub mod decision;
pub mod epp_rules;
pub mod fallback;
pub mod flow_control;
pub mod grpc;
pub mod headers;
pub mod input;
mod json;
pub mod period;
pub mod pipeline;
pub mod plugin;
pub mod policy;
pub mod pool;
pub mod protobuf;
pub mod request;
pub mod response;
pub mod rng;
pub mod state;

/// A list that nearly always has one item, which then takes no allocation.
pub type Few<T> = smallvec::SmallVec<[T; 1]>;

#[cfg(test)]
pub(crate) use marks::test;

/// The attribute of a test: the wasm target without an operating system needs one of its own.
#[cfg(test)]
mod marks {
    #[cfg(not(all(target_family = "wasm", target_os = "unknown")))]
    pub(crate) use core::prelude::v1::test;
    #[cfg(all(target_family = "wasm", target_os = "unknown"))]
    pub(crate) use wasm_bindgen_test::wasm_bindgen_test as test;
}
