//! Everything that a proxy learns about the time to the first output of its responses.

mod adapters;
mod calibration;
mod change;
#[expect(clippy::indexing_slicing, reason = "places of endpoints are less than the length of columns")]
mod columns;
mod endpoint;
mod places;
mod slopes;
mod speed;

pub use adapters::adapter_key;
pub use calibration::Calibration;
pub use change::{CompleteResponse, Expectation};
pub(crate) use change::{PredictedTimes, Sent};
pub(crate) use columns::{CostColumns, CostRow, CostRows};
pub use endpoint::{AtReading, EndpointState};
pub use slopes::{Sample, Slopes};

use core::time::Duration;

use self::adapters::Adapters;
use self::calibration::Outcome;
use self::change::{LatencyChange, PredictedEnd};
use self::endpoint::NOTHING;
use self::places::EndpointPlaces;
use self::slopes::Regression;
use self::speed::MeanSpeed;
use super::{ChangedReadings, Observation, PluginState};
use crate::pool::load::Load;
use crate::pool::reading::{Reading, SAME_READING};

/// Time over which arrivals are averaged.
const ARRIVALS_OVER: Duration = Duration::from_secs(10);

/// Weight of the newest in the means of uncached tokens, and of times from the first output to the end: the
/// last hundred requests.
const MEAN_WEIGHT: f64 = 0.01;

/// Milliseconds from the first output of a response to its end, before the first one: a hundred tokens of
/// 10 ms. Half of it is forgotten after 69 responses.
const FIRST_REST: f64 = 1_000.0;

/// Milliseconds that a request keeps its place in addition: some steps of a server pass until another
/// request has begun in it.
const PLACE_EXTRA: f64 = 30.0;

/// A longer rest counts as this many milliseconds, ten minutes: a stream of an hour would add 36 s to the
/// mean.
const MAX_REST: f64 = 600_000.0;

/// Weight of the newest snapshot in the factors of other proxies: the last twenty, a second of readings
/// every 50 ms.
const ELSEWHERE_WEIGHT: f64 = 0.05;

/// Factors of other proxies: below the first one they count as 1, above the second as that. Readings and
/// counts are of different moments, so that the ratio of a proxy alone is above 1 at times; two proxies
/// alike have 2.
const ELSEWHERE: (f64, f64) = (1.3, 16.0);

/// The state of an `expected-latency-scorer`: what requests of this proxy are doing at the endpoints, and
/// what was learnt from responses and readings.
#[derive(Debug)]
pub struct LatencyState {
    /// The milliseconds to a first output.
    regression: Regression,
    endpoints: Vec<EndpointState>,
    /// The mean of the speeds of the endpoints.
    speed: MeanSpeed,
    places: EndpointPlaces,
    adapters: Adapters,
    /// Mean of uncached tokens of requests.
    uncached: f64,
    /// Mean of milliseconds from first chunk to end.
    rest: f64,
    /// Requests at the servers over requests that this proxy knows of, a mean.
    elsewhere: f64,
    /// Requests in flight that this proxy knows of over its own, a mean.
    sharing: f64,
    arrivals: Arrivals,
    calibration: Calibration,
    columns: CostColumns,
    /// Requests at each server by its newest reading; `None`: never scraped.
    at_servers: Vec<Option<u64>>,
}

/// Arrivals per second, an exponential mean.
#[derive(Clone, Copy, Debug, Default)]
struct Arrivals {
    per_second: f64,
    at: Duration,
}

impl Arrivals {
    fn at(self, now: Duration) -> f64 {
        let passed = now.saturating_sub(self.at).as_secs_f64() / ARRIVALS_OVER.as_secs_f64();
        self.per_second * (-passed).exp()
    }

    fn add(&mut self, now: Duration) {
        let now = now.max(self.at);
        *self = Self { per_second: self.at(now) + ARRIVALS_OVER.as_secs_f64().recip(), at: now };
    }
}

