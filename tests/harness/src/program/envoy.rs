//! A real Envoy, started through func-e.

use super::process::Process;
use super::process_tree;
use crate::config::Config;
use crate::eventually::within;
use crate::{Filter, client, tools};
use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Compiling the filter takes Envoy up to a few seconds on a busy machine.
const READY_DEADLINE: Duration = Duration::from_secs(60);

const CONFIG: &str = "envoy.json";

/// How long an Envoy runs on after another has taken over; for half of it, it drains its connections.
const HANDOVER: Duration = Duration::from_secs(8);

/// A running Envoy that is ready to serve; it ends when dropped.
#[derive(Debug)]
pub struct Envoy {
    process: Process,
    admin: SocketAddr,
    listener: SocketAddr,
    /// Present when another Envoy can take over.
    succession: Option<Succession>,
}

/// A line of Envoys, each of which takes over from the one before: a hot restart.
#[derive(Debug)]
struct Succession {
    dir: PathBuf,
    filter: Filter,
    concurrency: u32,
    /// Identifies the line among all Envoys of the host.
    base_id: u32,
    /// The number of earlier Envoys, since one was started that took over from none.
    epoch: u32,
    /// The number of all earlier Envoys.
    before: u32,
}

impl Envoy {
    /// Starts Envoy with its files in `dir` and waits until it is ready. Ports of 0 in `config` become free
    /// ports.
    pub async fn start(config: &Config, dir: &Path, concurrency: u32) -> Result<Self> {
        config.write(&dir.join(CONFIG))?;
        let mut command = command(dir)?;
        // Without hot restart no Envoy needs a base id, and none leaves shared memory behind.
        command.arg("--disable-hot-restart");
        Self::launch(command, dir, config.filter(), concurrency, "envoy.log").await
    }

    /// The same, and another one can take over from it. Its port for clients must not be 0.
    pub async fn start_succession(config: &Config, dir: &Path, concurrency: u32) -> Result<Self> {
        config.write(&dir.join(CONFIG))?;
        let base_id = dir.join("envoy-base-id");
        let mut command = handover_command()?;
        command.arg("--use-dynamic-base-id").arg("--base-id-path").arg(&base_id);
        let mut envoy = Self::launch(command, dir, config.filter(), concurrency, "envoy.log").await?;
        let base_id = fs::read_to_string(base_id)?.trim().parse().context("base id")?;
        envoy.succession = Some(Succession {
            dir: dir.to_owned(),
            filter: config.filter(),
            concurrency,
            base_id,
            epoch: 0,
            before: 0,
        });
        Ok(envoy)
    }

    /// Starts another Envoy that takes over; the one before serves its requests for a few seconds and ends.
    pub async fn hot_restart(&mut self) -> Result<()> {
        self.succession()?.epoch += 1;
        let mut before = self.launch_next().await?;
        let ended = within(HANDOVER * 5, async || match before.check_running() {
            Ok(()) => Err("it runs on"),
            Err(_) => Ok(()),
        });
        ended.await.map_err(anyhow::Error::msg).context("the Envoy before")
    }

    /// Starts another Envoy, at the same port, in the place of one that was killed.
    pub async fn restart(&mut self) -> Result<()> {
        ensure!(self.check_running().is_err(), "this Envoy runs");
        self.succession()?.epoch = 0;
        self.launch_next().await.map(drop)
    }

    fn succession(&mut self) -> Result<&mut Succession> {
        self.succession.as_mut().context("this Envoy was not started for a succession")
    }

    /// Starts the next Envoy of the line; returns the one before.
    async fn launch_next(&mut self) -> Result<Process> {
        let Succession { dir, filter, concurrency, base_id, epoch, before } = self.succession()?;
        *before += 1;
        let mut command = handover_command()?;
        command.args(["--base-id", &base_id.to_string(), "--restart-epoch", &epoch.to_string()]);
        let next = Self::launch(command, dir, *filter, *concurrency, &format!("envoy-{before}.log")).await?;
        ensure!(next.listener == self.listener, "the next Envoy listens at {}", next.listener);
        self.admin = next.admin;
        Ok(core::mem::replace(&mut self.process, next.process))
    }

