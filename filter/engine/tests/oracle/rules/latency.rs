//! Expected latencies, from everything that has happened instead of sums and means of it.

use core::time::Duration;
use std::collections::BTreeMap;

use endpoint_picker::pool::load::Load;
use endpoint_picker::pool::reading::Reading;

use super::cycle::Cycle;
use super::plan::Plugin;
use super::regression::{Line, learn, mean};
use crate::fixture::CHUNKS;
use crate::world::Prompt;

/// Samples that the plugin has seen.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    /// Time, uncached tokens.
    arrivals: Vec<(Duration, f64)>,
    /// Tokens to read, requests, milliseconds: of each first chunk, with the endpoint that sent it.
    samples: Vec<([f64; 3], usize)>,
    /// Milliseconds from the first chunk to the end.
    rests: Vec<f64>,
    /// Times that were predicted, actual and predicted.
    pub(super) outcomes: Vec<[f64; 2]>,
    /// Requests, and milliseconds of a token.
    tokens: Vec<[f64; 2]>,
    /// Requests at the servers over those that were known, at each snapshot.
    elsewhere: Vec<f64>,
    /// The models of streams, in the order of their ends.
    streams: Vec<String>,
    /// Models that a server runs at once, as first chunks show.
    at_once: f64,
    endpoints: BTreeMap<usize, EndpointSeen>,
    /// The time at which a request last waited anywhere, and the places.
    waited: Duration,
    places: Option<f64>,
}

#[derive(Clone, Debug, Default)]
struct EndpointSeen {
    in_flight: Vec<Sent>,
    /// Adapters of requests and of those that run by readings, in the order of their use, with its time.
    adapters: Vec<(String, Duration)>,
    reads_since: Duration,
    /// Waiting and running of distinct readings, and whether memory was left.
    readings: Vec<(u64, u64, bool)>,
    at_reading: Option<AtReading>,
}

#[derive(Clone, Copy, Debug)]
struct AtReading {
    taken: Duration,
    requests: f64,
    context: f64,
    unanswered: f64,
}

/// A request in flight.
#[derive(Clone, Debug)]
pub(super) struct Sent {
    number: usize,
    at: Duration,
    prompt: f64,
    /// The model, if it may be an adapter.
    adapter: Option<String>,
    /// Tokens to read and requests, if its time shows the speed of the endpoint.
    sample: Option<[f64; 2]>,
    answered: Option<Duration>,
    /// Whether the endpoint computes the prompt for another one, until the first chunk.
    is_prefill: bool,
    /// Times that a predictor predicted.
    predicted: Option<Predicted>,
}

#[derive(Clone, Copy, Debug)]
struct Predicted {
    /// To its end, and not to its first chunk.
    is_whole: bool,
    /// Milliseconds to the first chunk.
    first: f64,
    /// Other requests there.
    requests: f64,
    /// Whether the endpoint responds.
    responds: bool,
    /// Whether the request has no image, whose tokens are the client's word.
    is_text: bool,
    /// The client's limit for a token; 0 without one.
    token_limit: f64,
}

/// A time of this many milliseconds, tokens and other requests, as a change has it; `None`: nothing
/// is learnt from it.
fn sample([tokens, requests, time]: [f64; 3]) -> Option<[f64; 3]> {
    let is_bounded = tokens <= 1e7 && requests <= 65_536.0 && time <= 1e7;
    is_bounded.then(|| [tokens.round(), thousandths(requests), thousandths(time)])
}

fn outcome(actual: f64, predicted: f64) -> Option<[f64; 2]> {
    (predicted <= 1e7).then(|| [actual, thousandths(predicted)])
}

fn thousandths(number: f64) -> f64 {
    (number * 1e3).round() / 1e3
}

impl EndpointSeen {
    fn unanswered(&self) -> usize {
        self.in_flight.iter().filter(|sent| sent.answered.is_none()).count()
    }

    fn context(&self) -> f64 {
        self.in_flight.iter().map(|sent| sent.prompt).sum()
    }

    /// The distinct adapters of the last requests, the newest first, with their last uses.
    fn recent(&self) -> Vec<(&String, Duration)> {
        let mut recent: Vec<(&String, Duration)> = Vec::new();
        for (adapter, at) in self.adapters.iter().rev() {
            if recent.iter().all(|(known, _)| *known != adapter) {
                recent.push((adapter, *at));
            }
        }
        recent
    }

    /// The last use of the adapter whose place another one gets where `max` fit.
    fn evicted(&self, max: usize) -> Option<Duration> {
        let held = self.recent().get(..max)?.to_vec();
        let idle = held.into_iter().rev().find(|(adapter, _)| !self.adapters_in_flight().contains(adapter));
        idle.map(|(_, at)| at)
    }

