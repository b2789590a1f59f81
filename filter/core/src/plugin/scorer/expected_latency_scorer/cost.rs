//! The cost of an endpoint for a request.

use crate::input::cycle::Cycle;
use crate::plugin::Routed;
use crate::pool::reading::Reading;
use crate::state::latency::{EndpointState, Expectation, LatencyState, Sent, Slopes};
use crate::state::prefix::PrefixMatch;

/// Share of the tokens before a request that can have been read since the last first output, at most.
const MAX_READ: f64 = 0.8;

/// Weight of the requests that come while the prompt is read.
const ARRIVALS_WEIGHT: f64 = 0.3;

/// Requests in flight that the mean of the candidates has more when delays of others are weighed. With a few requests in the pool the
/// mean alone is a part of one, and a single request would make its endpoint several times dearer than an idle one.
const MORE_THAN_MEAN: f64 = 1.0;

/// Share of the KV cache from which requests wait for memory; the whole wait comes with 1 / [`KV_SLOPE`] · [`MAX_KV_WAITS`] more.
const KV_FROM: f64 = 0.95;

/// Rests of requests that a request waits for, per share of the KV cache.
const KV_SLOPE: f64 = 20.0;

/// Rests of requests that a request waits for memory, at most.
const MAX_KV_WAITS: f64 = 4.0;

/// Seconds of age at which a reading corrects loads by half of what it shows. Proxies that do not share their
/// loads would all send their requests to the server that was free when the reading was taken. In 200 ms each
/// server of a busy pool begins several requests, and readings of the default interval count nearly in full.
const HALF_AGE: f64 = 0.2;

/// 2^52: a number of this size has no fraction.
const NO_FRACTION: f64 = 4_503_599_627_370_496.0;

/// So that a quarter of a millisecond is rounded up whatever the rounding errors of its terms.
const TIE: f64 = 1e-6;

/// Limit of tokens to read, beyond any server.
const MAX_TOKENS: f64 = 1e7;

/// Maximum number of requests that a reading counts as: what is learnt from larger ones would be rounding errors.
const MAX_REQUESTS: f64 = 1e4;

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

/// The part of the cost that all endpoints have in common.
#[derive(Debug)]
pub(in crate::plugin) struct Costs<'a> {
    cycle: &'a Cycle<'a>,
    state: &'a LatencyState,
    slopes: Slopes,
    prefix: &'a PrefixMatch,
    /// Tokens of the prompt, estimated.
    estimated: u64,
    /// Its tokens, as responses of the model have shown them, without those that it only claims.
    carried: u64,
    /// The model, if it is an adapter.
    adapter: Option<u64>,
    lora_load: f64,
    /// Requests of other proxies: a factor.
    elsewhere: f64,
    /// Weighted arrivals per millisecond and endpoint.
    arrivals: f64,
    /// Requests that a server works on at once.
    places: Option<f64>,
    /// Milliseconds for which a request keeps its place.
    rest: f64,
    /// Tokens that an endpoint reads in a millisecond.
    tokens_per_millisecond: f64,
    /// 1 / (the mean of the requests in flight at the candidates + [`MORE_THAN_MEAN`]); 0 before they are compared.
    decoding_share: f64,
}

/// The cost of one endpoint and what it consists of.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Terms {
    /// Tokens of other requests that the endpoint has to read first.
    pub(super) backlog: f64,
    /// Tokens of the request that it has not cached.
    pub(super) uncached: f64,
    /// Requests in flight there.
    pub(super) requests: f64,
    /// Milliseconds for the adapter.
    pub(super) adapter: f64,
    /// Milliseconds for a place and for memory.
    pub(super) wait: f64,
    /// The factor of its times.
    pub(super) speed: f64,
    /// Milliseconds, rounded to half of one.
    pub(super) cost: f64,
}

impl<'a> Costs<'a> {
    /// `nothing` stands for a state that is missing.
    pub(in crate::plugin) fn new(
        parameters: CostParameters,
        cycle: &'a Cycle<'a>,
        nothing: &'a LatencyState,
    ) -> Self {
        let state = cycle.state::<LatencyState>().unwrap_or(nothing);
        let elsewhere = state.elsewhere();
        let slopes = state.slopes(parameters.prior);
        let places = if parameters.max_running > 0 { Some(parameters.max_running) } else { state.places() };
        let prefix = cycle.prefix();
        Self {
            slopes,
            prefix,
            estimated: cycle.request.input_tokens(),
            carried: prefix.scale.tokens(cycle.request.carried_tokens()),
            adapter: state.adapter(cycle.request.model),
            lora_load: parameters.lora_load,
            elsewhere,
            arrivals: 0.0,
            places: places.map(|places| places as f64),
            rest: state.rest(),
            tokens_per_millisecond: slopes.per_token.recip(),
            decoding_share: 0.0,
            cycle,
            state,
        }
    }

