//! Scorers: as configurations declare them, and how each rates.

use endpoint_picker::pool::reading::Lora;
use serde_json::{Value, json};

use super::cycle::Cycle;
use super::filters::{DEFAULT_RANGE, near};
use super::plan::Plugin;
use crate::catalog::{AGENTS, BURSTS, OWN_PREFIXES, SESSIONS};
use crate::world::Prompt;

/// Scorers that rate by readings, whatever their parameters.
pub(super) const BY_READINGS: &[&str] = &[
    "queue-scorer",
    "running-requests-size-scorer",
    "kv-cache-utilization-scorer",
    "load-aware-scorer",
    "lora-affinity-scorer",
];

/// Scorers that read the matches of a prefix producer.
pub(super) const BY_PREFIXES: &[&str] = &[
    "prefix-cache-scorer",
    "no-hit-lru-scorer",
    "lmetric-scorer",
    "expected-latency-scorer",
    "latency-scorer",
];

/// Each scorer with parameters that change what it does.
pub(crate) fn scorers() -> Vec<Value> {
    let attribute = |key: &str, by: &str, kind: &str, range: Value| {
        let algorithm = json!({"type": kind, "normalization": range});
        let parameters = json!({"attributeKey": key, "producer": by, "algorithm": algorithm});
        json!({"type": "endpoint-attribute-scorer", "parameters": parameters})
    };
    let (extractor, load) = ("core-metrics-extractor", "inflight-load-producer");
    let (lower, higher) = ("linear_lower_is_better", "linear_higher_is_better");
    let by_id = |sources: Value, seconds: u32| {
        json!({"type": "session-affinity-scorer", "parameters": {
            "strategy": "session_id",
            "sessionIdConfig": {"sources": sources, "evictionTtlSeconds": seconds},
        }})
    };
    vec![
        json!({"type": "queue-scorer"}),
        json!({"type": "queue-scorer"}),
        json!({"type": "kv-cache-utilization-scorer"}),
        json!({"type": "kv-cache-utilization-scorer"}),
        json!({"type": "running-requests-size-scorer"}),
        json!({"type": "load-aware-scorer"}),
        json!({"type": "load-aware-scorer", "parameters": {"threshold": 4}}),
        json!({"type": "load-aware-scorer", "parameters": {"threshold": -1}}),
        json!({"type": "active-request-scorer"}),
        json!({"type": "active-request-scorer", "parameters": {"idleThreshold": 1, "maxBusyScore": 0.5}}),
        json!({"type": "active-request-scorer", "parameters": {"idleThreshold": -3, "maxBusyScore": 7}}),
        json!({"type": "token-load-scorer"}),
        json!({"type": "token-load-scorer", "parameters": {"queueThresholdTokens": 900}}),
        json!({"type": "token-load-scorer", "parameters": {"queueThresholdTokens": 0}}),
        json!({"type": "lmetric-scorer"}),
        json!({"type": "lmetric-scorer", "parameters": {"countTokensInFlight": false}}),
        json!({"type": "lmetric-scorer", "parameters": {"prefixMatchInfoProducerName": OWN_PREFIXES}}),
        json!({"type": "expected-latency-scorer"}),
        json!({"type": "expected-latency-scorer", "parameters": {
            "prefillThroughput": 100_000, "maxRunning": 3, "loraLoadMs": 700,
            "prefixMatchInfoProducerName": OWN_PREFIXES}}),
        json!({"type": "latency-scorer"}),
        json!({"type": "latency-scorer", "parameters": {
            "ttftWeight": 1, "tpotWeight": 3, "headroomSelectionStrategy": "most", "compositeKVWeight": 2}}),
        json!({"type": "latency-scorer", "parameters": {
            "ttftWeight": 0, "tpotWeight": 0, "compositeKVWeight": 0, "compositeQueueWeight": 0,
            "compositePrefixWeight": 0, "prefixMatchInfoProducerName": OWN_PREFIXES}}),
        json!({"type": "prefix-cache-scorer"}),
        json!({"type": "prefix-cache-scorer", "parameters": {
            "matchLengthWeight": 0.5, "matchLengthScaleTokens": 300}}),
        json!({"type": "prefix-cache-scorer", "parameters": {
            "matchLengthWeight": 1, "prefixMatchInfoProducerName": OWN_PREFIXES}}),
        json!({"type": "prefix-cache-scorer", "parameters": {"prefixMatchInfoProducerName": BURSTS}}),
        json!({"type": "no-hit-lru-scorer", "parameters": {"prefixMatchInfoProducerName": BURSTS}}),
        json!({"type": "mm-embeddings-cache-scorer"}),
        json!({"type": "no-hit-lru-scorer"}),
        json!({"type": "no-hit-lru-scorer", "parameters": {"lruSize": 2}}),
        json!({"type": "no-hit-lru-scorer", "parameters": {"prefixMatchInfoProducerName": OWN_PREFIXES}}),
        json!({"type": "lora-affinity-scorer"}),
        json!({"type": "lora-affinity-scorer", "parameters": {"countTwice": true}}),
        json!({"type": "lora-affinity-scorer", "parameters": {"unreportedAsEmpty": false}}),
        json!({"type": "context-length-aware"}),
        json!({"type": "context-length-aware", "parameters": {"label": "range", "enableFiltering": true}}),
        json!({"type": "header-label-affinity-scorer", "parameters": {
            "headerName": "X-Zone", "labelKey": "zone"}}),
        json!({"type": "topology-affinity-scorer"}),
        json!({"type": "session-affinity-scorer"}),
        json!({"type": "session-affinity-scorer", "parameters": {
            "encodedEndpointHeaderConfig": {"header": "x-mine"}}}),
        by_id(json!([]), 0),
        by_id(json!([{"header": "x-other"}, {"attribute": "SessionIDDataKey", "producer": SESSIONS}]), 8),
        by_id(json!([{"attribute": AGENTS}, {"header": "x-session-id"}]), 0),
        attribute("WaitingQueueSize", extractor, lower, json!({})),
        attribute("RunningRequestsSize", extractor, higher, json!({"adaptiveRange": {}})),
        attribute("KVCacheUsagePercent", extractor, lower, json!({"fixedRange": {"min": 0.2, "max": 0.7}})),
        attribute("GPUUtilization", "dcgm-extractor", lower, json!({"fixedRange": {"min": 0, "max": 1}})),
        attribute("InFlightRequests", load, lower, json!({})),
        attribute("InFlightTokens", load, higher, json!({"fixedRange": {"min": 0, "max": 500}})),
    ]
}