    async fn launch(
        mut command: Command,
        dir: &Path,
        filter: Filter,
        concurrency: u32,
        log: &str,
    ) -> Result<Self> {
        let (admin_path, log) = (dir.join("envoy-admin-address"), dir.join(log));
        if admin_path.exists() {
            fs::remove_file(&admin_path)?;
        }
        command.arg("-c").arg(dir.join(CONFIG)).arg("--admin-address-path").arg(&admin_path);
        command.args(["--concurrency", &concurrency.to_string(), "--file-flush-interval-msec", "50"]);
        let component = match filter {
            Filter::Wasm => "wasm:info",
            Filter::Native => "dynamic_modules:info",
        };
        command.args(["--log-level", "warning", "--component-log-level", component]);
        let mut process = Process::start("Envoy", command, &log)?;

        let ready = within(READY_DEADLINE, async || {
            // An Envoy that has ended never becomes ready: fail at once.
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
            .with_context(|| format!("Envoy not ready; its log is {}", log.display()))??;
        Ok(Self { process, admin, listener, succession: None })
    }

    /// The id of Envoy's process, or of func-e's, whose child it then is.
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }

    /// Its log so far.
    pub fn log(&self) -> Result<String> {
        self.process.output()
    }

    /// The most memory that Envoy ever had resident, in bytes.
    pub fn peak_memory(&self) -> Result<u64> {
        process_tree::peak(self.process.id())
    }

    /// Where clients connect.
    pub fn listener(&self) -> SocketAddr {
        self.listener
    }

    /// Where clients connect to the listener of this name.
    pub async fn listener_named(&self, name: &str) -> Result<SocketAddr> {
        let listeners: Value = serde_json::from_str(&self.admin_text("/listeners?format=json").await?)?;
        let all = listeners["listener_statuses"].as_array().context("listeners")?;
        let status = all.iter().find(|status| status["name"] == name);
        let address = &status.with_context(|| format!("no listener {name} in {listeners}"))?["local_address"];
        socket_address(address).with_context(|| format!("listener {name} has no address yet"))
    }

    /// Where the admin interface is.
    pub fn admin(&self) -> SocketAddr {
        self.admin
    }

    /// Ends it at once (SIGKILL), as a crash would.
    pub fn kill(&mut self) {
        // A launcher cannot pass this signal on.
        let tree = process_tree::processes(self.process.id()).unwrap_or_default();
        for process in tree.into_iter().skip(1) {
            let process = i32::try_from(process).ok().and_then(Pid::from_raw);
            // The only failure is that it has already ended.
            let _ = process.map(|process| kill_process(process, Signal::KILL));
        }
        self.process.kill();
    }

    /// An error when Envoy has ended.
    pub fn check_running(&mut self) -> Result<()> {
        self.process.check_running()
    }

    /// The text behind a path of the admin interface.
    pub async fn admin_text(&self, path: &str) -> Result<String> {
        get(self.admin, path).await
    }

    /// A counter or gauge by its full name; 0 while Envoy has none of this name.
    pub async fn stat(&self, name: &str) -> Result<u64> {
        self.stats(&[name]).await.map(|[value]| value)
    }

    /// Several of them, as of one moment.
    pub async fn stats<const N: usize>(&self, names: &[&str; N]) -> Result<[u64; N]> {
        // Envoy has thousands of others. Any character stands for one that means something in an expression.
        let any = |character: char| if character.is_ascii_alphanumeric() { character } else { '.' };
        let pattern: Vec<String> = names.iter().map(|name| name.chars().map(any).collect()).collect();
        let text = self.admin_text(&format!("/stats?filter=^({})$", pattern.join("|"))).await?;
        let mut values = [0; N];
        for (value, name) in values.iter_mut().zip(names) {
            let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(": "));
            if let Some(line) = line {
                *value = line.parse().with_context(|| format!("stat {name}: {line}"))?;
            }
        }
        Ok(values)
    }
}

impl Drop for Succession {
    fn drop(&mut self) {
        // The shared memory of the Envoys, which the kernel would keep.
        let _ = fs::remove_file(format!("/dev/shm/envoy_shared_memory_{}0", self.base_id));
    }
}

/// Envoy itself, as one of a line.
fn handover_command() -> Result<Command> {
    let mut command = Command::new(tools::envoy()?);
    let seconds = HANDOVER.as_secs();
    command.args(["--parent-shutdown-time-s", &seconds.to_string()]);
    command.args(["--drain-time-s", &(seconds / 2).to_string(), "--drain-strategy", "immediate"]);
    Ok(command)
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
    socket_address(&listeners["listener_statuses"][0]["local_address"]).context("no listener yet")
}

fn socket_address(address: &Value) -> Option<SocketAddr> {
    let address = &address["socket_address"];
    let (ip, port) = (address["address"].as_str()?, address["port_value"].as_u64()?);
    Some(SocketAddr::new(ip.parse().ok()?, u16::try_from(port).ok()?))
}

async fn get(admin: SocketAddr, path: &str) -> Result<String> {
    let response = client::http1().get(format!("http://{admin}{path}")).send().await?;
    Ok(response.error_for_status()?.text().await?)
}
