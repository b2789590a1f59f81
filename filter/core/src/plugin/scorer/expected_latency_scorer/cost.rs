//! The cost of an endpoint for a request.

use core::cell::OnceCell;

use super::formula::{CostInputs, Formula, MAX_TOKENS, Terms};
use crate::input::cycle::Cycle;
use crate::plugin::Routed;
use crate::state::Words;
use crate::state::latency::{CostColumns, CostRow, Expectation, LatencyState, Sent, Slopes};
use crate::state::prefix::PrefixMatch;

/// The parameters of a cost.
#[derive(Clone, Copy, Debug)]
pub(in crate::plugin) struct CostParameters {
    /// Milliseconds per token before the first response.
    pub(in crate::plugin) prior: f64,
    /// Requests that a server works on at once; 0: learnt.
    pub(in crate::plugin) max_running: u64,
    /// Milliseconds that loading a LoRA adapter takes.
    pub(in crate::plugin) lora_load: f64,
}

/// The costs of endpoints for a request.
#[derive(Debug)]
pub(in crate::plugin) struct Costs<'a> {
    pub(super) cycle: &'a Cycle<'a>,
    state: &'a LatencyState,
    /// The rows of all endpoints by the cycle's readings; `None`: the state has no such rows.
    pub(super) columns: Option<&'a CostColumns>,
    pub(super) formula: Formula,
    pub(super) prefix: &'a PrefixMatch,
    /// Tokens of the prompt, estimated.
    estimated: u64,
    /// Its tokens, as responses of the model have shown them, without those that it only claims.
    carried: u64,
    /// The model, if it is an adapter.
    pub(super) adapter: Option<u64>,
    /// Milliseconds that loading an adapter takes.
    pub(super) lora_load: f64,
    /// Seconds for which an unused adapter keeps its place, if they were asked for.
    pub(super) adapters_kept: OnceCell<f64>,
}

impl<'a> Costs<'a> {
    /// `nothing` becomes the state where the plugin has none.
    pub(in crate::plugin) fn new(
        parameters: CostParameters,
        cycle: &'a Cycle<'a>,
        nothing: &'a OnceCell<LatencyState>,
    ) -> Self {
        let state = cycle.state::<LatencyState>();
        let state = state.unwrap_or_else(|| nothing.get_or_init(|| LatencyState::new(parameters.prior)));
        let places = if parameters.max_running > 0 { Some(parameters.max_running) } else { state.places() };
        let prefix = cycle.prefix();
        let formula = Formula {
            slopes: state.slopes(parameters.prior),
            now: state.columns().nanoseconds(cycle.now),
            elsewhere: state.elsewhere(),
            uncached: state.uncached(),
            arrivals: 0.0,
            places: places.map_or(f64::INFINITY, |places| places as f64),
            rest: state.rest(),
            decoding_share: 0.0,
        };
        // Readings that are too old are left out of the cycle, and some endpoints may have none.
        let endpoints = cycle.pool.as_slice().len();
        let has_rows = state.columns().len() == endpoints && cycle.readings.len() == endpoints;
        Self {
            columns: has_rows.then(|| state.columns()),
            formula,
            prefix,
            estimated: cycle.request.input_tokens(),
            carried: prefix.scale.tokens(cycle.request.carried_tokens()),
            adapter: state.adapter(cycle.request.model),
            lora_load: parameters.lora_load,
            adapters_kept: OnceCell::new(),
            cycle,
            state,
        }
    }

    /// Counts the delay of other requests from now on: of those at these endpoints, which have this many, and
    /// of those that arrive.
    pub(super) fn compare(&mut self, requests: &[f64]) {
        let endpoints = self.cycle.pool.as_slice().len().max(1) as f64;
        let arrivals = self.state.arrivals(self.cycle.now) * self.formula.elsewhere;
        self.formula.compare(requests, arrivals / (1e3 * endpoints));
    }

