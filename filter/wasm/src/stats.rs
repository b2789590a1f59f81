//! The filter's statistics, `wasmcustom.endpoint_picker.<pool>.<name>` among Envoy's.
//!
//! What happens to a request is counted at once. What is told apart by [labels](crate::labels) is counted in the VM and told once a
//! second, so that it costs a request no call to Envoy.

use core::cell::RefCell;

use endpoint_picker::decision::{Abstention, Outcome, PromptBlocks};
use endpoint_picker_wire::report::Rejected;

use crate::labels::{LabelledCounter, LabelledGauge, Labels};
use crate::metric::{Counter, Gauge, Histogram};
use crate::token_stats::{TokenStats, WholeAnswer};

/// All statistics of one pool.
#[derive(Debug)]
pub(crate) struct Stats {
    pub(crate) routed: Counter,
    /// Those of `routed` that no readings were used for, because the agent has been silent for too long.
    pub(crate) routed_stale: Counter,
    pub(crate) abstained_no_snapshot: Counter,
    pub(crate) abstained_body_too_large: Counter,
    pub(crate) rejected_400: Counter,
    pub(crate) rejected_404: Counter,
    pub(crate) rejected_412: Counter,
    pub(crate) rejected_413: Counter,
    pub(crate) rejected_429: Counter,
    pub(crate) rejected_503: Counter,
    pub(crate) snapshots: Counter,
    pub(crate) snapshot_failures: Counter,
    /// Requests that the shadow configuration would have treated alike, and others.
    pub(crate) shadow_agreed: Counter,
    pub(crate) shadow_disagreed: Counter,
    /// Requests in flight at the pool's endpoints, of all workers together.
    pub(crate) in_flight: Gauge,
    /// Milliseconds since the newest snapshot arrived.
    pub(crate) snapshot_age: Gauge,
    /// Microseconds that a choice took, from the request being known to the endpoint being remembered.
    pub(crate) decision: Histogram,
    /// Milliseconds from the choice to the first byte of the answer's body.
    pub(crate) first_byte: Histogram,
    told: RefCell<Told>,
    /// `None` if answers are not read for their tokens.
    tokens: Option<RefCell<TokenStats>>,
}

/// What is told once a second.
#[derive(Debug)]
struct Told {
    /// Requests and parts of them, by endpoint.
    picks: LabelledCounter,
    /// Routed requests, by the client's model and the one that serves.
    requests: LabelledCounter,
    /// Models named by a rewrite rule, by the rule's object and the model.
    rewrites: LabelledCounter,
    /// Requests in flight, by endpoint.
    in_flight_requests: LabelledGauge,
    /// Tokens of these, by endpoint.
    in_flight_tokens: LabelledGauge,
    prompt_blocks: Counter,
    prompt_blocks_matched: Counter,
    prompt: PromptSums,
}

/// Blocks of prompts that were not told yet.
#[derive(Clone, Copy, Debug, Default)]
struct PromptSums {
    total: u64,
    matched: u64,
}

/// A routed request as the statistics see it.
#[derive(Debug)]
pub(crate) struct RoutedRequest<'a> {
    /// The client's model; `None` if it named none, or its API has none.
    pub(crate) asked: Option<&'a str>,
    /// The model that serves.
    pub(crate) model: &'a str,
    /// The object with the rule that named it.
    pub(crate) rewrite: Option<&'a str>,
}

impl Stats {
    pub(crate) fn new(pool: &str, counts_tokens: bool) -> Self {
        let full = |name: &str| format!("endpoint_picker.{pool}.{name}");
        let counter = |name| Counter::define(&full(name));
        let gauge = |name| Gauge::define(&full(name));
        let histogram = |name| Histogram::define(&full(name));
        Self {
            routed: counter("routed"),
            routed_stale: counter("routed_stale"),
            abstained_no_snapshot: counter("abstained_no_snapshot"),
            abstained_body_too_large: counter("abstained_body_too_large"),
            rejected_400: counter("rejected_400"),
            rejected_404: counter("rejected_404"),
            rejected_412: counter("rejected_412"),
            rejected_413: counter("rejected_413"),
            rejected_429: counter("rejected_429"),
            rejected_503: counter("rejected_503"),
            snapshots: counter("snapshots"),
            snapshot_failures: counter("snapshot_failures"),
            shadow_agreed: counter("shadow_agreed"),
            shadow_disagreed: counter("shadow_disagreed"),
            in_flight: gauge("in_flight"),
            snapshot_age: gauge("snapshot_age_ms"),
            decision: histogram("decision_us"),
            first_byte: histogram("first_byte_ms"),
            told: RefCell::new(Told {
                picks: LabelledCounter::new(full("picks")),
                requests: LabelledCounter::new(full("model_requests")),
                rewrites: LabelledCounter::new(full("rewrites")),
                in_flight_requests: LabelledGauge::new(full("endpoint_in_flight")),
                in_flight_tokens: LabelledGauge::new(full("endpoint_in_flight_tokens")),
                prompt_blocks: counter("prompt_blocks"),
                prompt_blocks_matched: counter("prompt_blocks_matched"),
                prompt: PromptSums::default(),
            }),
            tokens: counts_tokens.then(|| RefCell::new(TokenStats::new(full))),
        }
    }

