//! What a long run says while it goes on.

use std::time::{Duration, Instant};

/// Prints what is being measured, how long it has taken, and how long it should take.
#[derive(Debug)]
pub struct Progress {
    begin: Instant,
    expected: Duration,
}

impl Progress {
    /// Begins a run of which this long is expected.
    pub fn begin(expected: Duration) -> Self {
        eprintln!("about {} expected", minutes(expected));
        Self { begin: Instant::now(), expected }
    }

    /// How long the run has taken so far.
    pub fn took(&self) -> Duration {
        self.begin.elapsed()
    }

    /// Says what comes next, or what has just been found.
    pub(super) fn say(&self, what: &str) {
        eprintln!("[{} of about {}] {what}", minutes(self.took()), minutes(self.expected));
    }
}

fn minutes(duration: Duration) -> String {
    format!("{}:{:02}", duration.as_secs() / 60, duration.as_secs() % 60)
}
