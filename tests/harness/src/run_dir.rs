//! A folder for one stack's files, which outlives it only when something went wrong.

use crate::tools;
use anyhow::{Context, Result};
use std::fs;
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
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = tools::root().join(format!("tests/logs/{test}-{}-{count}", process::id()));
        fs::create_dir_all(&path).with_context(|| format!("create {}", path.display()))?;
        Ok(Self { path, is_settled: false })
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
