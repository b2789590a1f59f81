//! The command `replay`: reads a record, replays it, and shows how far it is.

use std::error::Error;

use indicatif::ProgressBar;
use metrics_agent_replay::fit;
use metrics_agent_replay::replay::{Replay, Results};
use metrics_agent_replay::report::{Report, page};

use crate::flags::ReplayFlags;

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
    let bar = ProgressBar::new(replay.requests() as u64);
    let results = replay.run(&|| bar.inc(1));
    bar.finish_and_clear();
    results
}
