//! A folder for one stack's files, which outlives it only when something went wrong.

use crate::tools;
use anyhow::{Context, Result};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::{process, thread};

static COUNT: AtomicU32 = AtomicU32::new(0);

/// The folder; removed on drop unless the thread panics or [`RunDir::settle`] was never called.
#[derive(Debug)]
pub struct RunDir {
    path: PathBuf,
    is_settled: bool,
}

impl RunDir {
    /// Creates `tests/logs/<test>-<process>-<count>`.
    pub fn new() -> Result<Self> {
        // The test runner names a test's thread after the test.
        let test = thread::current().name().unwrap_or("stack").replace("::", "-");
        let all = tools::root().join("tests/logs");
        fs::create_dir_all(&all).with_context(|| format!("create {}", all.display()))?;
        loop {
            let count = COUNT.fetch_add(1, Ordering::Relaxed);
            let path = all.join(format!("{test}-{}-{count}", process::id()));
            match fs::create_dir(&path) {
                Ok(()) => return Ok(Self { path, is_settled: false }),
                // Processes in a namespace of their own have the numbers of those in the one before, whose
                // folders were kept.
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error).with_context(|| format!("create {}", path.display())),
            }
        }
    }

    /// The folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps the folder though the thread does not panic.
    pub fn keep(&mut self) {
        self.is_settled = false;
    }

    /// Everything has started: from here on only a panic is a reason to keep the folder.
    pub fn settle(&mut self) {
        self.is_settled = true;
    }
}

impl Drop for RunDir {
    fn drop(&mut self) {
        if thread::panicking() || !self.is_settled {
            eprintln!("logs are kept in {}", self.path.display());
        } else if let Err(reason) = fs::remove_dir_all(&self.path) {
            eprintln!("{} stays: {reason}", self.path.display());
        }
    }
}
