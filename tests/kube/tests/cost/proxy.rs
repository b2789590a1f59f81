//! The processes of Envoys.

use anyhow::{Context, Result, ensure};
use std::fs;
use std::process::Command;
use std::time::Duration;

/// Of the kernel's counts of processor time: `USER_HZ`, which is 100 on all its architectures but one.
const TICK: Duration = Duration::from_millis(10);

/// A running Envoy.
#[derive(Debug)]
pub(crate) struct Proxy {
    process: u32,
}

impl Proxy {
    /// All Envoys with this text among their arguments.
    pub(crate) fn with_argument(text: &str) -> Result<Vec<Self>> {
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc")? {
            let entry = entry?;
            let Some(process) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let arguments = fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default();
            let program = arguments.split('\0').next().and_then(|program| program.rsplit('/').next());
            if program == Some("envoy") && arguments.contains(text) {
                found.push(Self { process });
            }
        }
        ensure!(!found.is_empty(), "no Envoy has {text:?} among its arguments");
        Ok(found)
    }

    /// Lets its threads run on this processor only.
    pub(crate) fn pin(&self, processor: usize) -> Result<()> {
        pin(self.process, processor)
    }

    /// The processor time of all its threads so far.
    pub(crate) fn processor_time(&self) -> Duration {
        let text = fs::read_to_string(format!("/proc/{}/stat", self.process)).unwrap();
        // After the name in parentheses: the state, and from the twelfth on the ticks in user space and in the kernel.
        let (_, fields) = text.rsplit_once(") ").unwrap();
        let ticks: u32 = fields.split(' ').skip(11).take(2).map(|field| field.parse::<u32>().unwrap()).sum();
        TICK * ticks
    }
}

/// Lets the threads of a process, and what it starts later, run on this processor only.
pub(crate) fn pin(process: u32, processor: usize) -> Result<()> {
    let mut command = Command::new("taskset");
    command.args(["--all-tasks", "--cpu-list", "--pid", &processor.to_string(), &process.to_string()]);
    let output = command.output().context("start taskset")?;
    ensure!(output.status.success(), "taskset: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
