//! What our rules make of a case, without Envoy: every endpoint that chance may choose, and the totals.

use super::case::{Case, Refusal, Request, ServerState};
use crate::parity::setup::Setup;
use anyhow::{Result, ensure};
use endpoint_picker::body::{Body, BodyError, request_path};
use endpoint_picker::cycle::{self, Headers, Load, View};
use endpoint_picker::decision::{Decision, Outcome, Reservation};
use endpoint_picker::explanation::Explanation;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::plugin_state::{Event, PluginStates};
use endpoint_picker::pool::{Endpoint, Pool};
use endpoint_picker::reading::{Lora, Reading};
use endpoint_picker::rejection::Rejection;
use endpoint_picker::rng::SplitMix64;
use endpoint_picker::subset::Subset;
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;

/// Totals this close are equal: sums of the same resolution in another order differ by less.
pub const SAME_SCORE: f64 = 1e-9;

/// Any moment will do; all readings are of the same one.
const NOW: Duration = Duration::from_secs(1_000);

/// Our picker's rules with what they remember.
#[derive(Debug)]
pub struct Ours {
    pipeline: Pipeline,
    pool: Pool,
    states: PluginStates,
    in_flight: Vec<Load>,
}

/// What our rules say of a case.
#[derive(Clone, Debug)]
pub struct Opinion {
    /// What may come of it.
    pub expected: Expected,
    /// Why, endpoint by endpoint.
    pub explanation: String,
    /// What is remembered when the best endpoint is chosen, and what the request adds to its load.
    events: Vec<Event>,
    reservations: Vec<Reservation>,
}

/// What may come of a case.
#[derive(Clone, Debug, PartialEq)]
pub enum Expected {
    /// One of the best endpoints serves.
    Served {
        /// The best, in the pool's order.
        best: Vec<usize>,
        /// Everybody's total; empty when nobody was rated.
        totals: BTreeMap<usize, f64>,
    },
    /// We answer.
    Refused(Refusal),
}

impl Ours {
    /// The rules of a setup, which remember nothing yet.
    pub fn new(setup: &Setup) -> Result<Self> {
        let pipeline = Pipeline::compile(setup.picker_config()?)?;
        let endpoints = (0..setup.servers).map(|index| {
            let labels = setup.labels(index);
            Endpoint::new(format!("default/{}", Setup::endpoint_name(index)), address(index), labels)
        });
        let pool = Pool::new("default".to_owned(), endpoints.collect())?;
        Ok(Self {
            states: pipeline.new_states(),
            in_flight: vec![Load::default(); setup.servers],
            pipeline,
            pool,
        })
    }

    /// Sends the requests that are held while the case's own is decided, in the place of those of the case before.
    pub fn hold(&mut self, case: &Case) -> Result<()> {
        self.in_flight.fill(Load::default());
        for server in case.holders() {
            let held = Case { request: Request::held(server), ..case.clone() };
            let opinion = self.judge(&held)?;
            self.remember(&opinion);
            for reservation in &opinion.reservations {
                let load = &mut self.in_flight[reservation.endpoint];
                load.requests += reservation.prefill.requests + reservation.response.requests;
                load.tokens += reservation.prefill.tokens + reservation.response.tokens;
            }
        }
        Ok(())
    }

    /// What our rules say of a case's request; nothing is remembered.
    pub fn judge(&self, case: &Case) -> Result<Opinion> {
        ensure!(case.servers.len() == self.pool.endpoints().len(), "every server has a state");
        let readings: Vec<Reading> = case.servers.iter().map(reading).collect();
        let view = View {
            pool: &self.pool,
            readings: &readings,
            readings_arrived: NOW,
            in_flight: &self.in_flight,
            avoided: &[],
            states: &self.states,
        };
        let mut headers: Vec<(String, Vec<u8>)> =
            vec![(":path".to_owned(), case.request.path.clone().into())];
        headers.extend(case.request.headers.iter().map(|(name, value)| (name.clone(), value.clone().into())));
        let request = cycle::Request {
            headers: Headers(&headers),
            subset: subset(&case.request),
            ..cycle::Request::default()
        };
        let mut rng = SplitMix64::new(0);
        let Some(text) = &case.request.body else {
            let decision = self.pipeline.decide_without_body(&request, &view, NOW, &mut rng);
            let candidates = (0..self.pool.endpoints().len())
                .filter(|&endpoint| request.subset.allows(&self.pool.endpoints()[endpoint]));
            return Ok(opinion(&decision, candidates.collect(), String::from("no body, any candidate")));
        };
        let body = match self.read(&case.request.path, request.headers, text) {
            Ok(body) => body,
            Err(error) => {
                let refusal = refusal(&error.into());
                let explanation = String::from("the body is refused");
                return Ok(Opinion {
                    expected: Expected::Refused(refusal),
                    explanation,
                    events: vec![],
                    reservations: vec![],
                });
            }
        };
        let request = cycle::Request {
            model: body.model.as_deref().unwrap_or_default(),
            cache_salt: body.cache_salt.as_deref(),
            prompt: Some(&body.prompt),
            max_output_tokens: body.max_output_tokens,
            ..request
        };
        let decision = self.pipeline.decide(&request, &view, NOW, &mut rng);
        let explanation = Explanation::of(&decision, &self.pipeline, &request, &view, NOW).to_string();
        Ok(opinion(&decision, vec![], explanation))
    }