impl LatencyState {
    /// Nothing is known. `prior` are milliseconds per token.
    pub(crate) fn new(prior: f64) -> Self {
        Self {
            regression: Regression::new(prior),
            endpoints: Vec::new(),
            speed: MeanSpeed::default(),
            places: EndpointPlaces::default(),
            adapters: Adapters::default(),
            uncached: 0.0,
            rest: FIRST_REST,
            elsewhere: 1.0,
            sharing: 1.0,
            arrivals: Arrivals::default(),
            calibration: Calibration::new(),
            columns: CostColumns::default(),
            at_servers: Vec::new(),
        }
    }

    /// The milliseconds to a first output, as they were learnt from a prior.
    pub fn slopes(&self, prior: f64) -> Slopes {
        // The configuration may have changed since the state began.
        self.regression.slopes_from(prior)
    }

    /// Requests that a server works on at once; `None` if that is not known.
    pub fn places(&self) -> Option<u64> {
        self.places.count()
    }

    /// Milliseconds for which a request keeps its place, a mean.
    pub fn rest(&self) -> f64 {
        self.rest + PLACE_EXTRA
    }

    /// Milliseconds from the first output of a response to its end, a mean.
    pub fn time_to_end(&self) -> f64 {
        self.rest
    }

    /// Times per token, and how well predictions hold.
    pub fn calibration(&self) -> &Calibration {
        &self.calibration
    }

    /// Tokens that a request has to have read, a mean.
    pub fn uncached(&self) -> f64 {
        self.uncached
    }

    /// Requests at the servers over requests that this proxy knows of, 1..=16.
    pub fn elsewhere(&self) -> f64 {
        if self.elsewhere < ELSEWHERE.0 { 1.0 } else { self.elsewhere.min(ELSEWHERE.1) }
    }

    /// Whether other proxies send requests to the endpoints.
    pub fn is_one_of_several(&self) -> bool {
        self.elsewhere.max(self.sharing) >= ELSEWHERE.0
    }

    /// Requests per second that arrive at this proxy and, by their share of the requests in flight, at
    /// proxies that share their loads.
    pub fn arrivals(&self, now: Duration) -> f64 {
        self.arrivals.at(now) * self.sharing
    }

    /// The key of a model that is an adapter, by servers' readings or, without such readings, because servers
    /// respond to several models.
    pub fn adapter(&self, model: &str) -> Option<u64> {
        self.adapters.key(model)
    }

    /// The key by which the requests of a model are counted, to know the adapters that servers hold; 0: they
    /// are not.
    pub fn counted(&self, model: &str) -> u64 {
        self.adapters.counted(model)
    }

    /// The greatest number of adapters that a server holds at once; 0 if none is known.
    pub fn max_adapters(&self) -> u32 {
        self.adapters.max()
    }

    /// The state of the endpoint.
    pub fn at(&self, endpoint: usize) -> &EndpointState {
        self.endpoints.get(endpoint).unwrap_or(&NOTHING)
    }

    /// The parts of costs that no request changes, by the newest readings.
    pub(crate) fn columns(&self) -> &CostColumns {
        &self.columns
    }

    /// The part of an endpoint's cost that no request changes, by this reading.
    pub(crate) fn row(&self, endpoint: usize, reading: &Reading) -> CostRow {
        self.columns.row_of(reading, self.at(endpoint))
    }

    /// Takes a change of the endpoint into the columns.
    fn update_columns(&mut self, endpoint: usize) {
        if let Some(state) = self.endpoints.get(endpoint) {
            self.columns.update(endpoint, state);
        }
    }

    fn endpoint(&mut self, endpoint: usize) -> Option<&mut EndpointState> {
        if self.endpoints.len() <= endpoint {
            self.endpoints.resize_with(endpoint + 1, EndpointState::default);
        }
        self.endpoints.get_mut(endpoint)
    }

