//! A pipeline with a ledger, and readings and time that the test sets.

use core::cell::RefCell;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use endpoint_picker::decision::Decision;
use endpoint_picker::headers::Headers;
use endpoint_picker::input::DecisionInput;
use endpoint_picker::period::Period;
use endpoint_picker::pipeline::shadow::Acting;
use endpoint_picker::pipeline::{Pipeline, Scratch};
use endpoint_picker::pool::Endpoints;
use endpoint_picker::pool::load::Reservation;
use endpoint_picker::pool::reading::Reading;
use endpoint_picker::request::Request;
use endpoint_picker::request::body::{Api, Body};
use endpoint_picker::request::subset::Subset;
use endpoint_picker::rng::SplitMix64;
use endpoint_picker::state::ChangedReadings;
use endpoint_picker::state::latency::{CompleteResponse, Expectation};
use endpoint_picker_engine::ledger::{Change, ChangeList, LedgerStore, LocalLedger, changes_of};
use serde_json::{Value, json};

use crate::document::{for_core, neutral_score_after};
use crate::rules::Situation;
use crate::world::{Prompt, RequestSpec, Step};

pub(crate) struct Fixture {
    pipeline: Pipeline,
    ledger: LocalLedger,
    readings: Vec<Reading>,
    /// The readings that the ledger has observed last.
    observed: Vec<Reading>,
    avoided: Vec<bool>,
    now: Duration,
    readings_arrived: Duration,
    /// The requests in flight, oldest first.
    in_flight: VecDeque<InFlight>,
    /// Memory of the last decision, so that every decision is shown to leave nothing to the next.
    scratch: RefCell<Scratch>,
}

/// Chunks of each response.
pub(crate) const CHUNKS: u64 = 11;

/// A request in flight.
struct InFlight {
    /// Its costs that are left.
    reservations: Vec<Reservation>,
    expectations: Vec<Expectation>,
    at: Duration,
    answered: Option<Duration>,
}

impl Fixture {
    pub(crate) fn new(document: &Value, pool: Endpoints) -> Self {
        let pipeline =
            Pipeline::compile(for_core(document)).unwrap_or_else(|error| panic!("{error}: {document}"));
        let pipeline = pipeline.with_neutral_score_after(neutral_score_after(document));
        let now = Duration::from_secs(1_000);
        let endpoints = pool.as_slice().len();
        let mut ledger = LocalLedger::default();
        ledger.adopt(Arc::new(pool), [&pipeline], Duration::ZERO);
        Self {
            pipeline,
            ledger,
            readings: vec![Reading { ready: true, ..Reading::default() }; endpoints],
            observed: vec![],
            avoided: vec![false; endpoints],
            now,
            readings_arrived: now,
            in_flight: VecDeque::new(),
            scratch: RefCell::default(),
        }
    }

    /// Events before the step's request. Returns the changes of the ledger.
    pub(crate) fn advance(&mut self, step: &Step) -> Vec<Change> {
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
        let (mut ended, mut changes) = (Vec::new(), Vec::new());
        for request in self.in_flight.iter_mut().take(step.begin).filter(|request| request.answered.is_none())
        {
            request.answered = Some(self.now);
            for reservation in &mut request.reservations {
                ended.push((reservation.endpoint, core::mem::take(&mut reservation.prefill)));
            }
            let took = self.now.checked_sub(request.at);
            // The destination responds, and not an endpoint that computes the prompt for it.
            let by = request.expectations.first().map(Expectation::endpoint);
            let took = |expected: &Expectation| took.filter(|_| by == Some(expected.endpoint()));
            request.expectations.retain(|expected| {
                changes.push(expected.answered(self.now, took(expected)));
                if expected.is_prefill() {
                    changes.push(expected.ended(self.now, true, None));
                }
                !expected.is_prefill()
            });
        }
        for request in self.in_flight.drain(..step.end.min(self.in_flight.len())) {
            for reservation in request.reservations {
                let loads = [reservation.prefill, reservation.response];
                ended.extend(loads.map(|load| (reservation.endpoint, load)));
            }
            let response = request.answered.map(|answered| CompleteResponse {
                whole: self.now.saturating_sub(request.at),
                rest: Some(self.now.saturating_sub(answered)),
                chunks: CHUNKS,
                by: request.expectations.first().map(Expectation::endpoint),
            });
            let over =
                |expected: &Expectation| expected.ended(self.now, response.is_some(), response.as_ref());
            changes.extend(request.expectations.iter().map(over));
        }
        let endpoints = self.ledger.ledger().pool().as_slice();
        let ended = ended.into_iter();
        let ended = ended.filter_map(|(endpoint, load)| Change::ended(endpoints[endpoint].key(), load));
        let changes: Vec<Change> = changes.into_iter().map(Change::State).chain(ended).collect();
        self.ledger.apply(changes.clone().into());
        self.observe();
        changes
    }

