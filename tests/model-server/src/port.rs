//! Ports of loopback that stay taken while nothing listens on them.

use anyhow::{Context, Result};
use std::net::SocketAddr;
use std::time::{Duration, Instant};
use tokio::net::TcpSocket;

/// Connections that wait to be accepted.
pub(crate) const BACKLOG: u32 = 1024;

/// A listener's port is free within this time after its task was cancelled.
const RELEASE_DEADLINE: Duration = Duration::from_secs(5);
const RELEASE_PAUSE: Duration = Duration::from_millis(10);

/// A socket that holds this address: the kernel refuses connections, and no other program can take the port.
pub(crate) fn bind(address: SocketAddr) -> Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    // Connections of an earlier listener may still be in TIME_WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(address).with_context(|| format!("bind {address}"))?;
    Ok(socket)
}

/// The same for the address of a listener whose task was cancelled: it closes a moment later.
pub(crate) async fn bind_released(address: SocketAddr) -> Result<TcpSocket> {
    let end = Instant::now() + RELEASE_DEADLINE;
    loop {
        match bind(address) {
            Ok(socket) => return Ok(socket),
            Err(reason) if Instant::now() >= end => return Err(reason.context("the port is not released")),
            Err(_) => tokio::time::sleep(RELEASE_PAUSE).await,
        }
    }
}
