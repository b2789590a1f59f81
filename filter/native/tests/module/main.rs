//! The module against a mock of Envoy: whole requests, in every order in which Envoy calls the hooks.

#![allow(missing_docs, reason = "tests")]
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "tests")]

mod bodies;
mod body_routing;
mod clusters;
mod defects;
mod envoy;
mod model_list;
mod pool;
mod prefixes;
mod queue;
mod rejections;
mod requests;
mod resumption;
mod routes;
mod sharing;

// Links the module's hooks.
use endpoint_picker_native as _;
