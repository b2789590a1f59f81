//! The log, on standard error. A line that cannot be written is dropped.

use std::io::IsTerminal;

use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

/// Maximum number of lines that wait while standard error is blocked; further lines are dropped.
const MAX_WAITING_LINES: usize = 4096;

/// Logs the events that `directives` select. A separate thread writes, so a full pipe or a slow terminal does
/// not block the agent. Dropping the guard writes the lines that still wait, for at most a second.
///
/// # Panics
///
/// When the process already has a log.
pub fn start(directives: &str) -> Result<WorkerGuard, ParseError> {
    // Watches report the failures of the client for Kubernetes, which logs each attempt.
    let filter = EnvFilter::try_new(format!("kube_client=off,{directives}"))?;
    let (writer, guard) = NonBlockingBuilder::default()
        .buffered_lines_limit(MAX_WAITING_LINES)
        .thread_name("log")
        .finish(std::io::stderr());
    tracing_subscriber::fmt()
        .with_writer(writer)
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(filter)
        // Internal errors are written to the same standard error, and the library panics when that fails.
        .log_internal_errors(false)
        .init();
    Ok(guard)
}
