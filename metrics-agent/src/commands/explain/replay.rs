//! Decides requests again, in a pool as a recorded snapshot describes it.

use core::time::Duration;
use std::net::SocketAddr;
use std::sync::Arc;

use endpoint_picker::decision::rejection::Rejection;
use endpoint_picker::decision::shadow::ShadowDecision;
use endpoint_picker::decision::{Decision, Outcome};
use endpoint_picker::headers::Headers;
use endpoint_picker::input::DecisionInput;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::pool::{Endpoint, Pool};
use endpoint_picker::request::ModelResolution;
use endpoint_picker::request::Request;
use endpoint_picker::request::body::{Api, Body, request_path};
use endpoint_picker::request::subset::Subset;
use endpoint_picker::rng::SplitMix64;
use endpoint_picker_engine::ledger::{Change, LedgerStore, LocalLedger, changes_of};
use endpoint_picker_engine::pool_view::{PoolView, Topology};
use endpoint_picker_wire::{shadow_into_core, v1};

use super::result::{Choice, DRAWS, DecisionReport, ExplainError, RecordedRequest, ShadowReport};

/// Any time, as long as the readings' ages fit before it.
const NOW: Duration = Duration::from_secs(u32::MAX as u64);

/// A pool as a filter has it that has just started.
pub(super) struct Replay {
    view: PoolView,
    /// Why the shadow configuration is left out, as a filter leaves it out.
    shadow_refusal: Option<String>,
    ledger: LocalLedger,
}

impl Replay {
    pub(super) fn of(mut snapshot: v1::Snapshot) -> Result<Self, String> {
        let message = snapshot.topology.take().unwrap_or_default();
        let mut policy = message.policy.clone().unwrap_or_default();
        let topology = Topology::compile(message).map_err(|error| error.to_string())?;
        // The compiled topology has no shadow then, and not its error either.
        let shadow_refusal = shadow_into_core(&mut policy, &topology.pipeline).err();
        let mut ledger = LocalLedger::default();
        ledger.adopt(Arc::clone(&topology.pool), topology.pipelines(), topology.policy.avoid_failing);
        Ok(Self {
            view: PoolView::new(Arc::new(topology), snapshot, NOW),
            shadow_refusal: shadow_refusal.map(|error| error.to_string()),
            ledger,
        })
    }

    pub(super) fn pool(&self) -> &Pool {
        self.view.pool()
    }

    /// Records a request that was sent to `endpoint`. Its load is not recorded: it counts as over.
    pub(super) fn record(
        &mut self,
        request: &RecordedRequest,
        headers: Headers<'_>,
        body: &[u8],
        endpoint: SocketAddr,
    ) -> Result<(), ExplainError> {
        let refused = |problem: String| ExplainError(format!("--after …={endpoint}: {problem}"));
        let pool = Arc::clone(self.view.pool());
        if pool.index_at(endpoint).is_none() {
            let addresses: Vec<_> = pool.endpoints().iter().map(Endpoint::printed_address).collect();
            let problem = format!("the pool has no such endpoint; allowed: {}", addresses.join(", "));
            return Err(refused(problem));
        }
        let subset = Subset::Only([endpoint].into_iter().collect());
        let answered = |rejection| refused(format!("the request is answered {rejection}"));
        let parsed = self.parse(&request.path, headers, body).map_err(answered)?;
        let Decisions { mut acting, shadow, .. } =
            self.decide(&parsed, headers, &subset, request.seed).map_err(answered)?;
        match acting.outcome {
            Outcome::Route(_) => {}
            Outcome::Reject(rejection) => return Err(answered(rejection)),
            Outcome::Abstain { .. } => return Err(refused("the request is not decided".to_owned())),
        }
        acting.reservations.clear();
        let mut changes = changes_of(&mut acting, &pool);
        changes.extend(shadow.into_iter().flat_map(|shadow| shadow.decision.changes).map(Change::State));
        self.ledger.apply(changes);
        Ok(())
    }