    fn adapters_in_flight(&self) -> Vec<&String> {
        let mut adapters: Vec<_> = self.in_flight.iter().filter_map(|sent| sent.adapter.as_ref()).collect();
        adapters.sort();
        adapters.dedup();
        adapters
    }
}

fn milliseconds(from: Duration, to: Duration) -> f64 {
    to.saturating_sub(from).as_secs_f64() * 1e3
}

impl Seen {
    /// The samples whose tokens a server can have read, at most twenty times as fast as is expected at first,
    /// and the endpoints that sent them.
    fn plausible(&self, c0: f64) -> (Vec<[f64; 3]>, Vec<usize>) {
        let is_plausible = |&&([x, _, y], _): &&([f64; 3], usize)| y >= x * c0 / 20.0;
        self.samples.iter().filter(is_plausible).copied().unzip()
    }

    /// The line of these samples.
    fn line(&self, c0: f64) -> Line {
        learn(&self.plausible(c0).0, c0).0
    }

    /// The factor of an endpoint's times, as its last sample has left it; 1 where other proxies send requests
    /// too.
    fn speed(&self, c0: f64, of: usize) -> f64 {
        if self.elsewhere() > 1.0 {
            return 1.0;
        }
        let (samples, endpoints) = self.plausible(c0);
        let Some(last) = endpoints.iter().rposition(|&endpoint| endpoint == of) else { return 1.0 };
        let (_, expected) = learn(&samples, c0);
        let mut means = BTreeMap::new();
        for (at, &endpoint) in endpoints.iter().enumerate().take(last + 1) {
            let others = means.values().sum::<f64>() / f64::max(means.len() as f64, 1.0);
            let first = if means.is_empty() { 1.0 } else { others };
            let part = (samples[at][2] / expected[at].max(1.0)).clamp(0.25, 4.0);
            let mean = means.entry(endpoint).or_insert(first);
            *mean = 0.98 * *mean + 0.02 * part;
        }
        let factor = (means[&of] * means.len() as f64 / means.values().sum::<f64>()).clamp(0.25, 4.0);
        if (1.0 / 1.1..=1.1).contains(&factor) { 1.0 } else { factor }
    }

    /// The line of times of tokens, and these times with what was predicted.
    pub(super) fn tokens(&self) -> (Line, Vec<[f64; 2]>) {
        let samples: Vec<[f64; 3]> = self.tokens.iter().map(|&[n, y]| [0.0, n, y]).collect();
        let (line, predicted) = learn(&samples, 1.0);
        (line, self.tokens.iter().zip(predicted).map(|(&[_, y], predicted)| [y, predicted]).collect())
    }

    /// The limits for a token of all requests in flight at an endpoint; 0 without one.
    pub(super) fn token_limits(&self, endpoint: usize) -> Vec<f64> {
        let in_flight = self.endpoint(endpoint).in_flight;
        in_flight.iter().filter_map(|sent| Some(sent.predicted?.token_limit)).collect()
    }

    fn uncached(&self) -> f64 {
        let tokens = || self.arrivals.iter().map(|&(_, tokens)| tokens);
        tokens().next().map_or(0.0, |first| mean(first, 0.01, tokens().skip(1)))
    }

    pub(super) fn rest(&self) -> f64 {
        30.0 + mean(1_000.0, 0.01, self.rests.iter().copied())
    }

    fn elsewhere(&self) -> f64 {
        let factor = mean(1.0, 0.05, self.elsewhere.iter().copied());
        if factor < 1.3 { 1.0 } else { factor }
    }

    fn arrivals_per_second(&self, now: Duration) -> f64 {
        self.arrivals.iter().map(|&(at, _)| 0.1 * (-milliseconds(at, now) / 1e4).exp()).sum()
    }

    fn endpoint(&self, endpoint: usize) -> EndpointSeen {
        self.endpoints.get(&endpoint).cloned().unwrap_or_default()
    }

