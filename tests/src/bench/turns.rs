//! Two proxies under the same load in turns, and what their figures say about each other.

use super::wrk::{self, Figures, Load};
use crate::envoy::Envoy;
use anyhow::{Context, Result, ensure};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A proxy, and what it is sent.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) envoy: Envoy,
    pub(super) bodies: PathBuf,
    /// Values of the destination header, where the client sets it.
    pub(super) destinations: Option<PathBuf>,
}

/// One turn of one side.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) figures: Figures,
    /// Processor time of the whole proxy, for each request.
    pub(super) cpu: Duration,
}

/// A turn of each side, one right after the other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    pub(super) bare: Turn,
    pub(super) ours: Turn,
}

impl Side {
    pub(super) fn turn(&self, load: Load, lasting: Duration) -> Result<Turn> {
        let before = cpu_time(self.envoy.process_id())?;
        let listener = self.envoy.listener();
        let figures = wrk::run(listener, load, lasting, &self.bodies, self.destinations.as_deref())?;
        let Figures { requests, failed, .. } = figures;
        ensure!(requests > 0 && failed == 0, "{failed} of {requests} requests failed");
        let cpu = cpu_time(self.envoy.process_id())?.saturating_sub(before);
        Ok(Turn { figures, cpu: cpu.div_f64(figures.requests as f64) })
    }
}

/// So many rounds; who goes first alternates, because what is loaded second may find the machine in another state.
pub(super) fn rounds(
    bare: &Side,
    ours: &Side,
    load: Load,
    rounds: u32,
    lasting: Duration,
) -> Result<Vec<Round>> {
    let round = |number: u32| {
        if number.is_multiple_of(2) {
            let bare = bare.turn(load, lasting)?;
            Ok(Round { bare, ours: ours.turn(load, lasting)? })
        } else {
            let ours = ours.turn(load, lasting)?;
            Ok(Round { bare: bare.turn(load, lasting)?, ours })
        }
    };
    (0..rounds).map(round).collect()
}

/// Processor time, user and system, of a process and all it has started: Envoy may be the child of its launcher.
pub(crate) fn cpu_time(process: u32) -> Result<Duration> {
    let folder = PathBuf::from(format!("/proc/{process}"));
    let mut total = own_cpu_time(&folder)?;
    for thread in fs::read_dir(folder.join("task"))? {
        let children = fs::read_to_string(thread?.path().join("children")).unwrap_or_default();
        for child in children.split_whitespace() {
            total += cpu_time(child.parse().context("a process id")?)?;
        }
    }
    Ok(total)
}

fn own_cpu_time(folder: &Path) -> Result<Duration> {
    let stat = fs::read_to_string(folder.join("stat")).context("processor time, which needs Linux")?;
    // The name, the second field, may contain anything; 12 fields after it come user and system time.
    let (_, after_name) = stat.rsplit_once(") ").context("/proc/PID/stat without a name")?;
    let ticks = after_name.split(' ').skip(11).take(2).map(str::parse::<u64>);
    let ticks: u64 = ticks.sum::<Result<_, _>>().context("/proc/PID/stat")?;
    // USER_HZ is 100 wherever Linux runs.
    Ok(Duration::from_millis(ticks * 10))
}
