//! The machine and the versions behind the figures.

use crate::epp::VERSION;
use anyhow::{Context, Result};
use endpoint_picker_harness::tools;
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::thread::available_parallelism;

/// The machine and the versions.
#[derive(Debug)]
pub struct Machine {
    date: String,
    processors: String,
    memory: String,
    kernel: String,
    /// Load average of the minute before: above the number of processors, something had to wait.
    load: String,
    versions: Vec<String>,
}

impl Machine {
    /// Reads them from this machine. `more` are versions of further programs that the run needs.
    pub fn read(more: Vec<String>) -> Result<Self> {
        let read = |path: &str| fs::read_to_string(path).with_context(|| format!("read {path}"));
        let field = |text: &str, name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.map_or_else(
                || "unknown".to_owned(),
                |value| value.trim_start_matches([':', '\t', ' ']).to_owned(),
            )
        };
        let kib: f64 =
            field(&read("/proc/meminfo")?, "MemTotal").trim_end_matches(" kB").parse().unwrap_or(0.0);
        let model = field(&read("/proc/cpuinfo")?, "model name");
        let mut versions = vec![envoy_version()?, first_line("rustc", "--version")];
        versions.extend(more);
        Ok(Self {
            date: today(),
            processors: format!("{} × {model}", available_parallelism()?),
            memory: format!("{:.0} GiB", kib / 1_048_576.0),
            kernel: read("/proc/sys/kernel/osrelease")?.trim().to_owned(),
            load: load_average()?,
            versions,
        })
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { date, processors, memory, kernel, load, versions } = self;
        write!(f, "{date}; {processors}, {memory}, Linux {kernel}; load average before {load}; ")?;
        f.write_str(&versions.join(", "))
    }
}

/// The date of today, as 2026-11-24.
pub(super) fn today() -> String {
    first_line("date", "--iso-8601")
}

/// Envoy with its version.
fn envoy_version() -> Result<String> {
    let output = Command::new(tools::envoy()?).arg("--version").output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let version = text.split("version:").nth(1).and_then(|version| version.split('/').nth(1));
    Ok(format!("Envoy {}", version.unwrap_or("of unknown version").trim()))
}

/// The load average of the last minute; above the number of processors, something has to wait.
pub fn load_average() -> Result<String> {
    let text = fs::read_to_string("/proc/loadavg")?;
    Ok(text.split(' ').next().unwrap_or_default().to_owned())
}

/// The EPP with its version. Go wrote it into the binary, unless it was built from a checkout.
pub fn epp_version(epp: &Path) -> String {
    let output = Command::new("go").args(["version", "-m"]).arg(epp).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    let built_with = text.lines().next().and_then(|line| line.rsplit_once(": ")).map(|(_, go)| go.trim());
    let number = text.lines().find_map(|line| line.trim().strip_prefix("mod\t")?.split('\t').nth(1));
    let number = number.filter(|number| number.starts_with('v'));
    let number = number.map_or_else(|| format!("{VERSION} from a checkout"), str::to_owned);
    let built_with = built_with.map_or_else(String::new, |go| format!(" built with {go}"));
    format!("the EPP {number}{built_with}")
}

/// The first line of a program's output, or that the program is missing.
fn first_line(program: &str, argument: &str) -> String {
    let output = Command::new(program).arg(argument).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let line = text.ok().and_then(|text| text.lines().next().map(str::to_owned));
    line.unwrap_or_else(|| format!("no {program}"))
}
