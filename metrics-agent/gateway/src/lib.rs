//! The extension server of Envoy Gateway, which makes `HTTPRoute` → `InferencePool` work: Envoy Gateway calls
//! its hooks while it translates the routes of a Gateway, and each route to a pool gets the filter's
//! configuration of that pool.
//!
//! [`hooks`] are pure; [`server`] calls them for Envoy Gateway. Everything that may change without a change
//! of routes and pools reaches the module by the agent's API, not by xDS: Envoy Gateway translates again only
//! when an object changes.
//!
//! [`object_reports`] writes the status of pools, and Events on refused objects, with and without Envoy
//! Gateway.

mod ai_gateway;
mod conformance;
mod envoy;
/// The generated messages and service.
#[allow(missing_docs, clippy::pedantic, unreachable_pub, unused_qualifications, reason = "generated")]
pub mod schema {
    include!("gen/envoygateway.extension.rs");
}
pub mod hooks;
pub mod object_reports;
pub mod ownership;
pub mod pool;
pub mod references;
mod route_metadata;
pub mod server;
pub mod settings;
pub mod status;
pub mod weights;
pub mod wire;
