//! Plan of a comparison.

use crate::way::Way;
use endpoint_picker_simulation::cell::source::{ClosedLoop, Source};
use endpoint_picker_simulation::cell::workloads::Workload;
use metrics_agent_replay::simulation::fleet::Fleet;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// The workloads that are compared, each of which has equal servers.
const WORKLOADS: [Workload; 6] = [
    Workload::SharedPrompts,
    Workload::Conversations,
    Workload::Adapters,
    Workload::ShareGpt,
    Workload::Agents,
    Workload::LongMix,
];

/// Starting and ending a way, and the responses in flight at the end, take about this long.
const AROUND: Duration = Duration::from_secs(6);

/// The requests of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Requests {
    /// A workload at this fraction of the capacity.
    Open(Workload, f64),
    /// A closed loop, by its name.
    Closed(&'static str, ClosedLoop),
}

/// The conditions of runs that differ in seed and way.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Condition {
    pub(super) requests: Requests,
    pub(super) workers: u32,
}

/// Plan of a comparison: all requests with every seed and number of workers, by every way.
#[derive(Clone, Debug)]
pub(crate) struct ChoosingPlan {
    pub(crate) requests: Vec<Requests>,
    pub(crate) seeds: Vec<u64>,
    /// Numbers of Envoy's workers.
    pub(crate) workers: Vec<u32>,
    /// The others are compared with the first one.
    pub(crate) ways: Vec<Way>,
    /// How long requests are measured.
    pub(crate) phase: Duration,
    /// How long requests are sent before.
    pub(crate) warm_up: Duration,
    /// Every request may be refused, and has this limit for its first token.
    pub(crate) limit: Option<Duration>,
    /// Between two scrapes of a server.
    pub(crate) interval: Duration,
    /// The EPP's binary.
    pub(crate) epp: PathBuf,
}

impl Requests {
    /// All that can be compared: the workloads at each of these loads, and the closed loops.
    pub(crate) fn all(loads: &[f64]) -> Vec<Self> {
        let open = WORKLOADS.into_iter().flat_map(|workload| loads.iter().map(move |&load| (workload, load)));
        // The servers of this study have a processor each.
        let closed = ClosedLoop::ALL.into_iter().filter(|(_, closed)| !closed.shares_processor);
        let open = open.map(|(workload, load)| Self::Open(workload, load));
        open.chain(closed.map(|(name, closed)| Self::Closed(name, closed))).collect()
    }

    /// Name of the workload or of the loop.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Open(workload, _) => workload.name(),
            Self::Closed(name, _) => name,
        }
    }

    /// The servers.
    pub(super) fn fleet(&self) -> Fleet {
        match self {
            Self::Open(workload, _) => workload.fleet(),
            Self::Closed(_, closed) => Source::Closed(*closed).fleet(),
        }
    }
}

impl ChoosingPlan {
    pub(super) fn conditions(&self) -> impl Iterator<Item = Condition> {
        let workers = |requests| self.workers.iter().map(move |&workers| Condition { requests, workers });
        self.requests.iter().flat_map(move |&requests| workers(requests))
    }

    /// How long all runs should take.
    pub(crate) fn expected(&self) -> Duration {
        let runs = self.requests.len() * self.seeds.len() * self.workers.len() * self.ways.len();
        (AROUND + self.warm_up + self.phase) * u32::try_from(runs).unwrap_or(u32::MAX)
    }
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.requests.name())?;
        if let Requests::Open(_, load) = self.requests {
            write!(f, ", {:.0} %", load * 100.0)?;
        }
        let plural = if self.workers == 1 { "" } else { "s" };
        write!(f, ", {} worker{plural}", self.workers)
    }
}
