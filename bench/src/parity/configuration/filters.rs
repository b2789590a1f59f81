//! Filters of one profile.

use super::Draw;
use endpoint_picker::epp_rules::EppRules;
use serde_json::{Value, json};

/// Some of the filters, so few that most requests keep a candidate.
pub(super) fn drawn(draw: &mut Draw, rules: EppRules) -> Vec<Value> {
    let mut some: Vec<Value> = by_readings(draw).into_iter().chain(by_requests(draw)).collect();
    if rules.is_after_v010() {
        // The attribute of a producer is written otherwise in v0.10.
        some.push(by_attribute(draw));
    }
    some.retain(|_| draw.chance(18));
    some
}

fn by_readings(draw: &mut Draw) -> [Value; 6] {
    [
        json!({"type": "utilization-filter", "parameters": {
            "conditions": [
                {"metric": "waiting-queue", "maxValue": draw.below(12)},
                {"metric": *draw.one_of(&["running-requests", "active-requests"]), "maxValue": draw.below(9)},
            ],
            "fallbackOnEmpty": draw.chance(70),
        }}),
        json!({"type": "utilization-detector", "parameters": {
            "queueDepthThreshold": 1 + draw.below(8),
            "kvCacheUtilThreshold": 0.75,
            "headroom": draw.below(3) as f64 / 10.0,
            // A busy machine must not decide which endpoints count as stale.
            "metricsStalenessThreshold": "10m",
        }}),
        json!({"type": "concurrency-detector", "parameters": {
            "concurrencyMode": *draw.one_of(&["requests", "tokens"]),
            "maxConcurrency": 1 + draw.below(3),
        }}),
        json!({"type": "label-selector-filter", "parameters": {
            "matchLabels": {"hardware": "new"},
            "matchExpressions": [
                {"key": "tier", "operator": *draw.one_of(&["Exists", "DoesNotExist"])},
                {"key": "tier", "operator": "NotIn", "values": ["lead"]},
            ],
        }}),
        json!({"type": "by-label-selector", "parameters": {
            "matchExpressions": [{"key": "hardware", "operator": "In", "values": ["new", "old"]}],
        }}),
        json!({"type": "by-label", "parameters": {
            "label": "tier", "validValues": ["gold", "silver"], "allowsNoLabel": draw.chance(70),
        }}),
    ]
}

fn by_requests(draw: &mut Draw) -> [Value; 5] {
    let session = *draw.one_of(&["session-affinity-filter", "multicluster-session-affinity-filter"]);
    let strategy = if draw.chance(50) {
        json!({"strategy": "session_id", "sessionIdConfig": {"evictionTtlSeconds": 3600}})
    } else {
        json!({})
    };
    let prefixes = json!({
        "affinityThreshold": *draw.one_of(&[0.3, 0.5, 0.8]),
        "maxTTFTPenaltyMs": *draw.one_of(&[0, 18_000]),
    });
    // Few, because requests without its header are refused.
    let testing = if draw.chance(40) { "header-based-testing-filter" } else { "decode-filter" };
    [
        json!({"type": session, "parameters": strategy}),
        json!({"type": "prefix-cache-affinity-filter", "parameters": prefixes}),
        json!({"type": "context-length-aware", "parameters": {"enableFiltering": true}}),
        json!({"type": testing}),
        json!({"type": "decode-filter"}),
    ]
}

fn by_attribute(draw: &mut Draw) -> Value {
    let operators = ["LessThan", "LessThanOrEqual", "GreaterThan", "GreaterThanOrEqual", "Equal", "NotEqual"];
    let threshold = json!({"operator": *draw.one_of(&operators), "value": draw.below(8)});
    json!({"type": "endpoint-attribute-filter", "parameters": {
        "attribute": *draw.one_of(&["running", "backlog"]),
        "onMissing": *draw.one_of(&["Pass", "Fail"]),
        "fallbackOnEmpty": draw.chance(60),
        "algorithm": {"type": "threshold", "threshold": threshold},
    }})
}
