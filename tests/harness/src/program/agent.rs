//! The metrics agent, started as a user starts it.

use super::process::Process;
use crate::eventually::within;
use crate::{client, tools};
use anyhow::{Context, Result};
use rustix::process::Signal;
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const READY_DEADLINE: Duration = Duration::from_secs(20);

/// A running agent that has scraped every endpoint once; it ends when dropped.
#[derive(Debug)]
pub struct Agent {
    process: Process,
    address: SocketAddr,
}

impl Agent {
    /// Starts the agent with these further flags and waits for `/readyz`. Port 0 in `listen` becomes a free
    /// port.
    pub async fn start(
        listen: SocketAddr,
        flags: impl IntoIterator<Item = impl AsRef<OsStr>>,
        log: &Path,
    ) -> Result<Self> {
        let mut command = Command::new(tools::metrics_agent()?);
        command.args(["--pool", "default", "--listen", &listen.to_string()]).args(flags);
        let mut process = Process::start("metrics-agent", command, log)?;
        let ready = within(READY_DEADLINE, async || {
            if let Err(ended) = process.check_running() {
                return Ok(Err(ended));
            }
            let address = listening_on(&process.output()?)?;
            client::http1().get(format!("http://{address}/readyz")).send().await?.error_for_status()?;
            anyhow::Ok(Ok(address))
        });
        let address = ready
            .await
            .map_err(anyhow::Error::msg)
            .with_context(|| format!("metrics-agent not ready; its log is {}", log.display()))??;
        Ok(Self { process, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its metrics, as text.
    pub async fn metrics(&self) -> Result<String> {
        let response = client::http1().get(format!("http://{}/metrics", self.address)).send().await?;
        Ok(response.error_for_status()?.text().await?)
    }

    /// The value of one of its series, a name with labels; 0 while there is none.
    pub async fn metric(&self, series: &str) -> Result<f64> {
        let text = self.metrics().await?;
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.map_or(Ok(0.0), |value| value.parse().with_context(|| format!("{series} is {value}")))
    }

    /// An error when the agent has ended.
    pub fn check_running(&mut self) -> Result<()> {
        self.process.check_running()
    }

    /// The id of its process.
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Its log so far.
    pub fn log(&self) -> Result<String> {
        self.process.output()
    }

    /// Sends it a signal.
    pub fn signal(&mut self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Ends it at once, as a crash would.
    pub fn kill(&mut self) {
        self.process.kill();
    }
}

fn listening_on(output: &str) -> Result<SocketAddr> {
    let address = output.lines().find_map(|line| line.strip_prefix("listening on "));
    address.context("it has not printed its address yet")?.trim().parse().context("its address")
}
