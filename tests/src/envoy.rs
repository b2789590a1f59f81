//! A real Envoy, started through func-e.

use crate::config::Config;
use crate::eventually::within;
use crate::process::Process;
use crate::{client, tools};
use anyhow::{Context, Result};
use serde_json::Value;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// Compiling the filter takes Envoy up to a few seconds on a busy machine.
const READY_DEADLINE: Duration = Duration::from_secs(60);

/// A running Envoy that is ready to serve; it ends when dropped.
#[derive(Debug)]
pub struct Envoy {
    process: Process,
    admin: SocketAddr,
    listener: SocketAddr,
}

impl Envoy {
    /// Starts Envoy with its files in `dir` and waits until it is ready. Ports of 0 in `config` become free ports.
    pub async fn start(config: &Config, dir: &Path, concurrency: u32) -> Result<Self> {
        let config_path = dir.join("envoy.json");
        let admin_path = dir.join("envoy-admin-address");
        config.write(&config_path)?;
        if admin_path.exists() {
            fs::remove_file(&admin_path)?;
        }
        let mut command = command(dir)?;
        command.arg("-c").arg(&config_path).arg("--admin-address-path").arg(&admin_path);
        command.args(["--concurrency", &concurrency.to_string(), "--file-flush-interval-msec", "50"]);
        command.args(["--log-level", "warning", "--component-log-level", "wasm:info"]);
        // Hot restart is what a base id is for. Without it Envoys cannot meet, and none leaves shared memory behind.
        command.arg("--disable-hot-restart");
        let mut process = Process::start("Envoy", command, &dir.join("envoy.log"))?;

        let ready = within(READY_DEADLINE, async || {
            // An Envoy that has ended will not become ready: say so at once.
            if let Err(ended) = process.check_running() {
                return Ok(Err(ended));
            }
            let admin: SocketAddr = fs::read_to_string(&admin_path)
                .context("no admin address yet")?
                .parse()
                .context("admin address")?;
            get(admin, "/ready").await?;
            anyhow::Ok(Ok((admin, listener_address(admin).await?)))
        });
        let (admin, listener) = ready
            .await
            .map_err(anyhow::Error::msg)
            .with_context(|| format!("Envoy not ready; its log is {}", dir.join("envoy.log").display()))??;
        Ok(Self { process, admin, listener })
    }

    /// The id of Envoy's process, or of func-e's, whose child it then is.
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Where clients connect.
    pub fn listener(&self) -> SocketAddr {
        self.listener
    }

    /// Where the admin interface is.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// An error when Envoy has ended.
    pub fn check_running(&mut self) -> Result<()> {
        self.process.check_running()
    }

    /// The text behind a path of the admin interface.
    pub async fn admin_text(&self, path: &str) -> Result<String> {
        get(self.admin, path).await
    }

    /// A counter or gauge by its full name; 0 as long as Envoy does not know it.
    pub async fn stat(&self, name: &str) -> Result<u64> {
        let text = self.admin_text("/stats").await?;
        let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
        line.map_or(Ok(0), |value| value.parse().with_context(|| format!("stat {name}: {value}")))
    }
}

/// `func-e run` with the Envoy that the tools have, or that Envoy itself.
fn command(dir: &Path) -> Result<Command> {
    let envoy = tools::envoy()?;
    let Some(func_e) = tools::func_e() else {
        eprintln!("func-e is not there: {} runs directly", envoy.display());
        return Ok(Command::new(envoy));
    };
    let mut command = Command::new(func_e);
    command.env("ENVOY_PATH", envoy).env("FUNC_E_HOME", dir.join("func-e")).arg("run");
    Ok(command)
}

async fn listener_address(admin: SocketAddr) -> Result<SocketAddr> {
    let listeners: Value = serde_json::from_str(&get(admin, "/listeners?format=json").await?)?;
    let address = &listeners["listener_statuses"][0]["local_address"]["socket_address"];
    let (ip, port) = (address["address"].as_str(), address["port_value"].as_u64());
    let (Some(ip), Some(port)) = (ip, port) else { anyhow::bail!("no listener yet") };
    Ok(SocketAddr::new(ip.parse()?, u16::try_from(port)?))
}

async fn get(admin: SocketAddr, path: &str) -> Result<String> {
    let response = client::http1().get(format!("http://{admin}{path}")).send().await?;
    Ok(response.error_for_status()?.text().await?)
}
