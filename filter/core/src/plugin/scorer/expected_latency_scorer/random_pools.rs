//! The scores of random pools after random histories are bit for bit those of a formula that computes each
//! endpoint from the state and the readings themselves.

use core::time::Duration;

use super::*;
use crate::plugin::fixture::{Fixture, NOW, prompt_of};
use crate::pool::load::{FractionalLoad, Load};
use crate::pool::reading::{Lora, Reading};
use crate::rng::{Rng, SplitMix64};
use crate::state::latency::{CompleteResponse, Expectation, Sent, adapter_key};
use crate::state::prefix::PrefixMatch;
use crate::state::{ChangedReadings, Observation, PluginStates, StateChange};
use crate::test;

/// Random pools.
const POOLS: u64 = 60;

/// Models of requests.
const MODELS: [&str; 3] = ["base", "sql", "legal"];

/// The scores of candidates, computed one by one.
fn straightforward_scores(cycle: &Cycle<'_>, candidates: &[usize]) -> Vec<f64> {
    let nothing = LatencyState::new(ExpectedLatencyScorer::DEFAULT_PARAMETERS.prior);
    let state = cycle.state::<LatencyState>().unwrap_or(&nothing);
    let slopes = state.slopes(ExpectedLatencyScorer::DEFAULT_PARAMETERS.prior);
    let rest = state.rest();
    let correction = |endpoint: usize| {
        let age = cycle.reading(endpoint).updated.map(|updated| cycle.now.saturating_sub(updated));
        let ages = age.map_or(0.0, |age| age.as_secs_f64() / 0.2);
        1.0 / (1.0 + ages * ages)
    };
    let requests = |endpoint: usize| {
        let known = cycle.comparable_load(endpoint).requests;
        let reading = cycle.reading(endpoint);
        let at_reading = reading.waiting.unwrap_or(0) as f64 + reading.running.unwrap_or(0) as f64;
        let then = state.at(endpoint).at_reading();
        let since = then.map_or(0.0, |then| cycle.load(endpoint).requests as f64 - then.requests);
        let unknown = at_reading.min(1e4) + since - known;
        if unknown > 0.0 { known + unknown * correction(endpoint) / state.elsewhere() } else { known }
    };
    let (endpoints, number) = (cycle.pool.as_slice().len() as f64, candidates.len() as f64);
    let arrivals = state.arrivals(cycle.now) * state.elsewhere() / (1e3 * endpoints);
    let mean = candidates.iter().map(|&endpoint| requests(endpoint)).sum::<f64>() / number;
    let max_adapters = |endpoint: usize| {
        let max = cycle.reading(endpoint).lora.as_ref().map_or(0, |lora| lora.max);
        (if max > 0 { max } else { state.max_adapters().max(1) }) as usize
    };
    let unused = |endpoint: usize| {
        let used = state.at(endpoint).next_evicted(max_adapters(endpoint))?;
        Some(cycle.now.saturating_sub(used).as_secs_f64())
    };
    let kept = (0..cycle.pool.as_slice().len()).filter_map(unused).fold(0.0, f64::max);
    let cost = |endpoint: usize| {
        let (at, reading) = (state.at(endpoint), cycle.reading(endpoint));
        let (then, requests) = (at.at_reading(), requests(endpoint));
        let speed = if state.is_one_of_several() { 1.0 } else { at.speed() };
        let uncached = cycle.prefix().missing_tokens(cycle.request.input_tokens(), endpoint) as f64;
        let uncached = uncached.clamp(1.0, 1e7);
        let mut backlog = cycle.comparable_load(endpoint).tokens * state.elsewhere();
        let since = cycle.now.saturating_sub(at.reads_since()).as_secs_f64() * 1e3;
        backlog -= (0.8 * backlog).min(since / slopes.per_token / speed);
        if let (Some(waiting), Some(then)) = (reading.waiting, then) {
            let unknown = (waiting as f64 - then.unanswered).max(0.0);
            backlog += unknown * correction(endpoint) * state.uncached();
        }
        let for_place = state
            .places()
            .map_or(0.0, |places| (requests + 1.0 - places as f64).max(0.0) * rest / places as f64);
        let mut wait = for_place;
        if let Some(usage) = reading.kv_usage {
            let more = then.map_or(0.0, |then| at.context() as f64 - then.context) + uncached;
            let more = reading.kv_tokens().map_or(0.0, |tokens| more.max(0.0) / tokens as f64);
            wait += rest * (20.0 * (usage - 0.95 + more)).clamp(0.0, 4.0);
        }
        let adapter = state.adapter(cycle.request.model).map_or(0.0, |adapter| {
            let lora = reading.lora.as_ref();
            let running = lora.map_or(&[][..], |lora| &lora.running);
            let (is_in_flight, known) = at.adapters_in_flight(adapter);
            let held = if state.is_one_of_several() { known.max(running.len()) } else { known };
            let max = max_adapters(endpoint);
            if is_in_flight || running.iter().any(|name| name == cycle.request.model) {
                0.0
            } else if held >= max {
                40.0 + rest / 2.0 + 40.0
            } else if at.is_recent(adapter, max) {
                0.0
            } else {
                let reuse = unused(endpoint).map_or(0.0, |unused| kept / (kept + unused));
                // 0 / 0: all were used at this moment.
                40.0 + 40.0 * if reuse.is_nan() { 1.0 } else { reuse }
            }
        });
        let own = uncached * slopes.per_token;
        let delayed = 1.0 + requests / (mean + 1.0) + arrivals * own;
        let read =
            (backlog.min(1e7) * slopes.per_token + own + adapter) * delayed + arrivals * own * for_place;
        (2.0 * (speed * (read + slopes.per_request * requests) + wait) + 1e-6).round() / 2.0
    };
    candidates.iter().map(|&endpoint| 1_000.0 / (1_000.0 + cost(endpoint))).collect()
}