    /// The state that the terms come from.
    pub(in crate::plugin) fn state(&self) -> &'a LatencyState {
        self.state
    }

    /// Requests in flight at the endpoint: those that are known, and more if its reading shows that others
    /// send there too.
    pub(in crate::plugin) fn requests(&self, endpoint: usize) -> f64 {
        let counted = self.cycle.load(endpoint).requests as f64;
        self.formula.requests(&self.row(endpoint), counted, self.cycle.comparable_load(endpoint).requests)
    }

    /// The part of the endpoint's cost that the request does not change.
    fn row(&self, endpoint: usize) -> CostRow {
        let row = self.columns.and_then(|columns| columns.row(endpoint));
        row.unwrap_or_else(|| self.state.row(endpoint, self.cycle.reading(endpoint)))
    }

    /// The cost of an endpoint with this many requests in flight.
    pub(super) fn terms(&self, endpoint: usize, requests: f64) -> Terms {
        let inputs = CostInputs {
            requests,
            tokens: self.cycle.comparable_load(endpoint).tokens,
            uncached: self.uncached(endpoint),
            adapter: self.adapter_cost(endpoint),
        };
        self.formula.terms(&self.row(endpoint), &inputs)
    }

    /// Tokens of the request that the endpoint has not cached; it computes one in any case.
    pub(super) fn uncached(&self, endpoint: usize) -> f64 {
        (self.prefix.missing_tokens(self.estimated, endpoint) as f64).clamp(1.0, MAX_TOKENS)
    }

    /// Tokens of the prompt that the endpoint keeps in memory: no more than it has.
    fn prompt(&self, endpoint: usize) -> u64 {
        self.carried.min(self.cycle.max_request_tokens(endpoint))
    }

    /// The words of the change that records the request at the endpoint, with the client's limit for a token
    /// if limits are counted.
    pub(in crate::plugin) fn sent(&self, endpoint: usize, token_limit: Option<u32>) -> Words {
        let carried = self.cycle.request.carried_tokens();
        let missing = self.prefix.missing_carried_tokens(self.estimated, carried, endpoint);
        let sent = Sent {
            uncached: missing.min(self.cycle.max_request_tokens(endpoint)),
            prompt: self.prompt(endpoint),
            adapter: self.state.counted(self.cycle.request.model),
            is_alone: self.cycle.load(endpoint).requests == 0,
            token_limit,
        };
        sent.words()
    }

    /// The expected milliseconds to the first output of the endpoint's response.
    pub(in crate::plugin) fn first_chunk(&self, endpoint: usize) -> f64 {
        self.milliseconds(endpoint, &self.terms(endpoint, self.requests(endpoint)))
    }

    fn milliseconds(&self, endpoint: usize, terms: &Terms) -> f64 {
        let Terms { backlog, uncached, requests, wait, speed, .. } = *terms;
        let read = speed * self.formula.slopes.predict(backlog + uncached, requests);
        read + self.adapter_wait(endpoint) + wait
    }

    /// The expectations of a routed request.
    pub(in crate::plugin) fn expectations(&self, routed: &Routed<'_>) -> impl Iterator<Item = Expectation> {
        // With an endpoint that computes the prompt for another, the first output shows the speed of neither.
        let is_one = routed.endpoints().nth(1).is_none();
        routed.endpoints().enumerate().map(move |(place, endpoint)| {
            let is_prefill = place > 0;
            Expectation { is_prefill, ..self.expectation(endpoint, is_one) }
        })
    }

    /// The expectation of the request there. `is_sample`: whether its time shows how fast the endpoint reads.
    fn expectation(&self, endpoint: usize, is_sample: bool) -> Expectation {
        let terms = self.terms(endpoint, self.requests(endpoint));
        let Terms { backlog, uncached, requests, adapter, wait, .. } = terms;
        let has_media = self.cycle.request.has_media();
        Expectation {
            plugin: self.cycle.plugin,
            endpoint: self.cycle.endpoint(endpoint).key(),
            prompt: self.prompt(endpoint),
            adapter: self.state.counted(self.cycle.request.model),
            tokens: backlog + uncached,
            requests,
            milliseconds: self.milliseconds(endpoint, &terms),
            is_sample: is_sample && adapter <= 0.0 && wait <= 0.0 && !has_media,
            is_prefill: false,
            has_media,
            predicted: None,
        }
    }

    /// The terms of a cost in words, with the names of the rule.
    pub(super) fn explain(&self, endpoint: usize, terms: &Terms) -> String {
        let Terms { backlog, uncached, requests, adapter, wait, meanwhile, speed, cost } = *terms;
        let load = self.adapter_wait(endpoint);
        let evicted = adapter - load;
        let Slopes { per_token, per_request, .. } = self.formula.slopes;
        let places = self.formula.places;
        let places = if places.is_finite() { places.to_string() } else { "unknown".to_owned() };
        format!(
            "{cost} ms: p {backlog:.0} U {uncached:.0} n {requests:.1} L {load:.0} E {evicted:.0} W {wait:.0} q {meanwhile:.3} r {speed:.2} c {per_token:.4} b {per_request:.3} M {places}"
        )
    }
}
