//! Progress that a long run prints.

use std::time::{Duration, Instant};

/// Prints what is being measured, how long it has taken, and how long it should take.
#[derive(Debug)]
pub struct Progress {
    begin: Instant,
    expected: Duration,
}

impl Progress {
    /// Begins a run that should take this long.
    pub fn begin(expected: Duration) -> Self {
        eprintln!("about {} expected", minutes(expected));
        Self { begin: Instant::now(), expected }
    }

    /// How long the run has taken so far.
    pub fn took(&self) -> Duration {
        self.begin.elapsed()
    }

    /// Prints what comes next, or the last result.
    pub fn print(&self, what: &str) {
        eprintln!("[{} of about {}] {what}", minutes(self.took()), minutes(self.expected));
    }
}

fn minutes(duration: Duration) -> String {
    format!("{}:{:02}", duration.as_secs() / 60, duration.as_secs() % 60)
}
