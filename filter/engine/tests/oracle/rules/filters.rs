//! Endpoints that each filter keeps.

use serde_json::Value;

use super::admission::utilization;
use super::cycle::Cycle;
use super::legacy_tree::LegacyTree;
use super::plan::Plugin;
use super::scorers::range_of;
use crate::catalog::PLACES;

pub(super) fn filter(cycle: &Cycle<'_>, plugin: &Plugin, candidates: &[usize]) -> Vec<usize> {
    let all = candidates.to_vec();
    let keep = |keeps: &dyn Fn(usize) -> bool| -> Vec<usize> {
        all.iter().copied().filter(|&endpoint| keeps(endpoint)).collect()
    };
    let unless_empty = |kept: Vec<usize>| if kept.is_empty() { all.clone() } else { kept };
    match plugin.kind.as_str() {
        "label-selector-filter" => keep(&|e| selects(cycle, plugin, e)),
        "decode-filter" => keep(&|e| {
            let role = cycle.label(e, "llm-d.ai/role");
            role.is_none_or(|role| {
                ["decode", "prefill-decode", "both", "encode-prefill-decode"].contains(&role)
            })
        }),
        "prefill-filter" => keep(&|e| {
            let roles = ["prefill", "encode-prefill", "prefill-decode", "both", "encode-prefill-decode"];
            cycle.label(e, "llm-d.ai/role").is_some_and(|role| roles.contains(&role))
        }),
        "encode-filter" => keep(&|e| {
            let roles = ["encode", "encode-prefill", "encode-prefill-decode"];
            cycle.label(e, "llm-d.ai/role").is_some_and(|role| roles.contains(&role))
        }),
        "utilization-filter" => {
            let kept =
                keep(&|e| plugin.value("conditions").as_array().unwrap().iter().all(|c| is_met(cycle, c, e)));
            if plugin.flag("fallbackOnEmpty", false) { unless_empty(kept) } else { kept }
        }
        "active-request-filter" => {
            let kept = keep(&|e| cycle.load(e).requests as f64 <= plugin.number("maxRequests", 0.0));
            if plugin.flag("fallbackOnEmpty", false) { unless_empty(kept) } else { kept }
        }
        "endpoint-attribute-filter" => {
            let value = |e: usize| match plugin.text("attribute", "") {
                "WaitingQueueSize" => cycle.reading(e).waiting.map(|requests| requests as f64),
                "InFlightTokens" => Some(cycle.load(e).tokens as f64),
                "GPUUtilization/dcgm-extractor" => {
                    cycle.reading(e).attributes.first().map(|(_, share)| *share)
                }
                _ => cycle.reading(e).kv_usage,
            };
            let threshold = &plugin.value("algorithm")["threshold"];
            let limit = threshold["value"].as_f64().unwrap();
            let kept = keep(&|e| match (value(e), threshold["operator"].as_str().unwrap()) {
                (None, _) => plugin.text("onMissing", "Pass") == "Pass",
                (Some(value), "LessThan") => value < limit,
                (Some(value), "LessThanOrEqual") => value <= limit,
                (Some(value), _) => (value - limit).abs() > 0.0,
            });
            if plugin.flag("fallbackOnEmpty", false) { unless_empty(kept) } else { kept }
        }
        "slo-headroom-tier-filter" => {
            // Only the certain cases are configured, 0 and 1.
            let is_kept = plugin.number("epsilonExploreNeg", 0.01) < 0.5;
            let is_positive = |e: usize| cycle.prediction(e).map(|prediction| prediction.is_positive());
            let (positive, others): (Vec<usize>, Vec<usize>) =
                all.iter().partition(|&&e| is_positive(e) == Some(true));
            if positive.is_empty() || others.is_empty() || all.len() < 2 {
                return all;
            }
            if is_kept { positive } else { others }
        }
        "legacy-filter-tree" => LegacyTree { cycle, plugin }.keep(&all),
        "served-model-filter" => {
            let kept = serving(cycle, plugin, candidates);
            if plugin.flag("fallbackOnEmpty", false) { unless_empty(kept) } else { kept }
        }
        "header-based-testing-filter" => named(cycle, candidates),
        "topology-affinity-filter" => {
            let widest = usize::from(plugin.text("minAffinity", "host") != "host");
            unless_empty(keep(&|e| near(cycle, e).is_some_and(|level| level <= widest)))
        }
        "utilization-detector" => {
            let limit = 1.0 + plugin.number("headroom", 0.0);
            let fits = |(queue, cache): (f64, f64)| queue < limit && cache < limit;
            unless_empty(keep(&|e| utilization(cycle, plugin, e).is_some_and(fits)))
        }
        "concurrency-detector" => {
            let limit = |most: f64| (most * (1.0 + plugin.number("headroom", 0.0))).trunc();
            let (requests, tokens) = (
                limit(plugin.number("maxConcurrency", 100.0)),
                limit(plugin.number("maxTokenConcurrency", 1e6)),
            );
            let mode = plugin.text("concurrencyMode", "requests");
            let kept = keep(&|e| {
                let load = cycle.load(e);
                (mode == "tokens" || (load.requests as f64) < requests)
                    && (mode == "requests" || (load.tokens as f64) < tokens)
            });
            if cycle.plan.is_v011 { unless_empty(kept) } else { kept }
        }
        "context-length-aware" => keep(&|e| match cycle.label(e, plugin.text("label", DEFAULT_RANGE)) {
            None => true,
            Some(label) => range_of(label).is_some_and(|(min, max)| (min..=max).contains(&cycle.tokens())),
        }),
        "session-affinity-filter" => match cycle.bound(plugin, candidates) {
            Some(bound) => vec![bound],
            None => all,
        },
        "prefix-cache-affinity-filter" => prefix_cache_affinity(cycle, plugin, candidates),
        other => panic!("{other} is not a filter"),
    }
}