    /// New readings of all endpoints.
    pub(super) fn observe(&mut self, readings: &[Reading], loads: &[Load]) {
        let (mut there, mut known, mut is_new) = (0.0, 0.0, false);
        for (index, (reading, load)) in readings.iter().zip(loads).enumerate() {
            let Some(taken) = reading.updated else { continue };
            let (waiting, running) = (reading.waiting.unwrap_or(0), reading.running.unwrap_or(0));
            there += load.requests.max(waiting.saturating_add(running)) as f64;
            known += load.requests as f64;
            let endpoint = self.endpoints.entry(index).or_default();
            let last = endpoint.at_reading.map(|last| last.taken);
            if last.is_some_and(|last| taken.abs_diff(last) < Duration::from_millis(25)) {
                continue;
            }
            is_new = true;
            endpoint.at_reading = Some(AtReading {
                taken,
                requests: load.requests as f64,
                context: endpoint.context(),
                unanswered: endpoint.unanswered() as f64,
            });
            let in_use = reading.lora.iter().flat_map(|lora| lora.running.iter().cloned());
            endpoint.adapters.extend(in_use.map(|adapter| (adapter, taken)));
            let has_memory = reading.kv_usage.is_none_or(|usage| usage < 0.9);
            endpoint.readings.push((waiting, running, has_memory));
            if waiting > 0 {
                self.waited = self.waited.max(taken);
            }
            let steps = endpoint.readings.windows(2).rev().take(4);
            let is_full = |step: &[(u64, u64, bool)]| {
                let (waiting, running, has_memory) = step[1];
                waiting > 0 && running > 0 && running <= step[0].1 && has_memory
            };
            let row = steps.filter(|step| is_full(step)).count();
            self.places = match self.places {
                Some(_) if taken.saturating_sub(self.waited) > Duration::from_secs(60) => None,
                Some(places) => Some(places.max(running as f64)),
                None => (row == 4).then_some(running as f64),
            };
        }
        if is_new && known > 0.0 {
            self.elsewhere.push((there / known).clamp(1.0, 16.0));
        }
    }

    /// The first chunk of the response to the request of this number has come.
    pub(super) fn begin(&mut self, number: usize, now: Duration) {
        let Self { endpoints, samples, outcomes, at_once, .. } = self;
        for (&index, endpoint) in endpoints.iter_mut() {
            let is_first = |sent: &&mut Sent| sent.number == number && sent.answered.is_none();
            let begins = endpoint.in_flight.iter_mut().any(|sent| is_first(&sent));
            for sent in endpoint.in_flight.iter_mut().filter(is_first) {
                sent.answered = Some(now);
                endpoint.reads_since = endpoint.reads_since.max(now);
                if let Some([x, n]) = sent.sample {
                    samples.extend(sample([x, n, milliseconds(sent.at, now)]).map(|sample| (sample, index)));
                }
                if let Some(predicted) = sent.predicted.filter(|it| it.responds && it.is_text && !it.is_whole)
                {
                    outcomes.extend(outcome(milliseconds(sent.at, now), predicted.first));
                }
            }
            if begins {
                let running = endpoint.adapters_in_flight().len().saturating_sub(endpoint.unanswered());
                *at_once = (running as f64).max(*at_once - 0.001);
            }
            endpoint.in_flight.retain(|sent| !(sent.is_prefill && sent.answered.is_some()));
        }
    }

    /// The request of this number is over, and the response was a stream if it has begun.
    pub(super) fn end(&mut self, number: usize, now: Duration) {
        let rest = self.rest() - 30.0;
        let Self { endpoints, rests, outcomes, tokens, streams, .. } = self;
        for endpoint in endpoints.values_mut() {
            for sent in endpoint.in_flight.iter().filter(|sent| sent.number == number) {
                if let (Some(answered), Some(predicted)) =
                    (sent.answered, sent.predicted.filter(|it| it.responds))
                {
                    if predicted.is_whole {
                        let outcome = outcome(milliseconds(sent.at, now), predicted.first);
                        let outcome = outcome.filter(|_| predicted.is_text);
                        outcomes.extend(outcome.map(|[actual, first]| [actual, first + rest]));
                    } else {
                        let token = milliseconds(answered, now) / (CHUNKS - 1) as f64;
                        let token = sample([0.0, predicted.requests, token]);
                        tokens.extend(token.map(|[_, requests, token]| [requests, token]));
                    }
                }
                // A longer rest counts as ten minutes.
                rests.extend(sent.answered.map(|answered| milliseconds(answered, now).min(6e5)));
                streams.extend(sent.answered.and(sent.adapter.clone().or(Some(String::new()))));
            }
            endpoint.in_flight.retain(|sent| sent.number != number);
        }
    }
}

/// Cost of one endpoint.
struct Terms {
    to_read: f64,
    requests: f64,
    /// Milliseconds until the adapter is loaded.
    adapter: f64,
    wait: f64,
    cost: f64,
}

