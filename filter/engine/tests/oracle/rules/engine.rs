//! A decision from candidates to what is remembered of it.

use core::time::Duration;
use std::collections::BTreeMap;

use endpoint_picker::pool::Endpoints;
use endpoint_picker::pool::load::Load;
use endpoint_picker::pool::load::Reservation;
use endpoint_picker::pool::reading::Reading;
use serde_json::Value;

use super::admission::{refusal, saturation};
use super::cycle::Cycle;
use super::handlers::{Run, Scheduling};
use super::plan::Plan;
use super::plugin_state::{Known, PluginStates};
use super::sources::source;
use crate::world::{RequestSpec, Step};

/// State that a request meets.
#[derive(Clone, Copy)]
pub(crate) struct Situation<'a> {
    pub(crate) pool: &'a Endpoints,
    /// One for each endpoint.
    pub(crate) readings: &'a [Reading],
    pub(crate) readings_arrived: Duration,
    pub(crate) now: Duration,
    /// One for each endpoint.
    pub(crate) loads: &'a [Load],
    /// Recent failures, for each endpoint.
    pub(crate) avoided: &'a [bool],
}

impl Situation<'_> {
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

/// Expected result.
#[derive(Debug)]
pub(crate) struct Expected {
    /// The endpoints the request goes to, in this order, or the response.
    pub(crate) outcome: Result<Vec<usize>, Rejection>,
    pub(crate) runs: Vec<Run>,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) reservations: Vec<Reservation>,
}

/// The second implementation, with its own state.
pub(crate) struct Oracle {
    plan: Plan,
    states: PluginStates,
}

impl Oracle {
    pub(crate) fn new(document: &Value) -> Self {
        let plan = Plan::of(document);
        let mut states = PluginStates::default();
        let learns = ["expected-latency-scorer", "predicted-latency-producer"];
        for plugin in plan.plugins.iter().filter(|plugin| learns.contains(&plugin.kind.as_str())) {
            states.latency.entry(plugin.name.clone()).or_default();
        }
        Self { plan, states }
    }

    /// Events before the step's request.
    pub(crate) fn advance(&mut self, step: &Step, situation: &Situation<'_>) {
        self.states.advance(step, situation);
    }

    /// Whether more decisions may differ, because an index has evicted blocks in another order.
    pub(crate) fn may_differ(&self) -> bool {
        self.states.prefixes.values().any(Known::may_differ)
    }

    /// Endpoints that are ready and inside the subset hint.
    pub(crate) fn candidates(situation: &Situation<'_>, spec: &RequestSpec) -> Vec<usize> {
        let is_listed = |endpoint: usize| {
            let address = situation.pool.as_slice()[endpoint].address().to_string();
            spec.subset.as_ref().is_none_or(|subset| subset.contains(&address))
        };
        let all = 0..situation.pool.as_slice().len();
        all.filter(|&endpoint| situation.readings[endpoint].ready && is_listed(endpoint)).collect()
    }

    /// Expected result, given the random choices: the choice of each run, and where the request was routed,
    /// if it was. Fails where the choice cannot be right.
    pub(crate) fn decide(
        &mut self,
        situation: &Situation<'_>,
        spec: &RequestSpec,
        picks: &[Vec<usize>],
        routed: Option<&[usize]>,
    ) -> Result<Expected, String> {
        self.states.count_request();
        let is_rejected = routed.is_none();
        let candidates = Self::candidates(situation, spec);
        let Some(&first) = candidates.first() else {
            return Ok(rejected(503, Some("rejected-no-endpoints")));
        };
        let mut cycle = Cycle::new(&self.plan, &self.states, situation, spec);
        let saturation = saturation(&cycle, &self.plan.detector, &candidates);
        // Sums that are 1 up to rounding may be taken for either.
        let is_saturated = if (saturation - 1.0).abs() < 1e-9 { is_rejected } else { saturation >= 1.0 };
        if spec.priority < 0 && is_saturated {
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
        let has_admitter = self.plan.plugins.iter().any(|plugin| plugin.kind == "latency-slo-admitter");
        if has_admitter && cycle.misses_limits(&candidates) {
            return Ok(rejected(429, None));
        }
        let mut scheduling = Scheduling {
            plan: &self.plan,
            cycle: &cycle,
            candidates,
            picks,
            runs: vec![],
            rated: BTreeMap::new(),
        };
        let (primary, mut headers) = match scheduling.schedule()? {
            Ok(schedule) => schedule,
            Err(rejection) => {
                let runs = scheduling.runs;
                return Ok(Expected { outcome: Err(rejection), runs, headers: vec![], reservations: vec![] });
            }
        };
        let run = scheduling.runs.iter().find(|run| run.profile == primary).unwrap();
        let mut destination = run.picked.clone();
        let is_cached = |&first: &usize| cycle.matches("approx-prefix-cache-producer").tokens(first) > 0;
        if cycle.wants_cached() && destination.first().is_some_and(|first| !is_cached(first)) {
            let (rejection, runs) = (Rejection { status: 412, reason: None }, scheduling.runs);
            return Ok(Expected { outcome: Err(rejection), runs, headers: vec![], reservations: vec![] });
        }
        let producers = self.plan.plugins.iter().filter(|plugin| plugin.kind == "p2p-source-producer");
        let source = |producer| source(&cycle, producer, &scheduling.candidates, &scheduling.runs, &primary);
        if let Some(source) = producers.filter_map(source).last() {
            let address = situation.pool.as_slice()[source].address().to_string();
            headers.push(("x-kv-cache-source-host-port".to_owned(), address));
        }
        if spec.subset.is_some() && !destination.is_empty() {
            let rest = routed.and_then(|routed| routed.strip_prefix(&destination[..])).unwrap_or_default();
            scheduling.check_rest_of_hint(run, rest)?;
            destination.extend(rest);
        }
        let drained = destination.is_empty().then(|| scheduling.drained(&primary));
        let (runs, rated) = (scheduling.runs, scheduling.rated);
        if let Some(rejection) = drained {
            return Ok(Expected { outcome: Err(rejection), runs, headers: vec![], reservations: vec![] });
        }
        let reservations =
            runs.iter().filter(|run| !run.picked.is_empty()).map(|run| cycle.reserve(run)).collect();
        let states = cycle.remember(destination[0], &runs, &rated);
        self.states = states;
        Ok(Expected { outcome: Ok(destination), runs, headers, reservations })
    }
}

fn rejected(status: u16, reason: Option<&'static str>) -> Expected {
    Expected {
        outcome: Err(Rejection { status, reason }),
        runs: vec![],
        headers: vec![],
        reservations: vec![],
    }
}
