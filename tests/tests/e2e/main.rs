//! End-to-end tests: the shipped `envoy.yaml` in a real Envoy, scripted model servers around it.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod agent_lifecycle;
mod bad_bodies;
mod bad_input;
mod bodies;
mod chaos;
mod closed_loop;
mod control_headers;
mod demo;
mod examples;
mod explanations;
mod failure_feedback;
mod harness;
mod ladder;
mod large_bodies;
mod manifests;
mod membership;
mod newcomer;
mod one_view;
mod original_dst;
mod page;
mod paths;
mod picking;
mod policies;
mod prefix;
mod privileges;
mod refused_snapshots;
mod reports;
mod rewriting;
mod scene;
mod secured_agent;
mod shadow;
mod shipped_config;
mod shipped_listeners;
mod spare_agent;
mod statistics;
mod steady_load;
mod streams;
mod subset;
mod tokens;
mod told_again;
mod unreachable;