impl Cycle<'_> {
    fn seen(&self, plugin: &Plugin) -> Seen {
        self.states.latency.get(&plugin.name).cloned().unwrap_or_default()
    }

    /// Expected milliseconds to the first chunk.
    pub(super) fn first_chunk(&self, plugin: &Plugin, seen: &Seen, endpoint: usize) -> f64 {
        let Terms { to_read, requests, adapter, wait, .. } = self.terms(plugin, seen, endpoint, 0.0);
        let c0 = 1_000.0 / plugin.number("prefillThroughput", 8_000.0);
        seen.speed(c0, endpoint) * seen.line(c0).at(to_read, requests) + adapter + wait
    }

    pub(super) fn requests_there(&self, seen: &Seen, endpoint: usize) -> f64 {
        let (reading, now) = (self.reading(endpoint), self.load(endpoint).requests as f64);
        let at_server = reading.waiting.unwrap_or(0) as f64 + reading.running.unwrap_or(0) as f64;
        let since = seen.endpoint(endpoint).at_reading.map_or(0.0, |then| now - then.requests);
        now + (at_server.min(1e4) + since - now).max(0.0) * self.correction(endpoint) / seen.elsewhere()
    }

    /// The share of what a reading shows beyond the known loads that counts at its age.
    fn correction(&self, endpoint: usize) -> f64 {
        let updated = self.reading(endpoint).updated;
        let age = updated.map_or(0.0, |updated| milliseconds(updated, self.situation.now));
        1.0 / (1.0 + (age / 200.0).powi(2))
    }

    /// The model, if it may be an adapter: a server has reported it, or none reports adapters.
    fn counted(&self, seen: &Seen) -> Option<String> {
        let is_known = self.states.adapters.contains(self.spec.model) && !seen.endpoints.is_empty();
        (is_known || !self.states.has_lora).then(|| self.spec.model.to_owned())
    }

    /// The adapter that the model is. Where none is reported, each model is one when streams of two have
    /// ended and half of the responses are streams, in a mean that begins with none.
    fn adapter(&self, seen: &Seen) -> Option<String> {
        let mut models: Vec<&String> = seen.streams.iter().filter(|model| !model.is_empty()).collect();
        models.dedup();
        let share = mean(0.0, 0.01, seen.streams.iter().map(|_| 1.0));
        let is_shown = self.states.has_lora || models.len() > 1 && share >= 0.5;
        self.counted(seen).filter(|_| is_shown)
    }

    /// Adapters that the endpoint holds at once.
    fn max_adapters(&self, seen: &Seen, endpoint: usize) -> usize {
        let max = self.reading(endpoint).lora.as_ref().map_or(0, |lora| lora.max);
        let shown = if self.states.has_lora { f64::from(self.states.max_adapters) } else { seen.at_once };
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a small number")]
        let max = if max > 0 { f64::from(max) } else { shown }.round().max(1.0) as usize;
        max
    }

    /// The probability that the adapter which the next one evicts there is needed while it could have stayed.
    fn reuse_probability(&self, seen: &Seen, endpoint: usize) -> f64 {
        let unused = |endpoint: usize| {
            let used = seen.endpoint(endpoint).evicted(self.max_adapters(seen, endpoint))?;
            Some(self.situation.since(used).as_secs_f64())
        };
        let Some(here) = unused(endpoint) else { return 0.0 };
        let longest = (0..self.situation.pool.as_slice().len()).filter_map(unused).fold(0.0, f64::max);
        if longest > 0.0 { longest / (longest + here) } else { 1.0 }
    }

    fn terms(&self, plugin: &Plugin, seen: &Seen, endpoint: usize, mean_requests: f64) -> Terms {
        let c0 = 1_000.0 / plugin.number("prefillThroughput", 8_000.0);
        let (Line { c, b, .. }, speed) = (seen.line(c0), seen.speed(c0, endpoint));
        let (reading, load, state) = (self.reading(endpoint), self.load(endpoint), seen.endpoint(endpoint));
        let requests = self.requests_there(seen, endpoint);
        let uncached = (self.missing_tokens(plugin.prefixes(), endpoint) as f64).max(1.0);
        let mut backlog = load.tokens as f64 * seen.elsewhere();
        let since = self.situation.since(state.reads_since).as_secs_f64() * 1e3;
        backlog -= (0.8 * backlog).min(since / (c * speed));
        if let Some(then) = state.at_reading {
            let unknown = (reading.waiting.unwrap_or(0) as f64 - then.unanswered).max(0.0);
            backlog += unknown * self.correction(endpoint) * seen.uncached();
        }
        backlog = backlog.min(1e7);
        let rest = seen.rest();
        let [adapter, evicted] = self.adapter(seen).map_or([0.0; 2], |adapter| {
            let lora = reading.lora.clone().unwrap_or_default();
            if lora.running.contains(&adapter) || state.adapters_in_flight().contains(&&adapter) {
                return [0.0; 2];
            }
            let max = self.max_adapters(seen, endpoint);
            let others = if seen.elsewhere() > 1.0 { lora.running.len() } else { 0 };
            let load = plugin.number("loraLoadMs", 40.0);
            if state.adapters_in_flight().len().max(others) >= max {
                [load + rest / 2.0, load]
            } else if state.recent().into_iter().take(max).any(|(recent, _)| *recent == adapter) {
                [0.0; 2]
            } else {
                [load, load * self.reuse_probability(seen, endpoint)]
            }
        });
        let fixed = plugin.number("maxRunning", 0.0);
        let places = if fixed > 0.0 { Some(fixed) } else { seen.places };
        let for_place = places.map_or(0.0, |places| (requests + 1.0 - places).max(0.0) * rest / places);
        let mut wait = for_place;
        if let Some(usage) = reading.kv_usage {
            let [blocks, size] = [reading.num_blocks, reading.block_size].map(Option::unwrap_or_default);
            let of_blocks = u64::from(blocks) * u64::from(size);
            let memory = reading.cache_tokens.unwrap_or(of_blocks) as f64;
            let then = state.at_reading.map_or(state.context(), |then| then.context);
            let more = (state.context() - then + uncached).max(0.0);
            let usage = usage + if memory > 0.0 { more / memory } else { 0.0 };
            wait += rest * (20.0 * (usage - 0.95).max(0.0)).min(4.0);
        }
        let pool = self.situation.pool.as_slice().len() as f64;
        let arrivals = seen.arrivals_per_second(self.situation.now) * seen.elsewhere() / pool;
        let ratio = requests / (mean_requests + 1.0);
        let meanwhile = arrivals * uncached * c / 1_000.0;
        let alone = backlog * c + uncached * c + (adapter + evicted);
        let read = alone * (1.0 + ratio + meanwhile) + for_place * meanwhile;
        let cost = speed * (read + b * requests) + wait;
        Terms { to_read: backlog + uncached, requests, adapter, wait, cost }
    }

    pub(super) fn expected_latency(&self, plugin: &Plugin, candidates: &[usize]) -> Vec<f64> {
        let seen = self.seen(plugin);
        let requests = candidates.iter().map(|&endpoint| self.requests_there(&seen, endpoint));
        let mean = requests.sum::<f64>() / candidates.len() as f64;
        let score = |&endpoint: &usize| {
            let cost = self.terms(plugin, &seen, endpoint, mean).cost;
            1_000.0 / (1_000.0 + (cost * 2.0 + 1e-6).round() / 2.0)
        };
        candidates.iter().map(score).collect()
    }

    /// Sends the request of this number to its endpoints.
    pub(super) fn expect(&self, plugin: &Plugin, targets: &[usize], number: usize, seen: &mut Seen) {
        let before = seen.clone();
        let now = self.situation.now;
        let targets = if targets.len() == 2 && targets[0] == targets[1] { &targets[..1] } else { targets };
        for (place, &target) in targets.iter().enumerate() {
            let is_streaming = plugin.flag("streamingMode", false);
            let is_text = !matches!(self.spec.prompt, Prompt::Image { .. });
            let predicted = (plugin.kind == "predicted-latency-producer").then(|| Predicted {
                is_whole: !is_streaming,
                first: self.first_chunk(plugin, &before, target),
                requests: self.requests_there(&before, target),
                responds: place == 0,
                is_text,
                token_limit: if is_streaming { self.limits()[1] } else { 0.0 },
            });
            let Terms { to_read, requests, adapter, wait, .. } = self.terms(plugin, &before, target, 0.0);
            let is_sample = targets.len() == 1 && adapter <= 0.0 && wait <= 0.0 && is_text;
            let max = self.max_request_tokens(target);
            let missing = self.missing_tokens(plugin.prefixes(), target).min(max) as f64;
            let model = self.counted(&before);
            seen.arrivals.push((now, missing));
            let endpoint = seen.endpoints.entry(target).or_default();
            if endpoint.unanswered() == 0 {
                endpoint.reads_since = now;
            }
            endpoint.adapters.extend(model.clone().map(|model| (model, now)));
            endpoint.in_flight.push(Sent {
                number,
                at: now,
                prompt: self.tokens().min(max) as f64,
                adapter: model,
                sample: is_sample.then_some([to_read, requests]),
                answered: None,
                is_prefill: place > 0,
                predicted,
            });
        }
    }
}