    /// Counts the delay of other requests from now on: of those at these endpoints, which have this many, and of those that arrive.
    pub(super) fn compare(&mut self, requests: &[f64]) {
        let endpoints = self.cycle.pool.as_slice().len().max(1) as f64;
        let arrivals = self.state.arrivals(self.cycle.now) * self.elsewhere;
        self.arrivals = ARRIVALS_WEIGHT * arrivals / (1e3 * endpoints);
        let (sum, number) = (requests.iter().sum::<f64>(), requests.len() as f64);
        self.decoding_share = number / (sum + MORE_THAN_MEAN * number).max(1.0);
    }

    /// The state that the terms come from.
    pub(in crate::plugin) fn state(&self) -> &'a LatencyState {
        self.state
    }

    /// Requests in flight at the endpoint: those that are known, and more if its reading shows that others send
    /// there too.
    pub(in crate::plugin) fn requests(&self, endpoint: usize) -> f64 {
        let known = self.cycle.comparable_load(endpoint).requests;
        let Reading { waiting, running, .. } = *self.cycle.reading(endpoint);
        let at_reading = waiting.unwrap_or(0) as f64 + running.unwrap_or(0) as f64;
        let since = self
            .state
            .at(endpoint)
            .at_reading()
            .map_or(0.0, |then| self.cycle.load(endpoint).requests as f64 - then.requests);
        let unknown = at_reading.min(MAX_REQUESTS) + since - known;
        if unknown > 0.0 { known + unknown * self.correction(endpoint) } else { known }
    }

    /// The factor of an endpoint's times. Where other proxies send requests too, a part of the load of an endpoint
    /// is not known here when it counts, and would pass for slowness.
    fn speed(&self, state: &EndpointState) -> f64 {
        if self.state.is_one_of_several() { 1.0 } else { state.speed() }
    }

    /// The share of what its reading shows that corrects the loads of an endpoint: 1 for a new reading.
    fn correction(&self, endpoint: usize) -> f64 {
        let age = self.cycle.reading(endpoint).updated.map(|updated| self.cycle.now.saturating_sub(updated));
        let ages = age.map_or(0.0, |age| age.as_secs_f64() / HALF_AGE);
        1.0 / (1.0 + ages * ages)
    }

    /// The cost of an endpoint with this many requests in flight.
    pub(super) fn terms(&self, endpoint: usize, requests: f64) -> Terms {
        let Slopes { per_token, per_request, .. } = self.slopes;
        let state = self.state.at(endpoint);
        let reading = self.cycle.reading(endpoint);
        let uncached = self.uncached(endpoint);
        let backlog = self.backlog(endpoint, state, reading);
        let adapter = self.adapter.map_or(0.0, |adapter| self.adapter_wait(state, reading, adapter));
        let wait = self.wait(state, reading, requests, uncached);
        let own = uncached * per_token;
        // Those that decode there wait while the prompt is read, and so do those that come meanwhile.
        let delayed = 1.0 + requests * self.decoding_share + self.arrivals * own;
        let speed = self.speed(state);
        let cost = speed * ((backlog * per_token + own + adapter) * delayed + per_request * requests) + wait;
        // The sum with the smallest number without a fraction is rounded, far faster than by a call.
        let doubled = (2.0 * cost + TIE + NO_FRACTION) - NO_FRACTION;
        Terms { backlog, uncached, requests, adapter, wait, speed, cost: doubled / 2.0 }
    }

    /// Tokens of the request that the endpoint has not cached; it computes one in any case.
    fn uncached(&self, endpoint: usize) -> f64 {
        (self.prefix.missing_tokens(self.estimated, endpoint) as f64).clamp(1.0, MAX_TOKENS)
    }

    /// Tokens of other requests that the endpoint has to read first.
    fn backlog(&self, endpoint: usize, state: &EndpointState, reading: &Reading) -> f64 {
        let mut tokens = self.cycle.comparable_load(endpoint).tokens * self.elsewhere;
        if tokens > 0.0 {
            let since = self.cycle.now.saturating_sub(state.reads_since());
            let since = since.as_secs() as f64 * 1e3 + f64::from(since.subsec_nanos()) * 1e-6;
            tokens -= (MAX_READ * tokens).min(since * self.tokens_per_millisecond / self.speed(state));
        }
        if let (Some(waiting @ 1..), Some(then)) = (reading.waiting, state.at_reading()) {
            let unknown = waiting as f64 - then.unanswered;
            if unknown > 0.0 {
                tokens += unknown * self.correction(endpoint) * self.state.uncached();
            }
        }
        tokens.min(MAX_TOKENS)
    }

    /// Milliseconds until the endpoint can use the adapter.
    fn adapter_wait(&self, state: &EndpointState, reading: &Reading, adapter: u64) -> f64 {
        let lora = reading.lora.as_ref();
        let is_running =
            lora.is_some_and(|lora| lora.running.iter().any(|name| name == self.cycle.request.model));
        let (is_in_flight, known) = state.adapters_in_flight(adapter);
        if is_in_flight || is_running {
            return 0.0;
        }
        // Of other proxies, the readings show which adapters they use.
        let running = lora.filter(|_| self.state.is_one_of_several()).map_or(0, |lora| lora.running.len());
        let max =
            lora.map(|lora| lora.max).filter(|&max| max > 0).unwrap_or(self.state.max_adapters()).max(1);
        let max = usize::try_from(max).unwrap_or(usize::MAX);
        if known.max(running) >= max {
            self.lora_load + self.rest / 2.0
        } else if state.is_recent(adapter, max) {
            0.0
        } else {
            self.lora_load
        }
    }

    /// Milliseconds until the endpoint has a place and memory for the request.
    fn wait(&self, state: &EndpointState, reading: &Reading, requests: f64, uncached: f64) -> f64 {
        let of_place =
            self.places.map_or(0.0, |places| (requests + 1.0 - places).max(0.0) * self.rest / places);
        let Some(usage) = reading.kv_usage else { return of_place };
        let above = usage - KV_FROM;
        let above = if let Some(memory) = reading.kv_tokens() {
            let memory = memory as f64;
            let then =
                state.at_reading().map_or(uncached, |then| state.context() as f64 - then.context + uncached);
            let more = then.max(0.0);
            // Nearly always there is room, and nothing to divide.
            if above * memory + more > 0.0 { above + more / memory } else { 0.0 }
        } else {
            above
        };
        of_place + self.rest * (KV_SLOPE * above.max(0.0)).min(MAX_KV_WAITS)
    }

    /// Tokens of the prompt that the endpoint keeps in memory: no more than it has.
    fn prompt(&self, endpoint: usize) -> u64 {
        self.carried.min(self.cycle.max_request_tokens(endpoint))
    }

    /// The words of the change that records the request at the endpoint, with the client's limit for a token if limits are counted.
    pub(in crate::plugin) fn sent(&self, endpoint: usize, token_limit: Option<u32>) -> Vec<u64> {
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
        self.milliseconds(&self.terms(endpoint, self.requests(endpoint)))
    }

    fn milliseconds(&self, terms: &Terms) -> f64 {
        let Terms { backlog, uncached, requests, adapter, wait, speed, .. } = *terms;
        speed * self.slopes.predict(backlog + uncached, requests) + adapter + wait
    }

    /// The expectations of a routed request.
    pub(in crate::plugin) fn expectations(&self, routed: &Routed<'_>) -> impl Iterator<Item = Expectation> {
        // With an endpoint that computes the prompt for another, the first output shows the speed of neither.
        let is_one = routed.endpoints().nth(1).is_none();
        routed.endpoints().map(move |endpoint| self.expectation(endpoint, is_one))
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
            milliseconds: self.milliseconds(&terms),
            is_sample: is_sample && adapter <= 0.0 && wait <= 0.0 && !has_media,
            has_media,
            predicted: None,
        }
    }

    /// The terms of a cost in words, with the names of the rule.
    pub(super) fn explain(&self, terms: &Terms) -> String {
        let Terms { backlog, uncached, requests, adapter, wait, speed, cost } = *terms;
        let Slopes { per_token, per_request, .. } = self.slopes;
        let places = self.places.map_or_else(|| "unknown".to_owned(), |places| places.to_string());
        format!(
            "{cost} ms: p {backlog:.0} U {uncached:.0} n {requests:.1} L {adapter:.0} W {wait:.0} r {speed:.2} c {per_token:.4} b {per_request:.3} M {places}"
        )
    }
}