    /// Decides a request, and once more for each of [`DRAWS`] seeds.
    pub(super) fn explain(
        &self,
        request: &RecordedRequest,
        headers: Headers<'_>,
    ) -> Result<DecisionReport, Rejection> {
        let parsed = self.parse(&request.path, headers, &request.body)?;
        let Decisions { resolution, acting, shadow } =
            self.decide(&parsed, headers, &request.subset, request.seed)?;
        let mut draws = vec![0; self.pool().endpoints().len()];
        let (mut shadow_draws, mut agreed) = (draws.clone(), 0);
        for seed in (1..=DRAWS).map(|draw| request.seed.wrapping_add(draw)) {
            let Ok(decisions) = self.decide(&parsed, headers, &request.subset, seed) else { continue };
            count(&mut draws, &decisions.acting);
            if let Some(shadow) = decisions.shadow {
                count(&mut shadow_draws, &shadow.decision);
                agreed += u64::from(shadow.agreement.agrees());
            }
        }
        let decided = Request::new(&parsed.body, resolution, headers, request.subset.clone());
        let choice = |decision: Decision, pipeline: &Pipeline, draws| Choice {
            explanation: pipeline.explain(&decision, &decided, &self.view(), NOW),
            headers: decision.headers,
            draws,
        };
        let topology = self.view.topology();
        let shadow = match (&topology.shadow, shadow) {
            (Some(rules), Some(ShadowDecision { decision, agreement })) => {
                let choice = choice(decision, rules.pipeline(), shadow_draws);
                Some(Ok(ShadowReport { choice, agrees: agreement.agrees(), agreed }))
            }
            (Some(_), None) | (None, _) => self.shadow_refusal.clone().map(Err),
        };
        Ok(DecisionReport {
            requested_model: parsed.body.model.as_deref().map(str::to_owned),
            model: resolution.model.to_owned(),
            priority: resolution.priority,
            prompt_tokens: decided.input_tokens(),
            acting: choice(acting, &topology.pipeline, draws),
            shadow,
        })
    }

    fn parse<'a>(
        &self,
        path: &str,
        headers: Headers<'_>,
        body: &'a [u8],
    ) -> Result<ParsedBody<'a>, Rejection> {
        let path = request_path(Some(path), headers);
        let api = self.view.topology().pipeline.api(path)?;
        match Body::read_bytes(body, api, &self.view.body_options(headers)) {
            Ok(body) => Ok(ParsedBody { api, body }),
            Err(error) if self.view.policy().passes_unread(api, &error) => {
                Ok(ParsedBody { api, body: Body::default() })
            }
            Err(error) => Err(error.into()),
        }
    }

    fn decide<'a>(
        &'a self,
        parsed: &'a ParsedBody<'_>,
        headers: Headers<'a>,
        subset: &Subset,
        seed: u64,
    ) -> Result<Decisions<'a>, Rejection> {
        let Topology { pipeline, shadow, policy, .. } = &**self.view.topology();
        let mut rng = SplitMix64::new(seed);
        let resolution = policy.resolve_at(parsed.api, headers, parsed.body.model.as_deref(), &mut rng)?;
        let request = Request::new(&parsed.body, resolution, headers, subset.clone());
        let view = self.view();
        let acting = pipeline.decide(&request, &view, NOW, &mut rng);
        // The shadow draws from a generator of its own, so the acting decision is the same without it.
        let rng = &mut SplitMix64::new(!seed);
        let shadow =
            shadow.as_ref().map(|shadow| shadow.decide((pipeline, &acting), &request, &view, NOW, rng));
        Ok(Decisions { resolution, acting, shadow })
    }

    fn view(&self) -> DecisionInput<'_> {
        self.ledger.ledger().input(self.view.readings(), NOW)
    }
}

/// A body with the API that it belongs to.
struct ParsedBody<'a> {
    api: Api,
    body: Body<'a>,
}

/// The decisions about one request.
struct Decisions<'a> {
    resolution: ModelResolution<'a>,
    acting: Decision,
    /// `None` without a shadow.
    shadow: Option<ShadowDecision>,
}

fn count(draws: &mut [u64], decision: &Decision) {
    if let Some(draws) = decision.destination().and_then(|endpoint| draws.get_mut(endpoint)) {
        *draws += 1;
    }
}
