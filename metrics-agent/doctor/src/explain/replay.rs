//! Decides requests again, in a pool as a recorded snapshot describes it.

use core::time::Duration;
use std::net::SocketAddr;
use std::sync::Arc;

use endpoint_picker::decision::rejection::Rejection;
use endpoint_picker::decision::shadow::ShadowDecision;
use endpoint_picker::decision::{Decision, Outcome};
use endpoint_picker::flow_control::FALLBACK_PRIORITY;
use endpoint_picker::headers::Headers;
use endpoint_picker::input::DecisionInput;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::pool::{Endpoint, Endpoints};
use endpoint_picker::request::body::{Api, Body, request_path};
use endpoint_picker::request::subset::Subset;
use endpoint_picker::request::{ModelResolution, Request};
use endpoint_picker::rng::SplitMix64;
use endpoint_picker_engine::ledger::{Change, LedgerStore, LocalLedger, changes_of};
use endpoint_picker_engine::pool_view::{PoolView, Topology};
use endpoint_picker_wire::{shadow_into_core, v1};
use metrics_agent_status::queues::status::{BandStatus, QueueStatus};

use super::{DRAWS, DecisionReport, ExplainError, ExplainedChoice, RecordedRequest, ShadowReport};

/// Any time that is larger than the readings' ages.
const NOW: Duration = Duration::from_secs(u32::MAX as u64);

/// A pool in the state of a filter that has just started.
pub(super) struct ReplayedPool {
    view: PoolView,
    /// Why the shadow configuration is left out, as a filter leaves it out.
    shadow_refusal: Option<String>,
    ledger: LocalLedger,
}

impl ReplayedPool {
    pub(super) fn of(mut snapshot: v1::Snapshot) -> Result<Self, String> {
        let message = snapshot.topology.take().unwrap_or_default();
        let mut policy = message.policy.clone().unwrap_or_default();
        let topology = Topology::compile(message).map_err(|error| error.to_string())?;
        // A topology with an invalid shadow compiles without it and does not keep the error, so the shadow is
        // compiled again.
        let shadow_refusal = shadow_into_core(&mut policy, &topology.pipeline).err();
        let mut ledger = LocalLedger::default();
        ledger.adopt(Arc::clone(&topology.pool), topology.pipelines(), topology.policy.avoid_failing);
        Ok(Self {
            view: PoolView::new(Arc::new(topology), snapshot, NOW),
            shadow_refusal: shadow_refusal.map(|error| error.to_string()),
            ledger,
        })
    }

    pub(super) fn pool(&self) -> &Endpoints {
        self.view.pool()
    }

    /// The queues as a request of this priority would meet them, as the proxies have reported; `None`: it
    /// would be dispatched at once.
    pub(super) fn forecast(&self, queue: &QueueStatus, priority: i32) -> Option<String> {
        forecast(queue, priority, self.view.topology().pipeline.limits_sessions())
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
            let addresses: Vec<_> = pool.as_slice().iter().map(Endpoint::printed_address).collect();
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
        changes
            .extend(shadow.into_iter().flat_map(|shadow| shadow.decision.records.changes).map(Change::State));
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
        let mut draws = vec![0; self.pool().as_slice().len()];
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
        let choice = |decision: Decision, pipeline: &Pipeline, draws| ExplainedChoice {
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
        if let Some(rejection) = self.view.policy().refused() {
            return Err(rejection);
        }
        let path = request_path(Some(path), headers);
        let api = self.view.topology().pipeline.api(path)?;
        match Body::read_bytes(body, api, &self.view.body_options(headers)) {
            Ok(body) => Ok(ParsedBody { api, body }),
            Err(_) if self.view.policy().passes_unread(api, headers) => {
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
        let mut acting = pipeline.decide(&request, &view, NOW, &mut rng);
        pipeline.add_details(&mut acting, &pipeline.prepare(&request, &view, NOW), &view);
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

/// The queues as a request of this priority would meet them; `None`: it would be dispatched at once.
/// `limits_sessions`: only sessions that are not in work wait, and the saturation lets none wait.
fn forecast(queue: &QueueStatus, priority: i32, limits_sessions: bool) -> Option<String> {
    let band_of = |priority: i32| queue.bands.iter().find(|band| band.priority == priority);
    let band = band_of(priority).or_else(|| band_of(FALLBACK_PRIORITY))?;
    if band.requests >= band.max_requests {
        let BandStatus { priority, requests, .. } = band;
        return Some(format!(
            "would be rejected: the {requests} requests that may wait in band {priority} do"
        ));
    }
    let is_ahead = |other: &&BandStatus| other.priority > band.priority && other.requests > 0;
    let mut ahead: Vec<&BandStatus> = queue.bands.iter().filter(is_ahead).collect();
    let is_saturated = !limits_sessions && queue.saturation.is_some_and(|saturation| saturation >= 1.0);
    if ahead.is_empty() && band.requests == 0 && !is_saturated {
        return None;
    }
    ahead.push(band);
    let ahead = ahead.iter().map(|band| format!("{} of band {}", band.requests, band.priority));
    let ahead = ahead.collect::<Vec<_>>().join(" and ");
    let condition = if limits_sessions { "if its session is not in work, " } else { "" };
    Some(format!("{condition}would wait behind {ahead}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue with this many waiting requests in the bands 5, 0 and -1, of which each may have 20.
    fn queue(saturation: f64, waiting: [u64; 3]) -> QueueStatus {
        let band = |(priority, requests)| BandStatus {
            priority,
            requests,
            max_requests: 20,
            ..BandStatus::default()
        };
        QueueStatus {
            saturation: Some(saturation),
            bands: [5, 0, -1].into_iter().zip(waiting).map(band).collect(),
            ..QueueStatus::default()
        }
    }

    #[track_caller]
    fn assert_forecast(queue: &QueueStatus, priority: i32, expected: &str) {
        assert_eq!(forecast(queue, priority, false).unwrap_or_default(), expected);
    }

    #[test]
    fn a_request_waits_behind_its_band_and_higher_ones() {
        let full = queue(1.2, [3, 12, 20]);
        assert_forecast(&full, 5, "would wait behind 3 of band 5");
        assert_forecast(&full, 0, "would wait behind 3 of band 5 and 12 of band 0");
        assert_forecast(&full, 7, "would wait behind 3 of band 5 and 12 of band 0");
        assert_forecast(&full, -1, "would be rejected: the 20 requests that may wait in band -1 do");
    }

    #[test]
    fn while_nothing_waits_only_a_saturated_pool_holds_a_request() {
        assert_forecast(&queue(0.9, [0, 0, 4]), 0, "");
        assert_forecast(&queue(1.0, [0, 0, 0]), 0, "would wait behind 0 of band 0");
        assert_forecast(&QueueStatus::default(), 0, "");
    }

    #[test]
    fn where_sessions_are_limited_only_those_that_wait_are_in_the_way() {
        assert_eq!(forecast(&queue(7.0, [0, 0, 0]), 0, true), None);
        let expected = "if its session is not in work, would wait behind 3 of band 0";
        assert_eq!(forecast(&queue(0.0, [0, 3, 0]), 0, true).unwrap(), expected);
    }
}
