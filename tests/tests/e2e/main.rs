//! End-to-end tests: the shipped `envoy.yaml` in a real Envoy, scripted model servers around it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod demo;
mod harness;
mod picking;