/// One score for each candidate, in 0..=1; the mean of the others' for those without a fresh reading.
pub(super) fn shares(cycle: &Cycle<'_>, plugin: &Plugin, candidates: &[usize]) -> Vec<f64> {
    let is_known = |&&endpoint: &&usize| !plugin.goes_by_readings() || cycle.is_known(endpoint);
    let known: Vec<usize> = candidates.iter().filter(is_known).copied().collect();
    if known.is_empty() {
        return vec![0.5; candidates.len()];
    }
    let clamp = |score: f64| if score.is_nan() { 0.0 } else { score.clamp(0.0, 1.0) };
    let scores: Vec<f64> = score(cycle, plugin, &known).into_iter().map(clamp).collect();
    let mean = scores.iter().sum::<f64>() / scores.len() as f64;
    let place = |endpoint: &usize| known.iter().position(|known| known == endpoint);
    candidates.iter().map(|endpoint| place(endpoint).map_or(mean, |place| scores[place])).collect()
}

/// One score for each candidate, before it is brought into 0..=1.
fn score(cycle: &Cycle<'_>, plugin: &Plugin, candidates: &[usize]) -> Vec<f64> {
    let each = |rate: &dyn Fn(usize) -> f64| -> Vec<f64> { candidates.iter().map(|&e| rate(e)).collect() };
    let positive = |parameter: &str, default: f64| {
        let number = plugin.number(parameter, default);
        if number > 0.0 { number } else { default }
    };
    match plugin.kind.as_str() {
        "queue-scorer" => least_is_best(&each(&|e| cycle.reading(e).waiting.unwrap_or(0) as f64)),
        "running-requests-size-scorer" => {
            least_is_best(&each(&|e| cycle.reading(e).running.unwrap_or(0) as f64))
        }
        "kv-cache-utilization-scorer" => each(&|e| 1.0 - cycle.reading(e).kv_usage.unwrap_or(0.0)),
        "load-aware-scorer" => {
            let threshold = positive("threshold", 128.0);
            each(&|e| match cycle.reading(e).waiting.unwrap_or(0) {
                0 => 0.5,
                waiting => 0.5 * (1.0 - (waiting as f64).min(threshold) / threshold),
            })
        }
        "active-request-scorer" => {
            let busiest = candidates.iter().map(|&e| cycle.load(e).requests).max().unwrap() as f64;
            let top = plugin.number("maxBusyScore", 1.0);
            let top = if (0.0..=1.0).contains(&top) { top } else { 1.0 };
            each(&|e| {
                let active = cycle.load(e).requests as f64;
                let idle = active <= plugin.number("idleThreshold", 0.0).max(0.0);
                if idle { 1.0 } else { (busiest - active) / busiest * top }
            })
        }
        "token-load-scorer" => {
            let threshold = positive("queueThresholdTokens", 4_194_304.0);
            each(&|e| {
                let tokens = (cycle.load(e).tokens + cycle.added_tokens(e)) as f64;
                if tokens <= 0.0 { 1.0 } else { 1.0 - tokens.min(threshold) / threshold }
            })
        }
        "lmetric-scorer" => {
            let in_flight = plugin.flag("countTokensInFlight", true);
            least_is_best(&each(&|e| {
                let tokens = if in_flight { cycle.load(e).tokens } else { 0 };
                let own = cycle.missing_tokens(plugin.prefixes(), e);
                (tokens as f64 + own as f64) * (cycle.load(e).requests as f64 + 1.0)
            }))
        }
        "prefix-cache-scorer" => {
            let matches = cycle.matches(plugin.prefixes());
            let weight = plugin.number("matchLengthWeight", 0.0);
            let scale = plugin.number("matchLengthScaleTokens", 8192.0);
            each(&|e| {
                let length = (matches.tokens(e) as f64 / scale).min(1.0);
                weight * length.powi(2) + (1.0 - weight) * matches.ratio(e)
            })
        }
        "expected-latency-scorer" => cycle.expected_latency(plugin, candidates),
        "latency-scorer" => cycle.by_headroom(plugin, candidates),
        "no-hit-lru-scorer" => no_hit_lru(cycle, plugin, candidates),
        "lora-affinity-scorer" => each(&|e| lora_affinity(cycle, plugin, e)),
        "context-length-aware" => each(&|e| match cycle.label(e, plugin.text("label", DEFAULT_RANGE)) {
            None => 0.5,
            Some(label) => range_of(label).map_or(0.0, |range| context_length(range, cycle.tokens())),
        }),
        "header-label-affinity-scorer" => {
            let chosen = cycle.header(plugin.text("headerName", ""));
            let label = plugin.text("labelKey", "");
            each(&|e| f64::from(u8::from(chosen.is_some() && chosen.as_deref() == cycle.label(e, label))))
        }
        "session-affinity-scorer" => {
            let bound = cycle.bound(plugin, candidates);
            each(&|e| f64::from(u8::from(bound == Some(e))))
        }
        "mm-embeddings-cache-scorer" => {
            let sent = cycle.states.media.get("mm-embeddings-cache-producer");
            let was_sent = |e: usize, url: &str| sent.is_some_and(|sent| sent.contains(&(e, url.to_owned())));
            each(&|e| match &cycle.spec.prompt {
                Prompt::Image { url, .. } => f64::from(u8::from(was_sent(e, url))),
                _ => 0.0,
            })
        }
        "topology-affinity-scorer" => each(&|e| match near(cycle, e) {
            Some(level) => [1.0, 0.2, 0.05, 0.02][level],
            None => 0.0,
        }),
        "endpoint-attribute-scorer" => endpoint_attribute(cycle, plugin, candidates),
        other => panic!("{other} is not a scorer"),
    }
}