/// A pool with a random history.
struct RandomHistory {
    fixture: Fixture,
    rng: SplitMix64,
    endpoints: usize,
    /// Whether other proxies have loads.
    is_shared: bool,
}

impl RandomHistory {
    fn new(seed: u64) -> Self {
        let mut rng = SplitMix64::new(seed);
        let endpoints = 1 + rng.below([4, 20, 70][rng.clone().below(3)]);
        let mut fixture = Fixture::of(endpoints);
        fixture.states = PluginStates::only(Box::new(LatencyState::new(0.125)));
        fixture.in_flight = vec![Load::default(); endpoints];
        let is_shared = rng.below(3) == 0;
        Self { fixture, rng, endpoints, is_shared }
    }

    fn chance(&mut self, part: f64) -> bool {
        self.rng.unit() < part
    }

    fn below(&mut self, limit: usize) -> u64 {
        self.rng.below(limit) as u64
    }

    fn number(&mut self, limit: usize) -> u32 {
        u32::try_from(self.rng.below(limit)).unwrap()
    }

    fn reading(&mut self) -> Reading {
        let updated = self.fixture.now.saturating_sub(Duration::from_micros(self.below(400_000)));
        let lora = Lora {
            running: MODELS[1..].iter().filter(|_| self.rng.below(2) == 0).map(|&name| name.into()).collect(),
            waiting: vec![],
            max: self.number(3),
        };
        Reading {
            ready: true,
            updated: self.chance(0.95).then_some(updated),
            waiting: self.chance(0.9).then(|| self.rng.below(12).saturating_sub(6) as u64),
            running: self.chance(0.9).then(|| self.rng.below(20) as u64),
            kv_usage: self.chance(0.9).then(|| 1.1 * self.rng.unit()),
            block_size: self.chance(0.9).then_some(16),
            num_blocks: self.chance(0.9).then(|| 500 + self.number(4_000)),
            lora: self.chance(0.2).then_some(lora),
            ..Reading::default()
        }
    }

    fn load(&mut self) -> Load {
        let requests = self.below(9);
        Load { requests, tokens: requests * self.below(900) }
    }

    /// New readings of all endpoints arrive, or of a part of them.
    fn observe(&mut self) {
        let part = [0.1, 0.5, 1.0][self.rng.below(3)];
        let places: Vec<usize> = (0..self.endpoints).filter(|_| self.chance(part)).collect();
        for &place in &places {
            self.fixture.readings[place] = self.reading();
        }
        let changed = if self.chance(0.1) { ChangedReadings::All } else { ChangedReadings::At(&places) };
        let others: Vec<Load> = (0..self.endpoints).map(|_| self.load()).collect();
        let Fixture { states, readings, in_flight, .. } = &mut self.fixture;
        let others = if self.is_shared { &others[..] } else { &[] };
        states.observe(&Observation { readings, changed, in_flight, others });
    }