/// The candidates that the header of conformance tests names, one for each IP address.
fn named(cycle: &Cycle<'_>, candidates: &[usize]) -> Vec<usize> {
    let header = cycle.header("test-epp-endpoint-selection").unwrap_or_default();
    let address = |endpoint: usize| cycle.situation.pool.as_slice()[endpoint].address();
    let mut kept: Vec<usize> = vec![];
    for name in header.split(',').map(str::trim) {
        let is_named = |&e: &usize| name == address(e).to_string() || name == address(e).ip().to_string();
        let Some(named) = candidates.iter().copied().rfind(is_named) else { continue };
        if kept.iter().all(|&other| address(other).ip() != address(named).ip()) {
            kept.push(named);
        }
    }
    kept.sort_unstable();
    kept
}

/// The candidates that list the model of the request.
fn serving(cycle: &Cycle<'_>, plugin: &Plugin, candidates: &[usize]) -> Vec<usize> {
    let model = cycle.spec.model;
    let list = |e: usize| cycle.reading(e).models.map(|models| models.to_vec());
    let lists_adapter =
        |&e: &usize| list(e).is_some_and(|list| list.iter().any(|it| it.id == model && it.is_adapter));
    let is_known = plugin.text("onMissing", "Pass") == "Fail" || candidates.iter().any(lists_adapter);
    let fits = |&e: &usize| match list(e) {
        _ if model.is_empty() => true,
        Some(list) => list.iter().any(|served| served.id == model),
        None => !is_known,
    };
    candidates.iter().copied().filter(fits).collect()
}

/// How near an endpoint is to the one of the stage before: 0 on one host, 1 in one rack, 2 in one zone, 3 in
/// one region.
pub(super) fn near(cycle: &Cycle<'_>, endpoint: usize) -> Option<usize> {
    let peer = cycle.peer.get()?;
    cycle.plan.plugins.iter().find(|plugin| plugin.kind == "topology-extractor")?;
    let shared = |label| cycle.label(peer, label).filter(|own| cycle.label(endpoint, label) == Some(own));
    PLACES.into_iter().position(|label| shared(label).is_some())
}

pub(super) const DEFAULT_RANGE: &str = "llm-d.ai/context-length-range";

fn lists(values: &Value, label: &str) -> bool {
    values.as_array().is_some_and(|values| values.iter().any(|value| value == label))
}

fn selects(cycle: &Cycle<'_>, plugin: &Plugin, endpoint: usize) -> bool {
    let mut labels = plugin.value("matchLabels").as_object().into_iter().flatten();
    let mut expressions = plugin.value("matchExpressions").as_array().into_iter().flatten();
    let is_one_of = plugin.value("oneOf").as_object().is_none_or(|one_of| {
        match cycle.label(endpoint, one_of["label"].as_str().unwrap()) {
            None => one_of["allowsNoLabel"] == true,
            Some(label) => lists(&one_of["values"], label),
        }
    });
    is_one_of
        && labels.all(|(key, value)| cycle.label(endpoint, key).is_some_and(|label| value == label))
        && expressions.all(|expression| {
            let label = cycle.label(endpoint, expression["key"].as_str().unwrap());
            let listed = label.is_some_and(|label| lists(&expression["values"], label));
            match expression["operator"].as_str().unwrap() {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => label.is_some(),
                _ => label.is_none(),
            }
        })
}

fn is_met(cycle: &Cycle<'_>, condition: &Value, endpoint: usize) -> bool {
    let reading = cycle.reading(endpoint);
    let value = match condition["metric"].as_str().unwrap() {
        "waiting-queue" => reading.waiting.unwrap_or(0) as f64,
        "running-requests" => reading.running.unwrap_or(0) as f64,
        "kv-cache-utilization" => reading.kv_usage.unwrap_or(0.0),
        _ => cycle.load(endpoint).requests as f64,
    };
    value <= condition["maxValue"].as_f64().unwrap()
}

fn prefix_cache_affinity(cycle: &Cycle<'_>, plugin: &Plugin, candidates: &[usize]) -> Vec<usize> {
    let threshold = plugin.number("affinityThreshold", 0.8);
    // Only the certain cases are configured, 0 and 1.
    let explores = plugin.number("explorationProbability", 0.0) > 0.5;
    let matches = cycle.matches(plugin.prefixes());
    let (sticky, others): (Vec<usize>, Vec<usize>) =
        candidates.iter().partition(|&&endpoint| matches.ratio(endpoint) >= threshold);
    if candidates.len() <= 1 || threshold <= 0.0 || explores || sticky.is_empty() {
        return candidates.to_vec();
    }
    let first_token = |endpoints: &[usize]| {
        if plugin.text("ttftSource", "prefillThroughput") == "latencyPredictor" {
            let time = |&e: &usize| cycle.prediction(e).map_or(0.0, |prediction| prediction.first);
            return endpoints.iter().map(time).fold(f64::INFINITY, f64::min);
        }
        let tokens = endpoints.iter().map(|&endpoint| cycle.load(endpoint).tokens).min().unwrap();
        tokens as f64 / plugin.number("peakPrefillThroughput", 15_928.0) * 1000.0
    };
    let penalty = plugin.number("maxTTFTPenaltyMs", 18_000.0);
    if penalty > 0.0 && !others.is_empty() && first_token(&sticky) - first_token(&others) > penalty {
        return candidates.to_vec();
    }
    sticky
}
