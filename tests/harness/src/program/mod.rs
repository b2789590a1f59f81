//! Started programs; each ends with its handle.

mod agent;
mod browser;
mod envoy;
mod process;
pub mod process_tree;
mod server;
mod store;

use anyhow::{Context, Result};
use core::ops::Range;
use std::hash::{BuildHasher, RandomState};
use std::net::{Ipv4Addr, TcpListener};

pub use agent::Agent;
pub use browser::{Browser, Scheme};
pub use envoy::Envoy;
pub use process::Process;
pub use server::ServerProcess;
pub use store::Store;

/// Ports that Linux gives neither to connections nor to listeners that name none: those begin at 32768
/// (`net.ipv4.ip_local_port_range`).
const NAMED_PORTS: Range<u16> = 10_000..32_768;

/// A port of loopback on which nothing listens, for a program that has to listen on the same port again after
/// a restart. Until it listens, only another test can take the port, which begins its search elsewhere.
pub(crate) fn free_port() -> Result<u16> {
    let [low, high, ..] = RandomState::new().hash_one(()).to_le_bytes();
    let first = usize::from(u16::from_le_bytes([low, high])) % NAMED_PORTS.len();
    let mut ports = NAMED_PORTS.skip(first).chain(NAMED_PORTS.take(first));
    ports
        .find(|&port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok())
        .with_context(|| format!("no port of {NAMED_PORTS:?} is free"))
}
