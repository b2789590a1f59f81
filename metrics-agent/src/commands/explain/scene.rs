//! A pool as a recorded snapshot tells it, and decisions in it.

use core::time::Duration;
use std::net::SocketAddr;

use endpoint_picker::body::{Api, Body, Options, request_path};
use endpoint_picker::cycle::{Headers, Request, View};
use endpoint_picker::decision::{Decision, Outcome};
use endpoint_picker::explanation::Explanation;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::plugin_state::PluginStates;
use endpoint_picker::policy::{ModelResolution, Policy};
use endpoint_picker::pool::{Endpoint, Pool};
use endpoint_picker::reading::Reading;
use endpoint_picker::rejection::Rejection;
use endpoint_picker::rng::SplitMix64;
use endpoint_picker::shadow::{Shadow, ShadowDecision};
use endpoint_picker::subset::Subset;
use endpoint_picker_wire::{
    pipeline_into_core, policy_into_core, reading_into_core, shadow_into_core, topology_into_core, v1,
};

use super::result::{Choice, DRAWS, DecisionReport, ExplainError, RecordedRequest, ShadowReport};

/// Any moment will do, as long as ages fit in before it.
const NOW: Duration = Duration::from_secs(u32::MAX as u64);

/// A pool as a filter knows it that has just started.
pub(super) struct Scene {
    pub(super) pool: Pool,
    pipeline: Pipeline,
    /// A configuration on trial, or why it is left out, as a filter would leave it out.
    shadow: Option<Result<Shadow, String>>,
    policy: Policy,
    readings: Vec<Reading>,
    states: PluginStates,
}

impl Scene {
    pub(super) fn of(snapshot: v1::Snapshot) -> Result<Self, String> {
        let mut topology = snapshot.topology.unwrap_or_default();
        let mut policy = topology.policy.take().unwrap_or_default();
        let pipeline = pipeline_into_core(&mut policy).map_err(|error| error.to_string())?;
        let shadow = shadow_into_core(&mut policy, &pipeline).map_err(|error| error.to_string()).transpose();
        let tried = shadow.as_ref().and_then(|shadow| shadow.as_ref().ok());
        let mut states = PluginStates::default();
        states.adopt(
            core::iter::once(&pipeline).chain(tried.map(Shadow::pipeline)).flat_map(Pipeline::initial_states),
        );
        Ok(Self {
            pool: topology_into_core(topology).map_err(|error| error.to_string())?,
            policy: policy_into_core(policy),
            readings: snapshot.readings.into_iter().map(|it| reading_into_core(it, NOW)).collect(),
            states,
            pipeline,
            shadow,
        })
    }

    /// Remembers a request that went to `endpoint`.
    pub(super) fn remember(
        &mut self,
        asked: &RecordedRequest,
        headers: Headers<'_>,
        body: &[u8],
        endpoint: SocketAddr,
    ) -> Result<(), ExplainError> {
        let wrong = |problem: String| ExplainError(format!("--after …={endpoint}: {problem}"));
        if self.pool.index_at(endpoint).is_none() {
            let addresses: Vec<_> = self.pool.endpoints().iter().map(Endpoint::printed_address).collect();
            return Err(wrong(format!("the pool has no such endpoint; allowed: {}", addresses.join(", "))));
        }
        let subset = Subset::Only([endpoint].into_iter().collect());
        let decided = self
            .read(&asked.path, headers, body)
            .and_then(|read| self.decide(&read, headers, &subset, asked.seed).map(Drawn::what));
        match decided {
            Ok((Decision { outcome: Outcome::Route(_), events, .. }, opinion)) => {
                let tried = opinion.into_iter().flat_map(|opinion| opinion.decision.events);
                for event in events.into_iter().chain(tried) {
                    self.states.apply(&event);
                }
                Ok(())
            }
            Ok((Decision { outcome: Outcome::Reject(rejection), .. }, _)) | Err(rejection) => {
                Err(wrong(format!("the request is answered {rejection}")))
            }
            Ok(_) => Err(wrong("the request is not decided".to_owned())),
        }
    }

