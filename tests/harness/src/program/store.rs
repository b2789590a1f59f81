//! The store through which agents share changes: Valkey, or Redis, which speaks the same protocol.

use super::free_port;
use super::process::Process;
use crate::eventually::within;
use crate::tools;
use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

const READY_DEADLINE: Duration = Duration::from_secs(20);

/// A store on a port of its own, with nothing on disk. It ends when dropped.
#[derive(Debug)]
pub struct Store {
    address: SocketAddr,
    folder: PathBuf,
    /// `None` after [`Self::kill`].
    process: Option<Process>,
}

impl Store {
    /// Starts an empty store, with its log in `folder`.
    pub async fn start(folder: &Path) -> Result<Self> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()?));
        let mut store = Self { address, folder: folder.to_owned(), process: None };
        store.restart().await?;
        Ok(store)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Its URL, as the agent's `--share` has it.
    pub fn url(&self) -> String {
        format!("redis://{}", self.address)
    }

    /// Ends it at once, as a crash would, if it runs.
    pub fn kill(&mut self) {
        if let Some(mut process) = self.process.take() {
            process.kill();
        }
    }

    /// Starts it again after [`Self::kill`], empty.
    pub async fn restart(&mut self) -> Result<()> {
        ensure!(self.process.is_none(), "the store runs");
        let mut command = Command::new(tools::store()?);
        let (ip, port) = (self.address.ip().to_string(), self.address.port().to_string());
        command.args(["--bind", &ip, "--port", &port, "--save", "", "--appendonly", "no", "--dir"]);
        command.arg(&self.folder);
        let log = self.folder.join("store.log");
        let process = self.process.insert(Process::start("the store", command, &log)?);
        let ready = within(READY_DEADLINE, async || {
            if let Err(ended) = process.check_running() {
                return Ok(Err(ended));
            }
            let answer = ask(self.address, "PING").await?;
            ensure!(answer.starts_with("+PONG"), "it answers {answer:?}");
            anyhow::Ok(Ok(()))
        });
        ready
            .await
            .map_err(anyhow::Error::msg)
            .with_context(|| format!("the store is not ready; its log is {}", log.display()))?
    }

    /// Whether it refuses what would take more memory, as a store that is full.
    pub async fn set_full(&self, is_full: bool) -> Result<()> {
        let most = u8::from(is_full);
        let answer = ask(self.address, &format!("CONFIG SET maxmemory {most}")).await?;
        ensure!(answer.starts_with("+OK"), "it answers {answer:?}");
        Ok(())
    }

    /// Sends it a signal, if it runs.
    pub fn signal(&mut self, signal: Signal) {
        if let Some(process) = &mut self.process {
            process.signal(signal);
        }
    }

    /// The id of its process; `None` after [`Self::kill`].
    pub fn process_id(&self) -> Option<u32> {
        self.process.as_ref().map(Process::id)
    }
}

/// Sends a command on a connection of its own. Returns the reply, with the reply to the farewell behind it.
async fn ask(address: SocketAddr, command: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(format!("{command}\r\nQUIT\r\n").as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    Ok(answer)
}