fn least_is_best(loads: &[f64]) -> Vec<f64> {
    let min = loads.iter().copied().fold(f64::INFINITY, f64::min);
    let max = loads.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    loads.iter().map(|load| if max <= min { 1.0 } else { (max - load) / (max - min) }).collect()
}

fn no_hit_lru(cycle: &Cycle<'_>, plugin: &Plugin, candidates: &[usize]) -> Vec<f64> {
    let n = candidates.len();
    if !cycle.is_cold(plugin, candidates) {
        return vec![0.5; n];
    }
    if n == 1 {
        return vec![1.0];
    }
    let order = cycle.states.cold.get(&plugin.name).cloned().unwrap_or_default();
    let never: Vec<usize> = candidates.iter().copied().filter(|endpoint| !order.contains(endpoint)).collect();
    let rank = |endpoint: &usize| match order.iter().position(|known| known == endpoint) {
        Some(position) => never.len() + position,
        None => never.iter().position(|known| known == endpoint).unwrap(),
    };
    candidates.iter().map(|endpoint| (1.0 - rank(endpoint) as f64 / (n - 1) as f64).max(0.0)).collect()
}

fn lora_affinity(cycle: &Cycle<'_>, plugin: &Plugin, endpoint: usize) -> f64 {
    let pool = 0..cycle.situation.pool.as_slice().len();
    let largest = pool.filter_map(|other| cycle.reading(other).lora.map(|lora| lora.max)).max();
    let room = if plugin.flag("unreportedAsEmpty", true) { largest.unwrap_or(0) } else { 0 };
    let lora = cycle.reading(endpoint).lora.unwrap_or(Lora { max: room, ..Lora::default() });
    let model = cycle.spec.model.to_owned();
    let both = lora.waiting.iter().filter(|adapter| lora.running.contains(adapter)).count();
    let counted = lora.running.len() + lora.waiting.len();
    let counted = if plugin.flag("countTwice", false) { counted } else { counted - both };
    if lora.running.contains(&model) {
        1.0
    } else if counted < lora.max as usize {
        0.8
    } else if lora.waiting.contains(&model) {
        0.6
    } else {
        0.0
    }
}

