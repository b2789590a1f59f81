//! Memory that decisions use again, one after another.

use crate::decision::ProfileRun;

/// Memory of the last decision for the next one: a decision that has it allocates nothing that grows with the
/// pool.
#[derive(Clone, Debug, Default)]
pub struct Scratch {
    /// Runs of profiles, with nothing in them.
    runs: Vec<ProfileRun>,
    /// A list of runs, with none in it.
    list: Vec<ProfileRun>,
    /// Counts by endpoint, with nothing in them.
    counts: Vec<Vec<u32>>,
    /// Memory of a count of [matches](crate::state::prefix::PrefixIndex::add_matches).
    pub(super) ends: Vec<usize>,
}

impl Scratch {
    /// An empty list of runs.
    pub(super) fn list(&mut self) -> Vec<ProfileRun> {
        core::mem::take(&mut self.list)
    }

    /// A run of a profile over these candidates.
    pub(super) fn run(&mut self, profile: usize, candidates: &[usize]) -> ProfileRun {
        let mut run = self.runs.pop().unwrap_or_default();
        run.profile = profile;
        run.scored.extend_from_slice(candidates);
        run
    }

    /// A zero for each endpoint.
    pub(super) fn counts(&mut self, endpoints: usize) -> Vec<u32> {
        let mut counts = self.counts.pop().unwrap_or_default();
        counts.resize(endpoints, 0);
        counts
    }

    /// Keeps the memory of counts.
    pub(super) fn keep_counts(&mut self, mut counts: Vec<u32>) {
        counts.clear();
        self.counts.push(counts);
    }

    /// Keeps the memory of a decision's runs.
    pub fn keep_runs(&mut self, mut runs: Vec<ProfileRun>) {
        self.runs.extend(runs.drain(..).map(ProfileRun::emptied));
        self.list = runs;
    }
}
