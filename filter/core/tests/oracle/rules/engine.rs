//! A decision from candidates to what is remembered of it.

use core::time::Duration;
use std::collections::BTreeMap;

use endpoint_picker::cycle::Load;
use endpoint_picker::decision::Charge;
use endpoint_picker::pool::Pool;
use endpoint_picker::reading::Reading;
use serde_json::Value;

use super::admission::{refusal, saturation};
use super::cycle::Cycle;
use super::handlers::{Run, Scheduling};
use super::memory::Memories;
use super::plan::Plan;
use crate::world::Ask;

/// What there is to look at when a request comes.
#[derive(Clone, Copy)]
pub(crate) struct Scene<'a> {
    pub(crate) pool: &'a Pool,
    /// One for each endpoint.
    pub(crate) readings: &'a [Reading],
    pub(crate) readings_arrived: Duration,
    pub(crate) now: Duration,
    /// One for each endpoint.
    pub(crate) loads: &'a [Load],
    /// Who failed a moment ago, for each endpoint.
    pub(crate) avoided: &'a [bool],
}

impl Scene<'_> {
    /// How long ago that was.
    pub(super) fn since(&self, then: Duration) -> Duration {
        self.now.saturating_sub(then)
    }
}

#[derive(Debug, PartialEq)]
pub(crate) struct Rejection {
    pub(crate) status: u16,
    pub(crate) reason: Option<&'static str>,
}

/// What must come out.
#[derive(Debug)]
pub(crate) struct Expected {
    /// The endpoints the request goes to, in this order, or the answer.
    pub(crate) outcome: Result<Vec<usize>, Rejection>,
    pub(crate) runs: Vec<Run>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) charges: Vec<Charge>,
}

/// The second implementation, with its own memory.
pub(crate) struct Oracle {
    plan: Plan,
    memories: Memories,
}

impl Oracle {
    pub(crate) fn new(document: &Value) -> Self {
        Self { plan: Plan::of(document), memories: Memories::default() }
    }

    /// Endpoints that are ready and inside the subset hint.
    pub(crate) fn candidates(scene: &Scene<'_>, ask: &Ask) -> Vec<usize> {
        let is_listed = |endpoint: usize| {
            let address = scene.pool.endpoints()[endpoint].address().to_string();
            ask.subset.as_ref().is_none_or(|subset| subset.contains(&address))
        };
        let all = 0..scene.pool.endpoints().len();
        all.filter(|&endpoint| scene.readings[endpoint].ready && is_listed(endpoint)).collect()
    }

    /// What must come out, given what chance decided: the choice of each run, and whether the request was turned away.
    /// Fails where the choice cannot be right.
    pub(crate) fn decide(
        &mut self,
        scene: &Scene<'_>,
        ask: &Ask,
        picks: &[Vec<usize>],
        is_rejected: bool,
    ) -> Result<Expected, String> {
        let candidates = Self::candidates(scene, ask);
        let Some(&first) = candidates.first() else {
            return Ok(rejected(503, Some("rejected-no-endpoints")));
        };
        let mut cycle = Cycle::new(&self.plan, &self.memories, scene, ask);
        let saturation = saturation(&cycle, &self.plan.detector, &candidates);
        // Sums that are 1 up to rounding may be taken for either.
        let is_saturated = if (saturation - 1.0).abs() < 1e-9 { is_rejected } else { saturation >= 1.0 };
        if ask.priority < 0 && is_saturated {
            return Ok(rejected(429, None));
        }
        cycle.look_up(first);
        let admitters = self.plan.plugins.iter().filter(|plugin| plugin.kind == "probabilistic-admitter");
        for admitter in admitters {
            let probability = refusal(&cycle, admitter, &candidates);
            let by_chance = probability > 0.0 && is_rejected && picks.is_empty();
            if probability >= 1.0 || by_chance {
                return Ok(rejected(429, None));
            }
        }
        let mut scheduling = Scheduling {
            plan: &self.plan,
            cycle: &cycle,
            candidates,
            picks,
            runs: vec![],
            asked: BTreeMap::new(),
        };
        let (primary, headers) = match scheduling.schedule()? {
            Ok(schedule) => schedule,
            Err(rejection) => {
                let runs = scheduling.runs;
                return Ok(Expected { outcome: Err(rejection), runs, headers: vec![], charges: vec![] });
            }
        };
        let (runs, asked) = (scheduling.runs, scheduling.asked);
        let destination = &runs.iter().find(|run| run.profile == primary).unwrap().picked;
        if destination.is_empty() {
            let rejection = Rejection { status: 429, reason: Some("rejected-saturated") };
            return Ok(Expected { outcome: Err(rejection), runs, headers: vec![], charges: vec![] });
        }
        let destination = destination.clone();
        let charges = runs.iter().filter(|run| !run.picked.is_empty()).map(|run| cycle.charge(run)).collect();
        let memories = cycle.remember(destination[0], &runs, &asked);
        self.memories = memories;
        Ok(Expected { outcome: Ok(destination), runs, headers, charges })
    }
}

fn rejected(status: u16, reason: Option<&'static str>) -> Expected {
    Expected { outcome: Err(Rejection { status, reason }), runs: vec![], headers: vec![], charges: vec![] }
}
