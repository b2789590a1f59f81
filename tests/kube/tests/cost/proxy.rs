//! The processes of Envoys.

use anyhow::{Context, Result, ensure};
use endpoint_picker_harness::program::process_tree::cpu_time;
use std::fs;
use std::process::Command;
use std::time::Duration;

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
        cpu_time(self.process).unwrap()
    }
}

/// Lets the threads of a process, and all that it starts later, run on this processor only.
pub(crate) fn pin(process: u32, processor: usize) -> Result<()> {
    let mut command = Command::new("taskset");
    command.args(["--all-tasks", "--cpu-list", "--pid", &processor.to_string(), &process.to_string()]);
    let output = command.output().context("start taskset")?;
    ensure!(output.status.success(), "taskset: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
