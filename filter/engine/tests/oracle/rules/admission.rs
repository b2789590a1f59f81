//! Rejections before anything is scored.

use core::time::Duration;

use super::cycle::Cycle;
use super::plan::Plugin;

pub(super) fn saturation(cycle: &Cycle<'_>, detector: &Plugin, candidates: &[usize]) -> f64 {
    if candidates.is_empty() {
        return 1.0;
    }
    let n = candidates.len() as f64;
    if detector.kind == "utilization-detector" {
        let of = |&endpoint: &usize| match utilization(cycle, detector, endpoint) {
            Some((queue, cache)) => queue.max(cache),
            None => 1.0,
        };
        if detector.text("stalenessPolicy", "saturated") == "ignore" {
            let fresh: Vec<usize> =
                candidates.iter().copied().filter(|&e| utilization(cycle, detector, e).is_some()).collect();
            return if fresh.is_empty() {
                0.0
            } else {
                fresh.iter().map(of).sum::<f64>() / fresh.len() as f64
            };
        }
        return candidates.iter().map(of).sum::<f64>() / n;
    }
    let requests: Vec<f64> = candidates.iter().map(|&e| cycle.load(e).requests as f64).collect();
    let tokens: Vec<f64> = candidates.iter().map(|&e| cycle.load(e).tokens as f64).collect();
    let most_requests = detector.number("maxConcurrency", 100.0);
    let most_tokens = detector.number("maxTokenConcurrency", 1e6);
    match detector.text("concurrencyMode", "requests") {
        "requests" => requests.iter().sum::<f64>() / (n * most_requests),
        "tokens" => tokens.iter().sum::<f64>() / (n * most_tokens),
        _ => {
            let both = requests.iter().zip(&tokens);
            both.map(|(requests, tokens)| (requests / most_requests).max(tokens / most_tokens)).sum::<f64>()
                / n
        }
    }
}

/// Waiting requests and KV usage relative to the thresholds; nothing if they are stale or were never
/// reported.
pub(super) fn utilization(cycle: &Cycle<'_>, detector: &Plugin, endpoint: usize) -> Option<(f64, f64)> {
    let threshold = match detector.text("metricsStalenessThreshold", "200ms") {
        "200ms" => Duration::from_millis(200),
        "7s" => Duration::from_secs(7),
        "20s" => Duration::from_secs(20),
        other => panic!("{other}"),
    };
    let reading = cycle.reading(endpoint);
    if cycle.situation.since(reading.updated?) > threshold {
        return None;
    }
    let queue = reading.waiting.unwrap_or(0) as f64 / detector.number("queueDepthThreshold", 5.0);
    let cache = reading.kv_usage.unwrap_or(0.0) / detector.number("kvCacheUtilThreshold", 0.8);
    Some((queue, cache))
}

/// Probability with which the admitter turns away.
pub(super) fn refusal(cycle: &Cycle<'_>, admitter: &Plugin, candidates: &[usize]) -> f64 {
    if cycle.spec.priority >= 0 {
        return 0.0;
    }
    let of = |&endpoint: &usize| {
        let reading = cycle.reading(endpoint);
        let queue = reading.waiting.unwrap_or(0) as f64 / admitter.number("queueDepthThreshold", 5.0);
        queue.max(reading.kv_usage.unwrap_or(0.0) / admitter.number("kvCacheUtilThreshold", 0.8))
    };
    let saturation = candidates.iter().map(of).sum::<f64>() / candidates.len() as f64;
    let probability = saturation.powf(admitter.number("power", 5.0)) * admitter.number("k", 300.0);
    probability.min(1.0)
}