    /// Takes in the readings, of which others than those observed last are changed.
    fn observe(&mut self) {
        let places: Vec<usize> =
            (0..self.readings.len()).filter(|&at| self.observed.get(at) != self.readings.get(at)).collect();
        let is_as_long = self.observed.len() == self.readings.len();
        let changed = if is_as_long { ChangedReadings::At(&places) } else { ChangedReadings::All };
        self.ledger.observe(&self.readings, changed);
        self.observed.clone_from(&self.readings);
    }

    fn pool(&self) -> &Endpoints {
        self.ledger.ledger().pool()
    }

    /// Takes over what `other` has, whose endpoints are the same; `order[at]` is the place there of what is
    /// `at` here.
    pub(crate) fn look_like(&mut self, other: &Self, order: &[usize]) {
        self.now = other.now;
        self.readings_arrived = other.readings_arrived;
        self.readings = order.iter().map(|&endpoint| other.readings[endpoint].clone()).collect();
        let loads = other.pool().as_slice().iter().zip(other.ledger.ledger().loads());
        self.ledger.set_loads(loads.map(|(endpoint, &load)| (endpoint.key(), load)));
        self.avoided = order.iter().map(|&endpoint| other.avoided[endpoint]).collect();
        self.observe();
    }

    pub(crate) fn situation(&self) -> Situation<'_> {
        Situation {
            pool: self.pool(),
            readings: &self.readings,
            readings_arrived: self.readings_arrived,
            now: self.now,
            loads: self.ledger.ledger().loads(),
            avoided: &self.avoided,
        }
    }

    pub(crate) fn decide(&self, spec: &RequestSpec, seed: u64) -> Decision {
        self.with_request(spec, |request, view| {
            let prepared = self.pipeline.prepare(request, view, self.now);
            let (scratch, rng) = (&mut *self.scratch.borrow_mut(), &mut SplitMix64::new(seed));
            let decision = self.pipeline.decide_prepared(&prepared, Acting::Own, view, scratch, rng);
            scratch.keep_runs(decision.runs.clone());
            decision
        })
    }

    pub(crate) fn decide_without_body(&self, spec: &RequestSpec, seed: u64) -> Decision {
        self.with_request(spec, |request, view| {
            self.pipeline.decide_without_body(request, view, self.now, &mut SplitMix64::new(seed))
        })
    }

    /// Sends the request where it was routed. Returns the changes of the ledger.
    pub(crate) fn send(&mut self, decision: &Decision) -> ChangeList {
        let changes = changes_of(&mut decision.clone(), self.pool());
        self.apply(changes.clone());
        self.in_flight.push_back(InFlight {
            reservations: decision.reservations.to_vec(),
            expectations: decision.records.expectations.to_vec(),
            at: self.now,
            answered: None,
        });
        changes
    }

    /// Applies changes of another ledger.
    pub(crate) fn apply(&mut self, changes: ChangeList) {
        self.ledger.apply(changes);
    }

    fn with_request<T>(
        &self,
        spec: &RequestSpec,
        use_it: impl FnOnce(&Request<'_>, &DecisionInput<'_>) -> T,
    ) -> T {
        let body = json_body(&spec.prompt);
        let headers = spec.headers.iter().cloned().collect();
        let options = self.pipeline.body_options(Headers(&headers));
        let body = body.as_ref().map(|(api, json)| Body::read(json, *api, &options).unwrap());
        let request = Request {
            model: spec.model,
            cache_salt: spec.salt,
            prompt: body.as_ref().map(|body| &body.prompt),
            cached: None,
            max_output_tokens: spec.max_output_tokens,
            stored: None,
            session: None,
            headers: Headers(&headers),
            subset: match &spec.subset {
                Some(listed) => Subset::from_items(listed.iter().map(String::as_str)),
                None => Subset::All,
            },
            failed: &[],
            priority: spec.priority,
        };
        let period = |&avoided: &bool| Period::new(self.now, Duration::from_nanos(avoided.into()));
        let avoided: Vec<Period> = self.avoided.iter().map(period).collect();
        let view = self.ledger.ledger().input(&self.readings, self.readings_arrived);
        let view = DecisionInput { avoided: &avoided, ..view };
        use_it(&request, &view)
    }
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