    fn learn(&mut self, endpoint: usize, sample: Option<Sample>, outcome: Option<Outcome>) {
        if let Some(outcome) = outcome {
            self.calibration.learn(outcome);
        }
        if let Some(sample) = sample.filter(|sample| self.regression.is_plausible(sample)) {
            let expected = self.regression.slopes().predict(sample.tokens, sample.requests);
            if let Some(state) = self.endpoints.get_mut(endpoint) {
                self.speed.learn(&mut state.speed, &sample, expected);
            }
            self.regression.learn(&sample);
        }
    }

    fn learn_rest(&mut self, rest: Option<Duration>) {
        if let Some(rest) = rest {
            let milliseconds = (rest.as_secs_f64() * 1e3).min(MAX_REST);
            self.rest += MEAN_WEIGHT * (milliseconds - self.rest);
        }
    }

    fn learn_end(&mut self, predicted: Option<PredictedEnd>, mut rest: Option<Duration>) {
        if let Some(PredictedEnd { token, whole, .. }) = predicted {
            if let Some(token) = &token {
                self.calibration.learn_token(token);
            }
            if let Some(Outcome { actual, predicted: first }) = whole {
                self.calibration.learn(Outcome { actual, predicted: first + self.rest });
                // A response that is no stream begins when a stream would have ended.
                rest = rest.or_else(|| Some(Duration::from_secs_f64((actual - first).max(0.0) / 1e3)));
            }
        }
        self.learn_rest(rest);
    }

    fn learn_arrival(&mut self, at: Duration, uncached: u64) {
        // The first request is the mean so far.
        let weight = if self.arrivals.at.is_zero() { 1.0 } else { MEAN_WEIGHT };
        self.uncached += weight * ((uncached as f64).min(1e7) - self.uncached);
        self.arrivals.add(at);
    }

    /// Takes in the newest reading of an endpoint, and what is in flight there. Returns whether it was taken
    /// later than the last one.
    fn read(&mut self, endpoint: usize, reading: &Reading, load: Load, others: Load) -> bool {
        let Self { endpoints, places, adapters, at_servers, uncached, .. } = self;
        if let Some(slot) = at_servers.get_mut(endpoint) {
            let at_server = || reading.waiting.unwrap_or(0).saturating_add(reading.running.unwrap_or(0));
            *slot = reading.updated.map(|_| at_server());
        }
        let (Some(taken), Some(state)) = (reading.updated, endpoints.get_mut(endpoint)) else { return false };
        // The clock may have been set back: then any other time is new.
        if state.at_reading.is_some_and(|last| taken.abs_diff(last.taken) < SAME_READING) {
            return false;
        }
        let of_others = if *uncached > 0.0 { others.tokens as f64 / *uncached } else { 0.0 };
        state.at_reading = Some(AtReading {
            taken,
            requests: load.requests as f64,
            context: state.context as f64,
            unanswered: state.unanswered as f64 + of_others,
        });
        places.read(&mut state.row, reading, taken);
        state.runs(reading);
        adapters.read(reading);
        true
    }

    /// Takes in the requests at the servers, those that this proxy knows of, and its own.
    fn learn_elsewhere(&mut self, in_flight: &[Load], others: &[Load]) {
        let (mut there, mut known, mut own) = (0.0, 0.0, 0.0);
        for (endpoint, at_server) in self.at_servers.iter().enumerate() {
            let Some(at_server) = *at_server else { continue };
            let load = in_flight.get(endpoint).copied().unwrap_or_default().requests;
            let of_others = others.get(endpoint).copied().unwrap_or_default().requests;
            there += load.max(at_server) as f64;
            known += load as f64;
            own += load.saturating_sub(of_others) as f64;
        }
        for (mean, all, part) in [(&mut self.elsewhere, there, known), (&mut self.sharing, known, own)] {
            if part > 0.0 {
                let ratio = (all / part).clamp(1.0, ELSEWHERE.1);
                *mean += ELSEWHERE_WEIGHT * (ratio - *mean);
            }
        }
    }
}

