//! End-to-end tests: the shipped `envoy.yaml` in a real Envoy, scripted model servers around it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bad_bodies;
mod bad_input;
mod bodies;
mod control_headers;
mod demo;
mod harness;
mod picking;
mod prefix;
mod scene;
mod subset;