    /// Remembers a decision that had no alternative.
    ///
    /// # Panics
    ///
    /// When chance would decide what is remembered: see [`Opinion::is_forced`].
    pub fn remember(&mut self, opinion: &Opinion) {
        assert!(
            opinion.is_forced() || opinion.events.is_empty(),
            "chance must not decide what is remembered"
        );
        for event in &opinion.events {
            self.states.apply(event);
        }
    }

    fn read<'a>(&self, path: &str, headers: Headers<'_>, text: &'a str) -> Result<Body<'a>, BodyError> {
        let api = self.pipeline.api(request_path(Some(path), None, None))?;
        let options = self.pipeline.body_options(headers);
        let body = Body::read_bytes(text.as_bytes(), api, &options)?;
        if api.names_model() && body.model.is_none() { Err(BodyError::NoModel) } else { Ok(body) }
    }
}

impl Opinion {
    /// Whether chance has no part in it, so that both pickers remember the same afterwards.
    pub fn is_forced(&self) -> bool {
        !matches!(&self.expected, Expected::Served { best, .. } if best.len() > 1)
    }

    /// Whether something is remembered of it.
    pub fn leaves_traces(&self) -> bool {
        !self.events.is_empty()
    }
}

/// The address a server has in our rules and in recordings; where it really listens is the stage's matter.
fn address(server: usize) -> SocketAddr {
    let port = u16::try_from(8_000 + server).unwrap_or(u16::MAX);
    SocketAddr::from(([10, 0, 0, 1], port))
}

fn subset(request: &Request) -> Subset {
    request.subset.as_ref().map_or(Subset::All, |servers| {
        let addresses: Vec<String> = servers.iter().map(|&server| address(server).to_string()).collect();
        Subset::from_items(addresses.iter().map(String::as_str))
    })
}

fn reading(state: &ServerState) -> Reading {
    Reading {
        ready: true,
        updated: Some(NOW),
        waiting: Some(state.waiting),
        running: Some(state.running),
        kv_usage: Some(state.kv),
        lora: state.lora.as_ref().map(|lora| Lora {
            running: lora.running.clone(),
            waiting: lora.waiting.clone(),
            max: lora.max,
        }),
        block_size: state.cache.map(|(block_size, _)| block_size),
        num_blocks: state.cache.map(|(_, blocks)| blocks),
        ..Reading::default()
    }
}

fn opinion(decision: &Decision, unrated: Vec<usize>, explanation: String) -> Opinion {
    let expected = match &decision.outcome {
        Outcome::Reject(rejection) => Expected::Refused(refusal(rejection)),
        _ => served(decision, unrated),
    };
    Opinion {
        expected,
        explanation,
        events: decision.events.clone(),
        reservations: decision.reservations.clone(),
    }
}

fn served(decision: &Decision, unrated: Vec<usize>) -> Expected {
    let Some(run) = decision.primary_run() else {
        return Expected::Served { best: unrated, totals: BTreeMap::new() };
    };
    let totals: BTreeMap<usize, f64> = run.scored.iter().copied().zip(run.totals.iter().copied()).collect();
    let highest = totals.values().copied().fold(f64::NEG_INFINITY, f64::max);
    let is_best = |(_, total): &(&usize, &f64)| highest - **total < SAME_SCORE;
    Expected::Served { best: totals.iter().filter(is_best).map(|(&server, _)| server).collect(), totals }
}

fn refusal(rejection: &Rejection) -> Refusal {
    Refusal {
        status: rejection.code.status(),
        reason: rejection.reason.map(|reason| reason.as_str().to_owned()),
        message: rejection.message.clone().into_owned(),
    }
}
