//! A decision for a pool: what is computed before the ledger is read, and what while it is.

use core::time::Duration;

use endpoint_picker::decision::Decision;
use endpoint_picker::decision::shadow::ShadowDecision;
use endpoint_picker::input::View;
use endpoint_picker::period::Period;
use endpoint_picker::pipeline::Prepared;
use endpoint_picker::pipeline::shadow::Acting;
use endpoint_picker::request::Request;
use endpoint_picker::rng::SplitMix64;
use endpoint_picker::state::PluginStates;

use crate::ledger::{Change, Ledger, changes_of};
use crate::pool_view::{PoolView, Topology};

/// The kind of a decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DecisionKind {
    /// Without a body, an endpoint is drawn at random, and the shadow does not decide.
    pub has_body: bool,
    /// Whether the decision is explained.
    pub explain: bool,
}

/// A worker's random numbers. Those of the shadow are its own, so that it changes nothing in what the acting rules draw.
#[derive(Clone, Debug)]
pub(crate) struct Draws {
    pub(crate) acting: SplitMix64,
    pub(crate) shadow: SplitMix64,
}

impl Draws {
    /// Equal seeds give equal sequences.
    pub(crate) fn new(seed: u64) -> Self {
        Self { acting: SplitMix64::new(seed), shadow: SplitMix64::new(!seed) }
    }
}

/// What a decision takes from the request and the readings alone: it is computed before the ledger is read.
#[derive(Debug)]
pub(crate) struct PreparedRequest<'a> {
    acting: Prepared<'a>,
    shadow: Option<Prepared<'a>>,
}

/// A decision before it is written down for the proxy, which needs no ledger any more.
#[derive(Debug)]
pub(crate) struct PoolDecision {
    pub(crate) decision: Decision,
    pub(crate) shadow: Option<ShadowDecision>,
    /// When each endpoint was avoided, for an explanation.
    pub(crate) avoided: Vec<Period>,
}

impl PoolView {
    /// The view without a ledger: for what needs endpoints and readings only.
    pub(crate) fn without_ledger<'a>(&'a self, avoided: &'a [Period]) -> View<'a> {
        static NO_STATES: PluginStates = PluginStates::none();
        View {
            pool: self.pool(),
            readings: self.readings(),
            readings_arrived: self.arrived(),
            in_flight: &[],
            deferred: &[],
            avoided,
            states: &NO_STATES,
            precomputed: Some(self.precomputed()),
        }
    }

    /// The view with a ledger.
    pub(crate) fn with_ledger<'a>(&'a self, ledger: &'a Ledger) -> View<'a> {
        View { precomputed: Some(self.precomputed()), ..ledger.view(self.readings(), self.arrived()) }
    }

    /// Prepares the decision for a request with a body; `None` for one without.
    pub(crate) fn prepare<'a>(
        &self,
        request: &'a Request<'a>,
        kind: DecisionKind,
        now: Duration,
    ) -> Option<PreparedRequest<'a>> {
        kind.has_body.then(|| {
            let view = self.without_ledger(&[]);
            let Topology { pipeline, shadow, .. } = &**self.topology();
            let shadow = shadow.as_ref().map(|shadow| shadow.pipeline().prepare(request, &view, now));
            PreparedRequest { acting: pipeline.prepare(request, &view, now), shadow }
        })
    }

    /// Decides for a request that this view has prepared. Returns the changes of the ledger that follow.
    pub(crate) fn decide(
        &self,
        ledger: &Ledger,
        prepared: Option<&PreparedRequest<'_>>,
        request: &Request<'_>,
        kind: DecisionKind,
        now: Duration,
        draws: &mut Draws,
    ) -> (PoolDecision, Vec<Change>) {
        let pool = ledger.pool();
        let view = self.with_ledger(ledger);
        let Topology { pipeline, shadow, .. } = &**self.topology();
        let Draws { acting: rng, shadow: shadow_rng } = draws;
        let mut decision = match prepared {
            Some(prepared) => pipeline.decide_prepared(&prepared.acting, Acting::Own, &view, rng),
            None => pipeline.decide_without_body(request, &view, now, rng),
        };
        let shadow = shadow.as_ref().zip(prepared.and_then(|prepared| prepared.shadow.as_ref()));
        let mut shadow = shadow.map(|(shadow, prepared)| {
            shadow.pipeline().compare(prepared, Acting::Pipeline(pipeline, &decision), &view, shadow_rng)
        });
        let mut changes = changes_of(&mut decision, pool);
        if let Some(shadow) = &mut shadow {
            let states = core::mem::take(&mut shadow.decision.changes);
            changes.extend(states.into_iter().map(Change::State));
        }
        let avoided = if kind.explain { ledger.avoided().to_vec() } else { Vec::new() };
        (PoolDecision { decision, shadow, avoided }, changes)
    }
}
