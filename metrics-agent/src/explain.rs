//! A recorded request, decided again by the filter's own rules, with a snapshot and nothing else to go by:
//! `metrics-agent explain`.

mod table;

use core::fmt;
use core::time::Duration;
use std::net::SocketAddr;

use endpoint_picker::body::{Api, Body, request_path};
use endpoint_picker::cycle::{Headers, Request, View};
use endpoint_picker::decision::{Decision, Outcome};
use endpoint_picker::explanation::Explanation;
use endpoint_picker::memory::Memories;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::policy::{Policy, Terms};
use endpoint_picker::pool::{Endpoint, Pool};
use endpoint_picker::reading::Reading;
use endpoint_picker::rejection::Rejection;
use endpoint_picker::rng::SplitMix64;
use endpoint_picker::subset::Subset;
use endpoint_picker_json::SerdeJson;
use endpoint_picker_wire::{pipeline_into_core, policy_into_core, reading_into_core, topology_into_core, v1};

/// How often the request is decided to tell how likely each choice is.
const DRAWS: u64 = 1000;

/// Any moment will do, as long as ages fit in before it.
const NOW: Duration = Duration::from_secs(u32::MAX as u64);

/// A request as a client sent it.
#[derive(Clone, Debug)]
pub struct Asked {
    /// With its query, if it had one.
    pub path: String,
    /// Names in lower case.
    pub headers: Vec<(String, Vec<u8>)>,
    /// What an earlier filter restricts the choice to.
    pub subset: Subset,
    /// The whole body.
    pub body: Vec<u8>,
    /// Bodies that went to an endpoint before.
    pub before: Vec<(Vec<u8>, SocketAddr)>,
    /// What chance makes of it.
    pub seed: u64,
}

/// What becomes of a request, and why.
#[derive(Clone, Debug)]
pub struct Explained {
    pool: Pool,
    path: String,
    seed: u64,
    told: Told,
}

#[derive(Clone, Debug)]
enum Told {
    /// Refused before there was anything to choose.
    Refused(Rejection),
    Decided {
        asked: Option<String>,
        model: String,
        priority: i32,
        prompt_tokens: u64,
        /// For the destination.
        headers: Vec<(&'static str, String)>,
        explanation: Explanation,
        /// How many of [`DRAWS`] went to each endpoint, in the pool's order.
        draws: Vec<u64>,
    },
}

impl Explained {
    /// Whether the request goes to an endpoint.
    pub fn is_routed(&self) -> bool {
        matches!(&self.told, Told::Decided { explanation, .. } if matches!(explanation.outcome, Outcome::Route(_)))
    }
}

/// Decides a request by a snapshot that has a topology.
pub fn explain(snapshot: v1::Snapshot, asked: &Asked) -> Result<Explained, ExplainError> {
    let mut scene = Scene::of(snapshot).map_err(ExplainError)?;
    let headers = Headers(&asked.headers);
    for (body, endpoint) in &asked.before {
        scene.remember(asked, headers, body, *endpoint)?;
    }
    let told = scene.tell(asked, headers).unwrap_or_else(Told::Refused);
    Ok(Explained { path: asked.path.clone(), seed: asked.seed, pool: scene.pool, told })
}

/// A pool as a filter knows it that has just started.
struct Scene {
    pool: Pool,
    pipeline: Pipeline,
    policy: Policy,
    readings: Vec<Reading>,
    memories: Memories,
}

impl Scene {
    fn of(snapshot: v1::Snapshot) -> Result<Self, String> {
        let mut topology = snapshot.topology.unwrap_or_default();
        let mut policy = topology.policy.take().unwrap_or_default();
        let pipeline = pipeline_into_core(&mut policy).map_err(|error| error.to_string())?;
        Ok(Self {
            pool: topology_into_core(topology).map_err(|error| error.to_string())?,
            policy: policy_into_core(policy),
            readings: snapshot.readings.into_iter().map(|it| reading_into_core(it, NOW)).collect(),
            memories: pipeline.new_memories(),
            pipeline,
        })
    }

    /// Remembers a request that went to `endpoint`.
    fn remember(
        &mut self,
        asked: &Asked,
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
            .and_then(|read| self.decide(&read, headers, &subset, asked.seed).map(|(_, decision)| decision));
        match decided {
            Ok(Decision { outcome: Outcome::Route(_), events, .. }) => {
                for event in &events {
                    self.memories.apply(event);
                }
                Ok(())
            }
            Ok(Decision { outcome: Outcome::Reject(rejection), .. }) | Err(rejection) => {
                Err(wrong(format!("the request is answered {rejection}")))
            }
            Ok(_) => Err(wrong("the request is not decided".to_owned())),
        }
    }

    fn tell(&self, asked: &Asked, headers: Headers<'_>) -> Result<Told, Rejection> {
        let read = self.read(&asked.path, headers, &asked.body)?;
        let (terms, decision) = self.decide(&read, headers, &asked.subset, asked.seed)?;
        let mut draws = vec![0; self.pool.endpoints().len()];
        for seed in (1..=DRAWS).map(|draw| asked.seed.wrapping_add(draw)) {
            let drawn = self.decide(&read, headers, &asked.subset, seed);
            if let Some(endpoint) = drawn.ok().and_then(|(_, decision)| decision.destination()) {
                draws[endpoint] += 1;
            }
        }
        let request = Request::new(&read.body, terms, headers, asked.subset.clone());
        Ok(Told::Decided {
            asked: read.body.model.as_deref().map(str::to_owned),
            model: terms.model.to_owned(),
            priority: terms.priority,
            prompt_tokens: request.input_tokens(),
            explanation: Explanation::of(&decision, &self.pipeline, &request, &self.view(), NOW),
            headers: decision.headers,
            draws,
        })
    }

    fn read<'a>(&self, path: &str, headers: Headers<'_>, body: &'a [u8]) -> Result<Read<'a>, Rejection> {
        let path = request_path(Some(path), headers.get("x-original-path"), headers.get("x-forwarded-path"));
        let api = self.pipeline.api(path);
        let options = self.pipeline.body_options(headers);
        let read = api.and_then(|api| {
            let body = Body::read_bytes::<SerdeJson>(body, api, &options)?;
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
    ) -> Result<(Terms<'a>, Decision), Rejection> {
        let mut rng = SplitMix64::new(seed);
        let terms = self.policy.terms_at(read.api, headers, read.body.model.as_deref(), &mut rng)?;
        let request = Request::new(&read.body, terms, headers, subset.clone());
        Ok((terms, self.pipeline.decide(&request, &self.view(), NOW, &mut rng)))
    }

    fn view(&self) -> View<'_> {
        View {
            pool: &self.pool,
            readings: &self.readings,
            readings_arrived: NOW,
            in_flight: &[],
            avoided_until: &[],
            memories: &self.memories,
        }
    }
}

/// A body and the API it belongs to.
struct Read<'a> {
    api: Api,
    body: Body<'a>,
}

/// Why a request cannot be decided again.
#[derive(Debug)]
pub struct ExplainError(String);

impl fmt::Display for ExplainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for ExplainError {}
