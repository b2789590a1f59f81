//! A decision for a pool: a part before the ledger is read, and a part that reads the ledger.

use core::net::SocketAddr;
use core::time::Duration;

use endpoint_picker::decision::shadow::{Agreement, OtherPick, ShadowDecision};
use endpoint_picker::decision::{Decision, Outcome, Records};
use endpoint_picker::fallback::Fallback;
use endpoint_picker::input::DecisionInput;
use endpoint_picker::period::Period;
use endpoint_picker::pipeline::shadow::Acting;
use endpoint_picker::pipeline::{Prepared, Scratch};
use endpoint_picker::pool::{Endpoint, Endpoints};
use endpoint_picker::request::Request;
use endpoint_picker::rng::SplitMix64;
use endpoint_picker::state::PluginStates;

use crate::ledger::{Change, ChangeList, Ledger, changes_of};
use crate::pool_view::{PoolView, Topology};

/// A request to route.
#[derive(Clone, Copy, Debug)]
pub struct Routing<'a> {
    /// The request.
    pub request: &'a Request<'a>,
    /// Without a body, an endpoint is drawn at random, and no shadow decides.
    pub has_body: bool,
    /// The choice of another picker, which acts; `None`: this picker acts.
    pub other: Option<&'a PickAddresses>,
    /// Whether the decision is explained.
    pub explain: bool,
    /// The move by which the request came to the pool; `None`: it is the request's own pool.
    pub fallback: Option<&'a Fallback>,
    /// The time of the decision.
    pub now: Duration,
}

/// The addresses that another picker has chosen for a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PickAddresses {
    /// The first destination as the picker has written it.
    pub(crate) first: String,
    /// The destinations, in the order in which they are tried, up to the first that is not an `ip:port`.
    pub(crate) destinations: Vec<SocketAddr>,
    /// The endpoint that computes the prompt.
    pub(crate) prefill: Option<SocketAddr>,
    /// The endpoints that encode images, video and audio.
    pub(crate) encode: Vec<SocketAddr>,
}

impl PickAddresses {
    /// The endpoints of this pool at the addresses.
    fn endpoints_in(&self, pool: &Endpoints) -> OtherPick {
        let index = |address: &SocketAddr| pool.index_at(*address);
        OtherPick {
            // Up to the first address outside the pool, so that no later destination counts as the first.
            destinations: self.destinations.iter().map_while(index).collect(),
            prefill: self.prefill.as_ref().and_then(index),
            encode: self.encode.iter().filter_map(index).collect(),
        }
    }
}

/// The random numbers of a worker. A shadow draws its own, so that it does not change the draws of the acting
/// rules.
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

/// The part of a decision that follows from the request and the readings alone: it is computed before the
/// ledger is read.
#[derive(Debug)]
pub(crate) struct PreparedRequest<'a> {
    pub(super) own: Prepared<'a>,
    shadow: Option<Prepared<'a>>,
}

/// A decision whose instructions for the proxy are not made yet; making them needs no ledger.
#[derive(Debug)]
pub(crate) struct PoolDecision {
    pub(crate) decision: Decision,
    /// The other decision about the request, if there is one.
    pub(crate) compared: Option<Compared>,
    /// The times at which each endpoint was avoided, for an explanation.
    pub(crate) avoided: Vec<Period>,
}

impl PoolDecision {
    /// The first destination of the decision that does not act, `None` if it routes the request nowhere, and
    /// whether it agrees with the acting decision; `None`: there is no other.
    #[cold]
    #[inline(never)]
    pub(crate) fn shadow_choice(&self, pool: &Endpoints) -> Option<(Option<SocketAddr>, bool)> {
        let (outcome, agreement) = match self.compared.as_ref()? {
            Compared::Shadow(shadow) => (&shadow.decision.outcome, shadow.agreement),
            Compared::Other(_, agreement) => (&self.decision.outcome, *agreement),
        };
        let first = match outcome {
            Outcome::Route(destinations) => destinations.first(),
            Outcome::Reject(_) | Outcome::Abstain { .. } => None,
        };
        let first = first.and_then(|&index| pool.as_slice().get(index)).map(Endpoint::address);
        Some((first, agreement.agrees()))
    }
}

/// Another decision about the request.
#[derive(Debug)]
pub(crate) enum Compared {
    /// The decision of the pool's shadow configuration.
    Shadow(Box<ShadowDecision>),
    /// The choice of another picker, which acts.
    Other(Box<OtherPick>, Agreement),
}

