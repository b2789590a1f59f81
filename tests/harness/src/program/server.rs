//! Servers as processes of their own: model servers, and applications on the Python libraries that vLLM and
//! SGLang use as well.

use super::process::Process;
use crate::eventually::within;
use crate::tools;
use anyhow::{Context, Result};
use rustix::process::Signal;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const READY_DEADLINE: Duration = Duration::from_secs(20);

/// Requests that a model server works on at once. Twice the number takes each token twice as long.
const MAX_NUM_SEQS: &str = "256";

/// A running server; it ends when dropped.
#[derive(Debug)]
pub struct ServerProcess {
    process: Process,
    address: SocketAddr,
}

impl ServerProcess {
    /// Starts the routes of `tests/asgi/app.py`, on Starlette and uvicorn; its output goes to `log`.
    pub async fn asgi(log: &Path) -> Result<Self> {
        let mut command = Command::new(tools::asgi_python()?);
        command.arg(tools::root().join("tests/asgi/app.py"));
        Self::start("ASGI server", command, log).await
    }

    /// Starts the service of `tests/grpc/peer.py`, on grpcio; its output goes to `log`.
    pub async fn grpc(log: &Path) -> Result<Self> {
        let mut command = Command::new(tools::grpc_python()?);
        command.arg(tools::root().join("tests/grpc/peer.py")).arg("serve");
        Self::start("gRPC server", command, log).await
    }

    /// Starts a model server with this name in its responses, which takes some milliseconds for a token.
    /// SIGTERM ends it at once. Its output goes to `log`.
    pub async fn model_server(name: &str, log: &Path) -> Result<Self> {
        let mut command =
            Command::new(tools::built("endpoint-picker-model-server", "endpoint-picker-model-server")?);
        command.args(["--listen", "127.0.0.1:0", "--drain", "0", "--name", name]);
        command.args(["--max-num-seqs", MAX_NUM_SEQS]);
        Self::start("model server", command, log).await
    }

    /// Starts a program that prints the free port on which it listens.
    async fn start(name: &'static str, command: Command, log: &Path) -> Result<Self> {
        let mut process = Process::start(name, command, log)?;
        let ready = within(READY_DEADLINE, async || {
            if let Err(ended) = process.check_running() {
                return Ok(Err(ended));
            }
            let output = process.output()?;
            let address = output.lines().find_map(|line| line.strip_prefix("listening on "));
            let address = address.context("it has not printed its address yet")?;
            anyhow::Ok(Ok(address.parse()?))
        });
        let address =
            ready.await.map_err(anyhow::Error::msg).with_context(|| format!("the {name} is not ready"))??;
        Ok(Self { process, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends it at once (SIGKILL), as a crash would.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Asks it to end (SIGTERM).
    pub fn terminate(&mut self) {
        self.process.signal(Signal::TERM);
    }
}
