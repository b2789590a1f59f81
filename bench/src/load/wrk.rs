//! `wrk`, a load generator that takes little processor time.

use anyhow::{Context, Result, bail};
use endpoint_picker_harness::tools;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// When requests are sent.
#[derive(Clone, Copy, Debug)]
pub enum WrkLoad {
    /// Each connection sends its next request as soon as it has a response.
    Saturating {
        /// Number of connections.
        connections: u32,
    },
    /// Requests come at independent times, if responses take far less than [`PAUSE`].
    Steady {
        /// Requests per second.
        per_second: u32,
    },
}

/// Mean pause of a connection between its requests under steady load, in milliseconds.
const PAUSE: u32 = 100;

/// A response that takes longer has failed.
const TIMEOUT: &str = "10s";

/// The figures of a run.
#[derive(Clone, Copy, Debug)]
pub struct Figures {
    /// Requests sent.
    pub requests: u64,
    /// Requests among them without a good response.
    pub failed: u64,
    /// Time of the run.
    pub took: Duration,
    /// Median latency.
    pub p50: Duration,
    /// 99th percentile of the latency.
    pub p99: Duration,
}

impl Figures {
    /// Requests per second.
    pub fn rate(&self) -> f64 {
        self.requests as f64 / self.took.as_secs_f64()
    }
}

/// The version of the `wrk` on PATH.
pub fn version() -> Result<String> {
    // It prints its version and then complains that it was given no URL.
    let output = Command::new("wrk").arg("--version").output();
    let output = match output {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!(
                "no wrk on PATH, which sends the load: `make bench` brings it on Debian and Ubuntu, otherwise https://github.com/wg/wrk"
            )
        }
        output => output.context("start wrk")?,
    };
    let text = String::from_utf8_lossy(&output.stdout);
    Ok(text.split(" [").next().unwrap_or_default().trim().to_owned())
}

/// Puts a proxy under load. `bodies` has one request body in each line; `destinations`, where given, one
/// value of the destination header in each line.
pub fn run(
    proxy: SocketAddr,
    load: WrkLoad,
    lasting: Duration,
    bodies: &Path,
    destinations: Option<&Path>,
) -> Result<Figures> {
    let (connections, pause) = match load {
        WrkLoad::Saturating { connections } => (connections, 0),
        WrkLoad::Steady { per_second } => (per_second * PAUSE / 1_000, PAUSE),
    };
    let mut command = Command::new("wrk");
    command.args(["--timeout", TIMEOUT, "--threads", "1", "--connections", &connections.to_string()]);
    command.arg("--duration").arg(format!("{}s", lasting.as_secs()));
    command.arg("--script").arg(tools::root().join("bench/src/load/wrk.lua"));
    command.arg(format!("http://{proxy}")).arg("--").arg(bodies);
    command.arg(destinations.unwrap_or(Path::new("-"))).arg(pause.to_string());
    let output = command.stdin(Stdio::null()).output().context("start wrk")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let figures = text.lines().find_map(|line| line.strip_prefix("figures "));
    let figures = figures.with_context(|| {
        format!("wrk gave no figures:\n{text}{}", String::from_utf8_lossy(&output.stderr))
    })?;
    let numbers: Vec<u64> =
        figures.split(' ').map(str::parse).collect::<Result<_, _>>().context("wrk's figures")?;
    let [requests, took, failed, p50, p99] = numbers[..] else { bail!("wrk's figures are {figures}") };
    let [took, p50, p99] = [took, p50, p99].map(Duration::from_micros);
    Ok(Figures { requests, failed, took, p50, p99 })
}
