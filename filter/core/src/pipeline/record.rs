//! The last step of a decision: what plugins remember of it.

use super::Pipeline;
use super::prepare::Prepared;
use crate::decision::ProfileRun;
use crate::input::cycle::Cycle;
use crate::plugin::{Routed, Stage};
use crate::state::Event;

impl Pipeline {
    /// Changes of the plugins' states for a request that was routed by the primary one of these stages. `runs` are this pipeline's
    /// own.
    pub(super) fn record(
        &self,
        cycle: &Cycle<'_>,
        prepared: &Prepared,
        stages: &[Stage<'_>],
        primary: Option<usize>,
        runs: &[ProfileRun],
    ) -> Vec<Event> {
        let Some(primary) = primary.and_then(|primary| stages.get(primary)) else { return Vec::new() };
        let mut events = Vec::new();
        for slot in &self.recorders {
            let rated = runs.iter().rev().find_map(|run| self.profile_of(run).rated(slot.key, run));
            let routed =
                Routed { stages, primary, rated: rated.as_deref(), hashes: prepared.hashes_of(slot.key) };
            let changes = slot.plugin.record(&cycle.of(slot.key), &routed);
            events.extend(changes.into_iter().map(|change| Event { plugin: slot.key, change }));
        }
        events
    }
}