    /// The rejected requests by status, where there were any.
    pub(crate) fn rejected(&self) -> Vec<Rejected> {
        [
            (400, self.rejected_400),
            (404, self.rejected_404),
            (412, self.rejected_412),
            (413, self.rejected_413),
            (429, self.rejected_429),
            (503, self.rejected_503),
        ]
        .map(|(status, counter)| Rejected { status, requests: counter.value() })
        .into_iter()
        .filter(|rejected| rejected.requests > 0)
        .collect()
    }

    /// Counts whether the shadow agrees, if there is one.
    pub(crate) fn compare(&self, shadow_agrees: Option<bool>) {
        match shadow_agrees {
            Some(true) => self.shadow_agreed.increment(),
            Some(false) => self.shadow_disagreed.increment(),
            None => {}
        }
    }

    /// Counts a request that was not routed.
    pub(crate) fn count(&self, outcome: &Outcome) {
        match outcome {
            Outcome::Reject(rejection) => match rejection.code.status() {
                404 => self.rejected_404.increment(),
                412 => self.rejected_412.increment(),
                413 => self.rejected_413.increment(),
                429 => self.rejected_429.increment(),
                503 => self.rejected_503.increment(),
                _ => self.rejected_400.increment(),
            },
            Outcome::Abstain { reason: Abstention::BodyTooLarge, .. } => {
                self.abstained_body_too_large.increment();
            }
            Outcome::Abstain { .. } => self.abstained_no_snapshot.increment(),
            _ => self.routed.increment(),
        }
    }

    /// Counts a request that was routed, by its models. Returns whose the tokens of its answer are, if those are counted.
    pub(crate) fn count_models(&self, request: &RoutedRequest<'_>) -> Option<Labels> {
        const NONE: &str = "none";
        let mut told = self.told.borrow_mut();
        let model = if request.model.is_empty() { NONE } else { request.model };
        let models = Labels::new(&[request.asked.unwrap_or(NONE), model]);
        told.requests.add(&models, 1);
        if let Some(resource) = request.rewrite {
            told.rewrites.count(&[resource, request.model]);
        }
        self.tokens.is_some().then_some(models)
    }

    /// Counts the tokens of an answer.
    pub(crate) fn count_tokens(&self, models: &Labels, answer: &WholeAnswer) {
        if let Some(tokens) = &self.tokens {
            tokens.borrow_mut().count(models, answer);
        }
    }

    /// Counts an endpoint that a request was sent to, by its `ip:port`.
    pub(crate) fn count_pick(&self, endpoint: &str) {
        self.told.borrow_mut().picks.count(&[endpoint]);
    }

    /// Counts how much of a prompt its endpoint had been sent before.
    pub(crate) fn count_prompt(&self, prompt: PromptBlocks) {
        let blocks = &mut self.told.borrow_mut().prompt;
        blocks.total += u64::from(prompt.total);
        blocks.matched += u64::from(prompt.matched);
    }

    /// Tells Envoy what this VM has counted since it did so last.
    pub(crate) fn tell(&self) {
        let told = &mut *self.told.borrow_mut();
        for counter in [&mut told.picks, &mut told.requests, &mut told.rewrites] {
            counter.tell();
        }
        let PromptSums { total, matched } = core::mem::take(&mut told.prompt);
        if total > 0 {
            told.prompt_blocks.add(total);
            told.prompt_blocks_matched.add(matched);
        }
        if let Some(tokens) = &self.tokens {
            tokens.borrow_mut().tell();
        }
    }

    /// These endpoints left the pool. Every VM that sees it sets their gauges to zero: the one that set them may be gone.
    pub(crate) fn remove_endpoints<'a>(&self, endpoints: impl Iterator<Item = &'a str> + Clone) {
        let told = &mut *self.told.borrow_mut();
        told.in_flight_requests.remove(endpoints.clone());
        told.in_flight_tokens.remove(endpoints);
    }

    /// Tells Envoy what is in flight, by the endpoints' `ip:port`: requests and tokens, of all VMs together.
    pub(crate) fn tell_in_flight<'a>(&self, loads: impl Iterator<Item = (&'a str, u64, u64)> + Clone) {
        let told = &mut *self.told.borrow_mut();
        told.in_flight_requests.set_all(loads.clone().map(|(endpoint, requests, _)| (endpoint, requests)));
        told.in_flight_tokens.set_all(loads.map(|(endpoint, _, tokens)| (endpoint, tokens)));
    }
}
