//! A pool in use: the core with everything that changes around it.

use core::time::Duration;
use std::collections::VecDeque;

use endpoint_picker::body::{Api, Body};
use endpoint_picker::decision::Decision;
use endpoint_picker::headers::Headers;
use endpoint_picker::load::Load;
use endpoint_picker::load::Reservation;
use endpoint_picker::period::Period;
use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::pool::Pool;
use endpoint_picker::reading::Reading;
use endpoint_picker::request::Request;
use endpoint_picker::rng::SplitMix64;
use endpoint_picker::state::PluginStates;
use endpoint_picker::subset::Subset;
use endpoint_picker::view::View;
use serde_json::{Value, json};

use crate::document::{for_core, neutral_score_after};
use crate::rules::Situation;
use crate::world::{Prompt, RequestSpec, Step};

pub(crate) struct Fixture {
    pipeline: Pipeline,
    pool: Pool,
    readings: Vec<Reading>,
    loads: Vec<Load>,
    avoided: Vec<bool>,
    pub(crate) states: PluginStates,
    now: Duration,
    readings_arrived: Duration,
    /// What the requests in flight cost still, oldest first.
    in_flight: VecDeque<Vec<Reservation>>,
}

impl Fixture {
    pub(crate) fn new(document: &Value, pool: Pool) -> Self {
        let pipeline =
            Pipeline::compile(for_core(document)).unwrap_or_else(|error| panic!("{error}: {document}"));
        let pipeline = pipeline.with_neutral_score_after(neutral_score_after(document));
        let now = Duration::from_secs(1_000);
        let endpoints = pool.endpoints().len();
        Self {
            states: pipeline.new_states(),
            pipeline,
            pool,
            readings: vec![Reading { ready: true, ..Reading::default() }; endpoints],
            loads: vec![Load::default(); endpoints],
            avoided: vec![false; endpoints],
            now,
            readings_arrived: now,
            in_flight: VecDeque::new(),
        }
    }

    /// What happens before the step's request.
    pub(crate) fn advance(&mut self, step: &Step) {
        self.now += step.passes;
        for (endpoint, avoided) in self.avoided.iter_mut().enumerate() {
            *avoided = step.failed.contains(&endpoint);
        }
        if !step.silence {
            self.readings_arrived = self.now;
            for (endpoint, reading, age) in &step.updates {
                let endpoint = endpoint % self.readings.len();
                let updated = age.map(|age| self.now.saturating_sub(age));
                self.readings[endpoint] = Reading { updated, ..reading.clone() };
            }
        }
        for reservation in self.in_flight.iter_mut().take(step.begin).flatten() {
            let load = core::mem::take(&mut reservation.prefill);
            subtract(&mut self.loads[reservation.endpoint], load);
        }
        for _ in 0..step.end {
            for reservation in self.in_flight.pop_front().into_iter().flatten() {
                subtract(&mut self.loads[reservation.endpoint], reservation.prefill);
                subtract(&mut self.loads[reservation.endpoint], reservation.response);
            }
        }
    }

    /// Takes over what `other` has, whose endpoints are the same; `order[at]` is the place there of what is `at` here.
    pub(crate) fn look_like(&mut self, other: &Self, order: &[usize]) {
        self.now = other.now;
        self.readings_arrived = other.readings_arrived;
        self.readings = order.iter().map(|&endpoint| other.readings[endpoint].clone()).collect();
        self.loads = order.iter().map(|&endpoint| other.loads[endpoint]).collect();
        self.avoided = order.iter().map(|&endpoint| other.avoided[endpoint]).collect();
    }

    pub(crate) fn situation(&self) -> Situation<'_> {
        Situation {
            pool: &self.pool,
            readings: &self.readings,
            readings_arrived: self.readings_arrived,
            now: self.now,
            loads: &self.loads,
            avoided: &self.avoided,
        }
    }

    pub(crate) fn decide(&self, spec: &RequestSpec, seed: u64) -> Decision {
        self.with_request(spec, |request, view| {
            self.pipeline.decide(request, view, self.now, &mut SplitMix64::new(seed))
        })
    }

    pub(crate) fn decide_without_body(&self, spec: &RequestSpec, seed: u64) -> Decision {
        self.with_request(spec, |request, view| {
            self.pipeline.decide_without_body(request, view, self.now, &mut SplitMix64::new(seed))
        })
    }

    /// Sends the request where it was routed.
    pub(crate) fn send(&mut self, decision: &Decision) {
        for event in &decision.events {
            self.states.apply(event);
        }
        for reservation in &decision.reservations {
            for load in [reservation.prefill, reservation.response] {
                self.loads[reservation.endpoint].requests += load.requests;
                self.loads[reservation.endpoint].tokens += load.tokens;
            }
        }
        self.in_flight.push_back(decision.reservations.clone());
    }

    fn with_request<T>(&self, spec: &RequestSpec, use_it: impl FnOnce(&Request<'_>, &View<'_>) -> T) -> T {
        let body = json_body(&spec.prompt);
        let options = self.pipeline.body_options(Headers(&spec.headers));
        let body = body.as_ref().map(|(api, json)| Body::read(json, *api, &options).unwrap());
        let request = Request {
            model: spec.model,
            cache_salt: spec.salt,
            prompt: body.as_ref().map(|body| &body.prompt),
            max_output_tokens: spec.max_output_tokens,
            headers: Headers(&spec.headers),
            subset: match &spec.subset {
                Some(listed) => Subset::from_items(listed.iter().map(String::as_str)),
                None => Subset::All,
            },
            priority: spec.priority,
        };
        let period = |&avoided: &bool| Period::new(self.now, Duration::from_nanos(avoided.into()));
        let avoided: Vec<Period> = self.avoided.iter().map(period).collect();
        let view = View {
            pool: &self.pool,
            readings: &self.readings,
            readings_arrived: self.readings_arrived,
            in_flight: &self.loads,
            avoided: &avoided,
            states: &self.states,
        };
        use_it(&request, &view)
    }
}

fn subtract(load: &mut Load, less: Load) {
    load.requests -= less.requests;
    load.tokens -= less.tokens;
}

fn json_body(prompt: &Prompt) -> Option<(Api, String)> {
    let (api, body) = match prompt {
        Prompt::Nothing => return None,
        Prompt::Texts(texts) if texts.len() == 1 => (Api::Completions, json!({"prompt": texts[0]})),
        Prompt::Texts(texts) => (Api::Completions, json!({"prompt": texts})),
        Prompt::Ids(ids) => (Api::Completions, json!({"prompt": ids})),
        Prompt::Image { text, url } => {
            let image = json!({"type": "image_url", "image_url": {"url": url}});
            let content = json!([{"type": "text", "text": text}, image]);
            (Api::Chat, json!({"messages": [{"role": "user", "content": content}]}))
        }
    };
    Some((api, body.to_string()))
}
