//! Capacities of workloads.

use endpoint_picker_bench::report::Progress;
use endpoint_picker_simulation::cell::capacity;
use endpoint_picker_simulation::cell::workloads::Workload;

/// Requests per second of each workload at its capacity, which is found when it is first asked for.
#[derive(Debug, Default)]
pub(super) struct Capacities(pub(super) Vec<(Workload, f64)>);

impl Capacities {
    pub(super) fn of(&mut self, workload: Workload, progress: &Progress) -> f64 {
        /// The seed with which capacities are found.
        const SEED: u64 = 1;
        if let Some((_, capacity)) = self.0.iter().find(|(known, _)| *known == workload) {
            return *capacity;
        }
        let capacity = capacity::of_workload(workload, SEED);
        progress.print(&format!("{}: {capacity:.1} requests/s are the capacity", workload.name()));
        self.0.push((workload, capacity));
        capacity
    }
}