    pub(super) fn tell(
        &self,
        asked: &RecordedRequest,
        headers: Headers<'_>,
    ) -> Result<DecisionReport, Rejection> {
        let read = self.read(&asked.path, headers, &asked.body)?;
        let Drawn { resolution, decision, opinion } =
            self.decide(&read, headers, &asked.subset, asked.seed)?;
        let mut draws = vec![0; self.pool.endpoints().len()];
        let (mut tried_draws, mut agreed) = (draws.clone(), 0);
        for seed in (1..=DRAWS).map(|draw| asked.seed.wrapping_add(draw)) {
            let Ok(drawn) = self.decide(&read, headers, &asked.subset, seed) else { continue };
            count(&mut draws, &drawn.decision);
            if let Some(opinion) = drawn.opinion {
                count(&mut tried_draws, &opinion.decision);
                agreed += u64::from(opinion.agrees);
            }
        }
        let request = Request::new(&read.body, resolution, headers, asked.subset.clone());
        let choice = |decision: Decision, pipeline: &Pipeline, draws| Choice {
            explanation: Explanation::of(&decision, pipeline, &request, &self.view(), NOW),
            headers: decision.headers,
            draws,
        };
        let shadow = self.shadow.as_ref().map(|shadow| {
            let shadow = shadow.as_ref().map_err(String::clone)?;
            let ShadowDecision { decision, agrees } = opinion.ok_or("it was not tried")?;
            Ok(ShadowReport { choice: choice(decision, shadow.pipeline(), tried_draws), agrees, agreed })
        });
        Ok(DecisionReport {
            requested_model: read.body.model.as_deref().map(str::to_owned),
            model: resolution.model.to_owned(),
            priority: resolution.priority,
            prompt_tokens: request.input_tokens(),
            acting: choice(decision, &self.pipeline, draws),
            shadow,
        })
    }

    fn read<'a>(&self, path: &str, headers: Headers<'_>, body: &'a [u8]) -> Result<Read<'a>, Rejection> {
        let path = request_path(Some(path), headers.get("x-original-path"), headers.get("x-forwarded-path"));
        let api = self.pipeline.api(path);
        let options = self.pipeline.body_options(headers);
        let tried = self.shadow().map_or(0, |shadow| shadow.pipeline().max_prompt_bytes());
        let options = Options { keep_bytes: options.keep_bytes.max(tried), ..options };
        let read = api.and_then(|api| {
            let body = Body::read_bytes(body, api, &options)?;
            Ok(Read { api, body })
        });
        read.map_err(Rejection::from)
    }

    fn decide<'a>(
        &'a self,
        read: &'a Read<'_>,
        headers: Headers<'a>,
        subset: &Subset,
        seed: u64,
    ) -> Result<Drawn<'a>, Rejection> {
        let mut rng = SplitMix64::new(seed);
        let resolution = self.policy.resolve_at(read.api, headers, read.body.model.as_deref(), &mut rng)?;
        let request = Request::new(&read.body, resolution, headers, subset.clone());
        let view = self.view();
        let decision = self.pipeline.decide(&request, &view, NOW, &mut rng);
        // A generator of its own, so that a shadow changes nothing.
        let rng = &mut SplitMix64::new(!seed);
        let acted = (&self.pipeline, &decision);
        let opinion = self.shadow().map(|shadow| shadow.decide(acted, &request, &view, NOW, rng));
        Ok(Drawn { resolution, decision, opinion })
    }

    fn shadow(&self) -> Option<&Shadow> {
        self.shadow.as_ref()?.as_ref().ok()
    }

    fn view(&self) -> View<'_> {
        View {
            pool: &self.pool,
            readings: &self.readings,
            readings_arrived: NOW,
            in_flight: &[],
            avoided: &[],
            states: &self.states,
        }
    }
}

/// A body and the API it belongs to.
struct Read<'a> {
    api: Api,
    body: Body<'a>,
}

/// What was decided, and what the shadow would have done.
struct Drawn<'a> {
    resolution: ModelResolution<'a>,
    decision: Decision,
    opinion: Option<ShadowDecision>,
}

impl Drawn<'_> {
    fn what(self) -> (Decision, Option<ShadowDecision>) {
        (self.decision, self.opinion)
    }
}

fn count(draws: &mut [u64], decision: &Decision) {
    if let Some(endpoint) = decision.destination() {
        draws[endpoint] += 1;
    }
}
