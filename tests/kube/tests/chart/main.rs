//! The chart on a real API server without a gateway, and the node that stands for a kubelet:
//! `make test-kube`.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod istio;
mod node;
mod releases;
mod rendered;
