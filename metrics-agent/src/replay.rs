//! The command `replay`: reads a record, replays it, and shows how far it is.

use std::error::Error;
use std::io::{IsTerminal, Write as _};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use metrics_agent_replay::fit;
use metrics_agent_replay::replay::{Replay, Results};
use metrics_agent_replay::report::{Report, page};

use crate::flags::ReplayFlags;

/// Time between two updates of the progress bar.
const UPDATE: Duration = Duration::from_millis(200);

/// Replays a record, and returns the text for standard output.
pub fn replay(flags: &ReplayFlags) -> Result<String, Box<dyn Error>> {
    let rules = flags.rules()?;
    let record = flags.record()?;
    let fit = fit::fit(&record, &flags.given(), flags.servers_without_names());
    let replay = Replay {
        fleet: flags.fleet(&record, &fit)?,
        record: &record,
        fit: &fit,
        rules,
        seeds: flags.seeds,
        load: flags.load,
        limit: flags.limit,
        threads: flags.threads(),
    };
    let report = Report::new(&replay, &run(&replay)?);
    if let Some(path) = &flags.html {
        std::fs::write(path, page(&report)?)
            .map_err(|error| format!("{} (--html): {error}", path.display()))?;
    }
    Ok(if flags.json { serde_json::to_string_pretty(&report)? + "\n" } else { report.to_string() })
}

/// Runs a replay, with a progress bar if standard error is a terminal.
fn run(replay: &Replay<'_>) -> Result<Results, String> {
    let sent = AtomicUsize::new(0);
    let (done, is_done) = mpsc::channel::<()>();
    thread::scope(|scope| {
        if std::io::stderr().is_terminal() {
            let (sent, all) = (&sent, replay.requests().max(1));
            scope.spawn(move || {
                while is_done.recv_timeout(UPDATE) == Err(RecvTimeoutError::Timeout) {
                    show(sent.load(Ordering::Relaxed).min(all), all);
                }
                // Clears the line. A bar that cannot be written is left out.
                let _ = write!(std::io::stderr(), "\r\x1b[K");
            });
        }
        let results = replay.run(&sent);
        drop(done);
        results
    })
}

/// Shows a bar of 40 places.
fn show(sent: usize, all: usize) {
    const PLACES: usize = 40;
    let full = sent * PLACES / all;
    let bar = format!("{}{}", "█".repeat(full), "░".repeat(PLACES - full));
    let _ = write!(std::io::stderr(), "\r{bar} {} %, {sent} of {all} requests", sent * 100 / all);
}
