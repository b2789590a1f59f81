//! Plan of a comparison.

use super::way::Way;
use endpoint_picker_simulation::cell::workloads::Workload;
use std::path::PathBuf;
use std::time::Duration;

/// The workloads that are compared, each of which has equal servers.
pub(crate) const WORKLOADS: [Workload; 6] = [
    Workload::SharedPrompts,
    Workload::Conversations,
    Workload::Adapters,
    Workload::ShareGpt,
    Workload::Agents,
    Workload::LongMix,
];

/// Starting and ending a way, and the responses in flight at the end, take about this long.
const AROUND: Duration = Duration::from_secs(6);

/// Plan of a comparison: every workload at every load with every seed and number of workers, by every way.
#[derive(Clone, Debug)]
pub(crate) struct ChoosingPlan {
    pub(crate) workloads: Vec<Workload>,
    /// Fractions of the capacity.
    pub(crate) loads: Vec<f64>,
    pub(crate) seeds: Vec<u64>,
    /// Numbers of Envoy's workers.
    pub(crate) workers: Vec<u32>,
    /// The first one is compared with the others.
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

impl ChoosingPlan {
    /// How long all runs should take.
    pub(crate) fn expected(&self) -> Duration {
        let runs =
            self.workloads.len() * self.loads.len() * self.seeds.len() * self.workers.len() * self.ways.len();
        (AROUND + self.warm_up + self.phase) * u32::try_from(runs).unwrap_or(u32::MAX)
    }
}
