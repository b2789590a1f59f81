//! The EPP's process, which reads its endpoints from a file in place of Kubernetes.

use anyhow::{Context, Result, ensure};
use endpoint_picker::epp_rules::EppRules;
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::within;
use endpoint_picker_harness::program::Process;
use std::env;
use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tokio::net::TcpStream;

/// The release that is built by default.
pub const VERSION: &str = "v0.10.0";

/// The EPP that recordings with these rules are of: a release, or a commit of the main branch.
pub fn recorded_version(rules: EppRules) -> &'static str {
    match rules {
        EppRules::Own | EppRules::V010 | EppRules::V011 => VERSION,
        EppRules::Ebab68792 => "ebab687927f5331c1b39defcb579a07951bce56c",
    }
}

/// How the EPP's scrapes call themselves: it leaves that to Go.
pub const USER_AGENT: &str = "Go-http-client";

const READY_DEADLINE: Duration = Duration::from_secs(30);

/// How often it is started while another program takes one of its ports before it does.
const TRIES: usize = 3;

const LOG: &str = "epp.log";

/// A running EPP; it ends when dropped.
#[derive(Debug)]
pub struct Epp {
    process: Process,
    port: u16,
    metrics: u16,
}

/// The EPP's binary: this path, or this name in one of the folders of `PATH`.
pub fn binary(name: &Path) -> Result<PathBuf> {
    let folders = env::var_os("PATH").unwrap_or_default();
    let found = if name.components().count() > 1 {
        Some(name.to_owned()).filter(|path| path.is_file())
    } else {
        env::split_paths(&folders).map(|folder| folder.join(name)).find(|path| path.is_file())
    };
    found.with_context(|| {
        format!(
            "{} is not there: the EPP, {VERSION} of github.com/llm-d/llm-d-router/cmd/epp, is built by make \
             parity, or named with EPP=/path/to/epp, or on PATH",
            name.display()
        )
    })
}

impl Epp {
    /// Starts it with a configuration, and with these further flags.
    pub async fn start(binary: &Path, config: &Path, folder: &Path, more: &[&str]) -> Result<Self> {
        let mut tries = 1..TRIES;
        loop {
            match Self::try_start(binary, config, folder, more).await {
                Err(reason) if is_taken(folder) && tries.next().is_some() => eprintln!("{reason:#}; again"),
                started => return started,
            }
        }
    }

    async fn try_start(binary: &Path, config: &Path, folder: &Path, more: &[&str]) -> Result<Self> {
        let [port, health, metrics] = free_ports()?;
        let mut command = Command::new(binary);
        command.arg("--config-file").arg(config);
        command.args(["--pool-name=parity", "--pool-namespace=default"]);
        command.arg(format!("--grpc-port={port}"));
        command.arg(format!("--grpc-health-port={health}"));
        command.arg(format!("--metrics-port={metrics}"));
        command.args(["--secure-serving=false", "--metrics-endpoint-auth=false", "--tracing=false"]);
        command
            .args(["--enable-pprof=false", "--allow-experimental-plugins", "--drain-timeout=0s"])
            .args(more);
        let log = folder.join(LOG);
        let mut process = Process::start("epp", command, &log)?;
        let ready = within(READY_DEADLINE, async || {
            if let Err(ended) = process.check_running() {
                return Ok(Err(ended));
            }
            TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await?;
            anyhow::Ok(Ok(metrics_at(metrics).await?))
        });
        let ready = ready.await.map_err(anyhow::Error::msg).and_then(|ready| ready);
        let text = ready.with_context(|| format!("the EPP is not ready; its log is {}", log.display()))?;
        // The endpoint picker of the Inference Extension, from which the EPP was made, has the same flags and
        // reads other objects and headers.
        ensure!(
            text.contains("llm_d_epp_info"),
            "{} is not the EPP of llm-d-router {VERSION}: llm_d_epp_info is not among its metrics",
            binary.display()
        );
        Ok(Self { process, port, metrics })
    }

    /// Where its `ext_proc` service listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its metrics in Prometheus' format.
    pub async fn metrics(&self) -> Result<String> {
        metrics_at(self.metrics).await
    }

    /// The id of its process.
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// An error when it has ended.
    pub fn check_running(&mut self) -> Result<()> {
        self.process.check_running()
    }
}

async fn metrics_at(port: u16) -> Result<String> {
    let url = format!("http://{}:{port}/metrics", Ipv4Addr::LOCALHOST);
    Ok(client::http1().get(url).send().await?.error_for_status()?.text().await?)
}

/// Whether its log says that another program has one of its ports.
fn is_taken(folder: &Path) -> bool {
    fs::read_to_string(folder.join(LOG)).is_ok_and(|log| log.contains("address already in use"))
}

/// Ports that are free now on every address, as the EPP listens.
pub fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let listeners: Vec<TcpListener> =
        (0..N).map(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0))).collect::<Result<_, _>>()?;
    let mut ports = [0; N];
    for (port, listener) in ports.iter_mut().zip(&listeners) {
        *port = listener.local_addr()?.port();
    }
    Ok(ports)
}
