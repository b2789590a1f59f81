//! The log, on standard error. A line that cannot be written is lost, and nothing else happens.

use std::io::IsTerminal;

use tracing_appender::non_blocking::{NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::filter::ParseError;

/// Lines that wait for a standard error that accepts none at the moment; further lines are lost.
const MAX_WAITING_LINES: usize = 4096;

/// Logs what `directives` select. A thread of its own writes, so a full pipe or a slow terminal does not block the agent.
/// Dropping the guard writes the lines that wait, if they can be written within a second.
///
/// # Panics
///
/// When the process has a log already.
pub fn start(directives: &str) -> Result<WorkerGuard, ParseError> {
    let filter = EnvFilter::try_new(directives)?;
    let (writer, guard) = NonBlockingBuilder::default()
        .buffered_lines_limit(MAX_WAITING_LINES)
        .thread_name("log")
        .finish(std::io::stderr());
    tracing_subscriber::fmt()
        .with_writer(writer)
        .with_ansi(std::io::stderr().is_terminal())
        .with_env_filter(filter)
        // Its report of a line that was not written goes to the same standard error, and panics when that fails.
        .log_internal_errors(false)
        .init();
    Ok(guard)
}