impl PoolView {
    /// The view without a ledger, for uses of endpoints and readings only.
    pub(crate) fn without_ledger<'a>(&'a self, avoided: &'a [Period]) -> DecisionInput<'a> {
        static NO_STATES: PluginStates = PluginStates::none();
        DecisionInput {
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

    /// Prepares the decision for a request with a body; `None` without a body.
    pub(crate) fn prepare<'a>(&self, routing: &Routing<'a>) -> Option<PreparedRequest<'a>> {
        let Routing { request, has_body, other, now, .. } = *routing;
        has_body.then(|| {
            let view = self.without_ledger(&[]);
            let Topology { pipeline, shadow, .. } = &**self.topology();
            let shadow = shadow.as_ref().filter(|_| other.is_none());
            let shadow = shadow.map(|shadow| shadow.pipeline().prepare(request, &view, now));
            PreparedRequest { own: pipeline.prepare(request, &view, now), shadow }
        })
    }

    /// Decides for a request that this view has prepared, in memory of earlier decisions. Returns the changes
    /// of the ledger that follow.
    pub(crate) fn evaluate(
        &self,
        ledger: &Ledger,
        prepared: Option<&PreparedRequest<'_>>,
        routing: &Routing<'_>,
        (draws, scratch): (&mut Draws, &mut Scratch),
    ) -> (PoolDecision, ChangeList) {
        let pool = ledger.pool();
        let view = DecisionInput {
            precomputed: Some(self.precomputed()),
            ..ledger.input(self.readings(), self.arrived())
        };
        let pipeline = &self.topology().pipeline;
        let (mut decision, mut compared) = match (prepared, routing.other) {
            (Some(prepared), None) => {
                let rng = &mut draws.acting;
                (pipeline.decide_prepared(&prepared.own, Acting::Own, &view, scratch, rng), None)
            }
            (None, _) => {
                let Routing { request, now, .. } = *routing;
                (pipeline.decide_without_body(request, &view, now, &mut draws.acting), None)
            }
            (Some(prepared), Some(other)) => self.compare_with_other(prepared, other, &view, draws),
        };
        if let Some(shadow) = prepared.and_then(|prepared| prepared.shadow.as_ref()) {
            compared = self.compare_with_shadow(shadow, &decision, &view, draws);
        }
        let mut avoided = Vec::new();
        if routing.explain {
            if let Some(prepared) = prepared {
                pipeline.add_details(&mut decision, &prepared.own, &view);
            }
            avoided = ledger.avoided().to_vec();
        }
        let mut changes = changes_of(&mut decision, pool);
        if let Some(Compared::Shadow(shadow)) = &mut compared {
            add_records_of_shadow(&mut decision.records, &mut changes, &mut shadow.decision.records);
        }
        (PoolDecision { decision, compared, avoided }, changes)
    }

    /// Decides for a request that goes to the choice of another picker. These rules do not act here, so they
    /// draw from the random numbers of the shadow.
    #[cold]
    #[inline(never)]
    fn compare_with_other(
        &self,
        prepared: &PreparedRequest<'_>,
        other: &PickAddresses,
        view: &DecisionInput<'_>,
        draws: &mut Draws,
    ) -> (Decision, Option<Compared>) {
        let (pipeline, pick) = (&self.topology().pipeline, other.endpoints_in(view.pool));
        let compared = pipeline.compare(&prepared.own, Acting::Other(&pick), view, &mut draws.shadow);
        (compared.decision, Some(Compared::Other(Box::new(pick), compared.agreement)))
    }

    /// The decision of the shadow about a request on which the acting rules have decided.
    #[cold]
    #[inline(never)]
    fn compare_with_shadow(
        &self,
        prepared: &Prepared<'_>,
        decision: &Decision,
        view: &DecisionInput<'_>,
        draws: &mut Draws,
    ) -> Option<Compared> {
        let Topology { pipeline, shadow, .. } = &**self.topology();
        let (shadow, acting) = (shadow.as_ref()?.pipeline(), Acting::Pipeline(pipeline, decision));
        Some(Compared::Shadow(Box::new(shadow.compare(prepared, acting, view, &mut draws.shadow))))
    }
}

/// Adds the records of a shadow, which reserves no load: its plugins record where the request really goes,
/// and learn from the response.
#[cold]
#[inline(never)]
fn add_records_of_shadow(records: &mut Records, changes: &mut ChangeList, shadow: &mut Records) {
    changes.extend(core::mem::take(&mut shadow.changes).into_iter().map(Change::State));
    records.expectations.append(&mut shadow.expectations);
    records.usage_predictions.append(&mut shadow.usage_predictions);
    records.sent_prompts.append(&mut shadow.sent_prompts);
}
