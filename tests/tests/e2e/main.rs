//! End-to-end tests: the shipped `envoy.yaml` in a real Envoy, scripted model servers around it.

mod harness;
mod picking;
