//! The module's way to the agent, against real servers of HTTP and TLS on loopback.

#![allow(clippy::unwrap_used, reason = "tests")]

mod authority;
mod failover;
mod faults;
mod fixture;
mod lives;
mod pools;
mod secured;
mod server;
mod sharing;
mod static_pools;
mod updates;
