//! `metrics-agent doctor`: the checks over a recorded Envoy, one mistake at a time.

mod command;
mod control_planes;
mod fixture;
mod mistakes;
mod shipped;
mod unreadable;
