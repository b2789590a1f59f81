//! Tests on a real API server with Envoy Gateway and pods that are processes: `make test-kube`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod changes;
mod chart;
mod envoy_gateway;
mod envoy_gateway_page;
mod install;
mod istio;
mod membership;
mod node;
mod rendered;
mod shadow;

/// The namespace `inference`, which docs/install/envoy-gateway.md and the manifests of deploy/ name: one test
/// at a time uses it.
static INFERENCE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
