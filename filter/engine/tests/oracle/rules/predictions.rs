//! Predicted latencies, from the history of the responses, and the plugins that read them.

use super::cycle::Cycle;
use super::latency::Seen;
use super::plan::Plugin;
use super::regression::Line;

/// Predicted time of an endpoint.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prediction {
    pub(super) first: f64,
    /// Headrooms of the first and of further tokens.
    pub(super) headrooms: [f64; 2],
    pub(super) is_valid: bool,
}

impl Prediction {
    pub(super) fn is_positive(&self) -> bool {
        self.headrooms.iter().all(|headroom| *headroom >= 0.0)
    }
}

/// The factor after these times, each with its predicted one: nine of ten are to be below.
pub(super) fn margin(outcomes: &[[f64; 2]]) -> f64 {
    outcomes.iter().fold(1.0, |margin: f64, [actual, predicted]| {
        let step: f64 = if *actual > margin * predicted.max(1.0) { 0.02 * 0.9 } else { 0.02 * (0.9 - 1.0) };
        (margin * step.exp()).clamp(0.25, 16.0)
    })
}

/// Whole microseconds.
fn cut(milliseconds: f64) -> f64 {
    (milliseconds * 1_000.0 + 1e-6).round() / 1_000.0
}

impl Cycle<'_> {
    /// The client's limit for the first token, and for further ones; 0 without one.
    pub(super) fn limits(&self) -> [f64; 2] {
        ["ttft", "tpot"].map(|of| {
            let names = [format!("x-llm-d-slo-{of}-ms"), format!("x-slo-{of}-ms")];
            let text = names.into_iter().find_map(|name| self.header(&name));
            text.and_then(|text| text.parse::<f64>().ok()).filter(|limit| *limit > 0.0).unwrap_or(0.0)
        })
    }

    /// The predictor that a plugin reads; none if that only learns.
    fn predictor(&self) -> Option<&Plugin> {
        let mut plugins = self.plan.plugins.iter();
        let predictor = plugins.find(|plugin| plugin.kind == "predicted-latency-producer")?;
        Some(predictor).filter(|predictor| predictor.flag("predictInProduce", true))
    }

    pub(super) fn prediction(&self, endpoint: usize) -> Option<Prediction> {
        let predictor = self.predictor()?;
        let seen = self.states.latency.get(&predictor.name).cloned().unwrap_or_default();
        let first = self.first_chunk(predictor, &seen, endpoint);
        let limits = self.limits();
        let keeps = |limit: f64, time: f64| limit <= 0.0 || time < limit;
        if !predictor.flag("streamingMode", false) {
            let first = cut((first + seen.rest() - 30.0) * margin(&seen.outcomes));
            let is_valid = keeps(limits[0], first);
            return Some(Prediction { first, headrooms: [limits[0] - first, 0.0], is_valid });
        }
        let first = cut(first * margin(&seen.outcomes));
        let token = self.token_time(&seen, endpoint);
        let label = predictor.text("endpointRoleLabel", "none");
        if self.label(endpoint, label) == Some("prefill") {
            let is_valid = keeps(limits[0], first);
            return Some(Prediction { first, headrooms: [limits[0] - first, 0.0], is_valid });
        }
        let others = seen.token_limits(endpoint);
        let least = others.iter().copied().fold(f64::INFINITY, f64::min);
        let least = if least > 0.0 { least } else { f64::INFINITY };
        let bound = limits[1].min(least) * predictor.number("sloBufferFactor", 1.0);
        let is_valid = keeps(limits[0], first) && keeps(bound, token);
        Some(Prediction { first, headrooms: [limits[0] - first, bound - token], is_valid })
    }

    fn token_time(&self, seen: &Seen, endpoint: usize) -> f64 {
        let (line, outcomes) = seen.tokens();
        cut(Line::at(line, 0.0, self.requests_there(seen, endpoint)) * margin(&outcomes))
    }

    /// Whether the request is refused because no endpoint would keep its limits.
    pub(super) fn misses_limits(&self, candidates: &[usize]) -> bool {
        let is_concerned = self.spec.priority < 0 && self.limits().iter().any(|limit| *limit > 0.0);
        let is_missed = |&endpoint: &usize| {
            let reading = self.reading(endpoint);
            self.prediction(endpoint).is_some_and(|prediction| !prediction.is_valid)
                && reading.running.unwrap_or(0) > 0
                && reading.kv_usage.unwrap_or(0.0) >= 0.02
        };
        is_concerned && candidates.iter().all(is_missed)
    }

    pub(super) fn by_headroom(&self, plugin: &Plugin, candidates: &[usize]) -> Vec<f64> {
        let all: Option<Vec<Prediction>> = candidates.iter().map(|&e| self.prediction(e)).collect();
        let Some(all) = all else { return self.composite(plugin, candidates) };
        let misses = |at: usize| all[at].headrooms.map(|headroom| headroom < 0.0);
        let places =
            |keep: &dyn Fn(usize) -> bool| -> Vec<usize> { (0..all.len()).filter(|&at| keep(at)).collect() };
        let groups = [
            places(&|at| misses(at) == [false, false]),
            places(&|at| self.load(candidates[at]).requests == 0),
            places(&|at| misses(at) == [false, true]),
            places(&|at| misses(at) == [true, false]),
            places(&|_| true),
        ];
        let first = groups.iter().position(|group| !group.is_empty()).unwrap();
        let is_most = first == 0 && plugin.text("headroomSelectionStrategy", "least") == "most";
        let range = |dimension: usize| {
            let distances = groups[first].iter().map(|&at| all[at].headrooms[dimension].abs());
            let (low, high) =
                distances.fold((f64::MAX, 0.0_f64), |(low, high), it| (low.min(it), high.max(it)));
            (low, high - low)
        };
        let ranges = [range(0), range(1)];
        let weights = ["ttftWeight", "tpotWeight"]
            .map(|name| plugin.number(name, if name == "ttftWeight" { 0.8 } else { 0.2 }));
        let sum: f64 = weights.iter().sum();
        let weights = match ranges.map(|(_, length)| length <= 1e-9) {
            [_, true] => [1.0, 0.0],
            [true, false] => [0.0, 1.0],
            _ if sum > 0.0 => weights.map(|weight| weight / sum),
            _ => [1.0, 0.0],
        };
        let score = |at: usize| {
            let place = |dimension: usize| {
                let (low, length) = ranges[dimension];
                if length <= 1e-9 { 0.5 } else { (all[at].headrooms[dimension].abs() - low) / length }
            };
            let c = weights[0] * place(0) + weights[1] * place(1);
            ((100.0 * if is_most { c } else { 1.0 - c } + 1e-6).floor() + 1.0) / 100.0
        };
        (0..all.len()).map(|at| if groups[first].contains(&at) { score(at) } else { 0.0 }).collect()
    }

    fn composite(&self, plugin: &Plugin, candidates: &[usize]) -> Vec<f64> {
        let weight = |name: &str| plugin.number(name, 1.0);
        let queue = |endpoint: usize| self.reading(endpoint).waiting.unwrap_or(0) as f64;
        let longest = candidates.iter().map(|&endpoint| queue(endpoint)).fold(0.0, f64::max);
        let [kv, waiting, prefix] =
            ["compositeKVWeight", "compositeQueueWeight", "compositePrefixWeight"].map(weight);
        let score = |&endpoint: &usize| {
            let room = 1.0 - self.reading(endpoint).kv_usage.unwrap_or(0.0);
            let short = if longest > 0.0 { (longest - queue(endpoint)) / longest } else { 1.0 };
            let cached = self.matches(plugin.prefixes()).ratio(endpoint);
            let sum = kv + waiting + prefix;
            let share = if sum > 0.0 { (kv * room + waiting * short + prefix * cached) / sum } else { room };
            (100.0 * share + 1e-6).round() / 100.0
        };
        candidates.iter().map(score).collect()
    }
}
