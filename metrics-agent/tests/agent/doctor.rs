//! `metrics-agent doctor`: the checks over a recorded Envoy, one mistake at a time.

mod agent;
mod command;
mod configuration;
mod control_planes;
mod extension;
mod fixture;
mod grpc;
mod settings;
mod shipped;
mod traffic;
mod unreadable;