impl PluginState for LatencyState {
    fn can_read(&self, words: &[u64]) -> bool {
        LatencyChange::read(words).is_some()
    }

    fn apply(&mut self, endpoint: usize, at: Duration, words: &[u64]) {
        let Some(change) = LatencyChange::read(words) else { return };
        let Some(state) = self.endpoint(endpoint) else { return };
        match change {
            LatencyChange::Sent(sent) => {
                state.sent(at, sent);
                self.learn_arrival(at, sent.uncached);
            }
            LatencyChange::Answered { sample, outcome } => {
                state.answered(at);
                let (adapters, unanswered) = (state.adapters(), state.unanswered);
                self.adapters.answered(adapters, unanswered);
                self.learn(endpoint, sample, outcome);
            }
            LatencyChange::Ended { prompt, adapter, is_answered, rest, predicted } => {
                state.ended(prompt, adapter, is_answered, predicted.map(|end| end.token_limit));
                if is_answered {
                    self.adapters.ended(adapter, rest.is_some());
                }
                self.learn_end(predicted, rest);
            }
        }
        self.update_columns(endpoint);
    }

    /// Learns from the samples of another proxy. Its requests in flight are not counted here: the ledger has
    /// its loads.
    ///
    /// A sample that arrives late or twice is learnt from late or twice, which the means forget.
    fn merge(&mut self, endpoint: usize, at: Duration, words: &[u64]) {
        let Some(change) = LatencyChange::read(words).filter(LatencyChange::is_shared) else { return };
        match change {
            LatencyChange::Sent(_) => {}
            LatencyChange::Answered { sample, outcome } => {
                if let Some(state) = self.endpoint(endpoint) {
                    state.reads_since = state.reads_since.max(at);
                }
                self.learn(endpoint, sample, outcome);
                self.update_columns(endpoint);
            }
            LatencyChange::Ended { rest, predicted, .. } => self.learn_end(predicted, rest),
        }
    }

    fn is_shared(&self, words: &[u64]) -> bool {
        LatencyChange::read(words).is_some_and(|change| change.is_shared())
    }

    fn remap(&mut self, moves: &[Option<usize>]) {
        let older = core::mem::take(&mut self.endpoints);
        for (state, to) in older.into_iter().zip(moves) {
            if let Some(moved) = to.and_then(|to| self.endpoint(to)) {
                *moved = state;
            }
        }
        self.speed = MeanSpeed::of(self.endpoints.iter().map(|state| &state.speed));
        self.columns.clear();
    }

    fn observe(&mut self, observation: &Observation<'_>) {
        let Observation { readings, changed, in_flight, others } = *observation;
        // Between a change of the pool and the next readings there are no rows.
        let has_rows = self.columns.len() == readings.len();
        let changed = if has_rows { changed } else { ChangedReadings::All };
        if self.endpoints.len() < readings.len() {
            self.endpoints.resize_with(readings.len(), EndpointState::default);
        }
        self.at_servers.resize(readings.len(), None);
        let (mut newest, mut is_new) = (None, false);
        for (endpoint, reading) in changed.of(readings) {
            let [load, others] =
                [in_flight, others].map(|all| all.get(endpoint).copied().unwrap_or_default());
            is_new |= self.read(endpoint, reading, load, others);
            newest = newest.max(reading.updated);
        }
        if is_new {
            self.learn_elsewhere(in_flight, others);
        }
        let are_all_other = self.columns.begin(readings.len(), newest, self.is_one_of_several());
        let changed = if are_all_other { ChangedReadings::All } else { changed };
        for (endpoint, reading) in changed.of(readings) {
            self.columns.set(endpoint, reading, self.endpoints.get(endpoint).unwrap_or(&NOTHING));
        }
    }
}

#[cfg(test)]
mod tests;
