//! A started program: its output goes to a file, and it ends with its handle.

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Time between SIGTERM and SIGKILL.
const PATIENCE: Duration = Duration::from_secs(5);
const LINES_SHOWN: usize = 25;

/// A running program, in the process group of its starter, so that Ctrl-C at a terminal reaches it as well.
#[derive(Debug)]
pub struct Process {
    name: &'static str,
    child: Child,
    log: PathBuf,
}

impl Process {
    /// Starts `command`; its output goes to `log`.
    pub fn start(name: &'static str, mut command: Command, log: &Path) -> Result<Self> {
        let file = File::create(log).with_context(|| format!("create {}", log.display()))?;
        let child = command
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("start {name}: {}", command.get_program().display()))?;
        Ok(Self { name, child, log: log.to_owned() })
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its output so far.
    pub fn output(&self) -> Result<String> {
        let bytes = fs::read(&self.log).with_context(|| format!("read {}", self.log.display()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    /// An error with its last lines when the program has ended.
    pub fn check_running(&mut self) -> Result<()> {
        let Some(status) = self.child.try_wait()? else { return Ok(()) };
        let output = self.output()?;
        let lines: Vec<&str> = output.lines().collect();
        let last = lines[lines.len().saturating_sub(LINES_SHOWN)..].join("\n");
        bail!("{} ended with {status}; its last lines in {}:\n{last}", self.name, self.log.display())
    }

    /// How the program has ended; `None` while it runs.
    pub fn exit_status(&mut self) -> Result<Option<ExitStatus>> {
        Ok(self.child.try_wait()?)
    }

    /// Ends the program with SIGTERM, or with SIGKILL when it ignores that.
    pub fn stop(&mut self) {
        self.signal(Signal::TERM);
        let deadline = Instant::now() + PATIENCE;
        while matches!(self.child.try_wait(), Ok(None)) {
            if Instant::now() > deadline {
                self.kill();
                return;
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Ends the program at once (SIGKILL), as a crash would.
    pub fn kill(&mut self) {
        // The only failure is that it has already ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends a signal, unless the program has ended: another program may have its id by then.
    pub fn signal(&mut self, signal: Signal) {
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = kill_process(Pid::from_child(&self.child), signal);
        }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
    }
}