/// The ends of `min-max`.
pub(super) fn range_of(label: &str) -> Option<(u64, u64)> {
    let (min, max) = label.split_once('-')?;
    let range: (u64, u64) = (min.trim().parse().ok()?, max.trim().parse().ok()?);
    (range.0 <= range.1).then_some(range)
}

fn context_length((min, max): (u64, u64), length: u64) -> f64 {
    let distance = if length > max { length - max } else { min.saturating_sub(length) } as f64;
    let width = (max - min) as f64;
    if distance > 0.0 {
        0.3 / (1.0 + distance / 1000.0)
    } else if width == 0.0 {
        1.0
    } else {
        0.3 + 0.7 * (0.7 / (1.0 + width / 10_000.0) + 0.3 * (max - length) as f64 / width)
    }
}

fn endpoint_attribute(cycle: &Cycle<'_>, plugin: &Plugin, candidates: &[usize]) -> Vec<f64> {
    let value = |endpoint: &usize| {
        let (reading, load) = (cycle.reading(*endpoint), cycle.load(*endpoint));
        match plugin.text("attributeKey", "") {
            "WaitingQueueSize" => reading.waiting.map(|requests| requests as f64),
            "RunningRequestsSize" => reading.running.map(|requests| requests as f64),
            "KVCacheUsagePercent" => reading.kv_usage,
            "GPUUtilization" => reading.attributes.first().map(|(_, share)| *share),
            "InFlightRequests" => Some(load.requests as f64),
            _ => Some(load.tokens as f64),
        }
    };
    let algorithm = plugin.value("algorithm");
    let values: Vec<f64> = candidates.iter().filter_map(value).collect();
    let (min, max) = match &algorithm["normalization"]["fixedRange"] {
        Value::Null => (
            values.iter().copied().fold(f64::INFINITY, f64::min),
            values.iter().copied().fold(f64::NEG_INFINITY, f64::max),
        ),
        range => (range["min"].as_f64().unwrap(), range["max"].as_f64().unwrap()),
    };
    let rate = |value: f64| {
        if max <= min {
            return 1.0;
        }
        let high = ((value - min) / (max - min)).clamp(0.0, 1.0);
        if algorithm["type"] == "linear_higher_is_better" { high } else { 1.0 - high }
    };
    candidates.iter().map(|endpoint| value(endpoint).map_or(0.0, rate)).collect()
}
