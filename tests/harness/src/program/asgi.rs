//! A model server's routes on Starlette and uvicorn, which vLLM and SGLang use as well.

use super::process::Process;
use crate::eventually::within;
use crate::tools;
use anyhow::{Context, Result};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const READY_DEADLINE: Duration = Duration::from_secs(20);

/// A running server; it ends when dropped. Its routes are those of `tests/asgi/app.py`.
#[derive(Debug)]
pub struct AsgiServer {
    _process: Process,
    address: SocketAddr,
}

impl AsgiServer {
    /// Starts the server on a free port; its output goes to `log`.
    pub async fn start(log: &Path) -> Result<Self> {
        let mut command = Command::new(tools::asgi_python()?);
        command.arg(tools::root().join("tests/asgi/app.py"));
        let mut process = Process::start("ASGI server", command, log)?;
        let ready = within(READY_DEADLINE, async || {
            if let Err(ended) = process.check_running() {
                return Ok(Err(ended));
            }
            let output = process.output()?;
            let address = output.lines().find_map(|line| line.strip_prefix("listening on "));
            let address = address.context("it has not printed its address yet")?;
            anyhow::Ok(Ok(address.parse()?))
        });
        let address = ready.await.map_err(anyhow::Error::msg).context("the ASGI server is not ready")??;
        Ok(Self { _process: process, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}