    /// A request is sent, answered or over, here or at another proxy.
    fn change(&mut self) {
        let endpoint = self.rng.below(self.endpoints);
        let adapter = adapter_key(MODELS[self.rng.below(3)]);
        let milliseconds = Duration::from_micros(self.below(90_000));
        let expected = Expectation {
            plugin: 0,
            endpoint: 0,
            prompt: self.below(900),
            adapter,
            tokens: 900.0 * self.rng.unit(),
            requests: 4.0,
            milliseconds: 30.0,
            is_sample: true,
            is_prefill: false,
            has_media: false,
            predicted: None,
        };
        let now = self.fixture.now;
        let words = match self.rng.below(4) {
            0 | 1 => {
                self.fixture.in_flight[endpoint] = self.load();
                let uncached = self.below(900);
                let is_alone = self.chance(0.1);
                Sent { uncached, prompt: expected.prompt, adapter, is_alone, token_limit: None }.words()
            }
            2 => expected.answered(now, Some(milliseconds)).words,
            _ => {
                let rest = Some(10 * milliseconds);
                let response = CompleteResponse { rest, ..CompleteResponse::default() };
                expected.ended(now, true, Some(&response)).words
            }
        };
        let is_of_other = self.is_shared && self.chance(0.3);
        let mut states = core::mem::take(&mut self.fixture.states);
        self.fixture.with_cycle(|cycle| {
            let change = StateChange {
                endpoint: cycle.endpoint(endpoint).key(),
                ..cycle.state_change(endpoint, words)
            };
            if is_of_other { states.merge(&change, cycle.pool) } else { states.apply(&change, cycle.pool) }
        });
        self.fixture.states = states;
    }

    /// Endpoints leave, join and get other places.
    fn remap(&mut self) {
        let mut moves: Vec<Option<usize>> = (0..self.endpoints).map(Some).collect();
        for from in 0..self.endpoints {
            moves.swap(from, self.rng.below(self.endpoints));
            if self.rng.below(4) == 0 {
                moves[from] = None;
            }
        }
        self.fixture.states.remap(&moves);
    }

    /// Compares the scores of some of the endpoints for a random request.
    fn check(&mut self, context: &str) {
        let fixture = &mut self.fixture;
        fixture.request.model = MODELS[self.rng.below(3)];
        fixture.request.prompt = Some(prompt_of(self.rng.below(2_000) as u64));
        let total = 1 + u32::try_from(self.rng.below(8)).unwrap();
        let blocks = |_| u32::try_from(self.rng.below(16)).unwrap().saturating_sub(8).min(total);
        let matched = (0..self.endpoints).map(blocks);
        fixture.prefix(PrefixMatch {
            matched: matched.collect(),
            total,
            block_size: 64,
            ..PrefixMatch::default()
        });
        if self.is_shared {
            let mut deferred =
                || FractionalLoad { requests: self.rng.unit() - 0.5, tokens: 80.0 * self.rng.unit() };
            fixture.deferred = (0..self.endpoints.div_ceil(2)).map(|_| deferred()).collect();
        }
        let mut candidates: Vec<usize> = (0..self.endpoints).collect();
        if self.rng.below(2) == 0 {
            candidates.retain(|_| self.rng.below(4) > 0);
        }
        fixture.with_cycle(|cycle| {
            let expected = straightforward_scores(cycle, &candidates);
            let mut scores = vec![0.0; candidates.len()];
            ExpectedLatencyScorer::default().score(cycle, &candidates, &mut scores);
            let bits = |scores: &[f64]| scores.iter().map(|score| score.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&scores), bits(&expected), "{context}: {scores:?}, not {expected:?}");
        });
    }
}

#[test]
fn scores_are_bit_for_bit_those_of_the_straightforward_formula() {
    for seed in 1..=POOLS {
        let mut history = RandomHistory::new(seed);
        history.fixture.now = NOW + Duration::from_nanos(seed * 123_457);
        history.check(&format!("seed {seed}, before readings"));
        for step in 0..60 {
            history.fixture.now += Duration::from_nanos(7_654_321);
            let kind = history.rng.below(12);
            match kind {
                0 | 1 => history.observe(),
                2 if step % 3 == 0 => history.remap(),
                _ => history.change(),
            }
            history.check(&format!("seed {seed}, step {step} of kind {kind}"));
        }
        // As for a pipeline whose readings are too old.
        history.fixture.readings.clear();
        history.check(&format!("seed {seed}, without readings"));
    }
}
