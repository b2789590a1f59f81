//! Memory and open files of processes that run for long, and whether they grow.

use super::bounds::BoundTable;
use crate::report::median;
use anyhow::Result;
use endpoint_picker_harness::program::process_tree::{open_files, taken};
use std::time::Duration;

/// Distance of the samples that are compared: about 20 s.
const APART: usize = 20;
/// Bytes by which memory may grow each minute after the warm-up.
const MAX_GROWTH: f64 = 0.5 * MIB;
/// The agent keeps what proxies share for this time, for proxies that start; until then it grows.
const AGENT_GROWS: Duration = Duration::from_secs(600);
/// Bytes that the agent may take: 32 MiB of what proxies share, and all else.
const MAX_OF_AGENT: f64 = 48.0 * MIB;
/// Open files by which a process may grow each minute after the warm-up.
const MAX_FILES: f64 = 1.0;

pub(super) const MIB: f64 = 1_048_576.0;

/// A process that is watched, with one sample each second.
#[derive(Debug)]
pub(super) struct ProcessUsage {
    name: &'static str,
    process: u32,
    /// How long it grows after its start.
    grows: Duration,
    /// Bytes that it may take.
    max: Option<f64>,
    samples: Vec<UsageSample>,
}

/// Requests of the whole run so far, and usage, at one moment.
#[derive(Clone, Copy, Debug)]
struct UsageSample {
    /// Seconds since the beginning.
    at: f64,
    requests: f64,
    memory: f64,
    files: f64,
}

impl ProcessUsage {
    pub(super) fn of_envoy(process: u32) -> Self {
        Self { name: "Envoy", process, grows: Duration::ZERO, max: None, samples: Vec::new() }
    }

    pub(super) fn of_agent(process: u32) -> Self {
        let (grows, max) = (AGENT_GROWS, Some(MAX_OF_AGENT));
        Self { name: "agent", process, grows, max, samples: Vec::new() }
    }

    /// Adds a sample.
    pub(super) fn add(&mut self, at: Duration, requests: usize) -> Result<()> {
        let (memory, files) = (taken(self.process)? as f64, open_files(self.process)? as f64);
        self.samples.push(UsageSample { at: at.as_secs_f64(), requests: requests as f64, memory, files });
        Ok(())
    }

    /// Drops the samples of the warm-up.
    pub(super) fn end_warm_up(&mut self) {
        self.samples.clear();
    }

    /// The newest sample for a line of progress.
    pub(super) fn progress(&self) -> String {
        let UsageSample { memory, files, .. } = self.last();
        format!("{} {:.1} MiB and {files} files", self.name, memory / MIB)
    }

    /// Seconds between the first and the last sample.
    pub(super) fn seconds(&self) -> f64 {
        self.samples.first().map_or(0.0, |first| self.last().at - first.at)
    }

    /// Prints usage at the end, and growth. Growth has a bound if the samples begin when the process no
    /// longer grows.
    pub(super) fn print(&self, table: &mut BoundTable) {
        let Self { name, grows, max, .. } = self;
        let has_grown = self.samples.first().is_some_and(|first| first.at >= grows.as_secs_f64());
        let growth = |of: fn(&UsageSample) -> f64, by: fn(&UsageSample) -> f64| {
            median_growth(
                &self.samples.iter().map(|sample| (by(sample), of(sample))).collect::<Vec<_>>(),
                APART,
            )
        };
        let UsageSample { memory, files, .. } = self.last();
        table.print(&format!("{name}: memory at the end"), memory / MIB, "MiB", max.map(|max| max / MIB));
        let a_minute = growth(|sample| sample.memory, |sample| sample.at) * 60.0;
        table.print(
            &format!("{name}: growth a minute"),
            a_minute / MIB,
            "MiB",
            has_grown.then_some(MAX_GROWTH / MIB),
        );
        let a_request = growth(|sample| sample.memory, |sample| sample.requests);
        table.print(&format!("{name}: growth a request"), a_request, "bytes", None);
        table.print(&format!("{name}: open files at the end"), files, "files", None);
        let a_minute = growth(|sample| sample.files, |sample| sample.at) * 60.0;
        table.print(&format!("{name}: more open files a minute"), a_minute, "files", Some(MAX_FILES));
    }

    fn last(&self) -> UsageSample {
        let none = UsageSample { at: 0.0, requests: 0.0, memory: 0.0, files: 0.0 };
        self.samples.last().copied().unwrap_or(none)
    }
}

/// Growth of `y` for each unit of `x`: the median over all pairs of points that lie `apart`; 0 if there is
/// none.
///
/// A new peak of memory in use adds a step, which stays; a leak shows between any two points.
fn median_growth(points: &[(f64, f64)], apart: usize) -> f64 {
    let later = points.iter().skip(apart);
    median(points.iter().zip(later).map(|(from, to)| (to.1 - from.1) / (to.0 - from.0)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_leak_counts_as_growth_and_a_step_does_not() {
        let points = |y: fn(f64) -> f64| (0..100).map(f64::from).map(|x| (x, y(x))).collect::<Vec<_>>();
        assert!((median_growth(&points(|x| 3.0 + 2.0 * x), 20) - 2.0).abs() < 1e-9);
        assert!(median_growth(&points(|x| if x < 50.0 { 3.0 } else { 15.0 }), 20).abs() < 1e-9);
        assert!(median_growth(&[(0.0, 1.0)], 20).abs() < 1e-9);
    }
}
