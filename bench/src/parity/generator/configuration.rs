//! Configurations of plugins that the EPP has in v0.10 and at the later commit, drawn from a seed.

use super::Draw;
use endpoint_picker::rng::{Rng, SplitMix64};
use serde_json::{Value, json};

/// The metrics of vLLM with two of them as custom metrics too.
pub(crate) fn extractor() -> Value {
    json!({"type": "core-metrics-extractor", "parameters": {"engineConfigs": [{
        "name": "vllm",
        "queuedRequestsSpec": "vllm:num_requests_waiting",
        "runningRequestsSpec": "vllm:num_requests_running",
        "kvUsageSpec": "vllm:kv_cache_usage_perc",
        "loraSpec": "vllm:lora_requests_info",
        "cacheInfoSpec": "vllm:cache_config_info",
        "customMetrics": [
            {"attributeKey": "running", "metricSpec": "vllm:num_requests_running"},
            {"attributeKey": "backlog", "metricSpec": "vllm:num_requests_waiting"},
        ],
    }]}})
}

/// One profile of up to three filters and two to five scorers. Equal seeds give equal configurations.
pub fn drawn(seed: u64) -> Value {
    let mut draw = Draw { rng: SplitMix64::new(!seed), bad_bodies: 0, other_apis: 0 };
    let mut plugins = vec![
        extractor(),
        json!({"type": "metrics-data-source"}),
        json!({"type": "agent-identity", "parameters": {"additionalSessionHeaders": ["X-Team"]}}),
        json!({"type": "kv-cache-utilization-scorer"}),
    ];
    // Its values are so fine that few totals are equal.
    let mut profile = vec![json!({"pluginRef": "kv-cache-utilization-scorer", "weight": 1.25})];
    for mut filter in filters(&mut draw) {
        if draw.chance(40) {
            profile.push(json!({"pluginRef": filter["type"]}));
            filter["name"] = filter["type"].clone();
            plugins.push(filter);
        }
    }
    let mut scorers = scorers(&mut draw);
    for _ in 0..2 + draw.below(3) {
        let at = draw.rng.below(scorers.len());
        let scorer = scorers.swap_remove(at);
        let weight = (1 + draw.below(12)) as f64 / 4.0;
        profile.push(json!({"pluginRef": scorer["type"], "weight": weight}));
        plugins.push(scorer);
    }
    json!({
        "apiVersion": "llm-d.ai/v1alpha1",
        "kind": "EndpointPickerConfig",
        "plugins": plugins,
        "dataLayer": {"sources": [
            {"pluginRef": "metrics-data-source", "extractors": [{"pluginRef": "core-metrics-extractor"}]},
        ]},
        "schedulingProfiles": [{"name": "default", "plugins": profile}],
    })
}

fn filters(draw: &mut Draw) -> [Value; 4] {
    let operator = *draw.one_of(&["LessThan", "LessThanOrEqual", "GreaterThan", "NotEqual"]);
    let threshold = json!({"operator": operator, "value": draw.below(8)});
    [
        json!({"type": "label-selector-filter", "parameters": {
            "matchExpressions": [{"key": "zone", "operator": "Exists"}],
        }}),
        json!({"type": "endpoint-attribute-filter", "parameters": {
            "attribute": *draw.one_of(&["running", "backlog"]),
            "onMissing": *draw.one_of(&["Pass", "Fail"]),
            "fallbackOnEmpty": draw.chance(50),
            "algorithm": {"type": "threshold", "threshold": threshold},
        }}),
        json!({"type": "prefix-cache-affinity-filter", "parameters": {"affinityThreshold": 0.5}}),
        json!({"type": "utilization-filter", "parameters": {
            "conditions": [{"metric": "waiting-queue", "maxValue": draw.below(12)}],
            "fallbackOnEmpty": draw.chance(70),
        }}),
    ]
}

fn scorers(draw: &mut Draw) -> Vec<Value> {
    let algorithm = *draw.one_of(&["linear_lower_is_better", "linear_higher_is_better"]);
    let normalization = if draw.chance(50) {
        json!({"fixedRange": {"min": 0, "max": 10}})
    } else {
        json!({"adaptiveRange": {}})
    };
    vec![
        json!({"type": "queue-scorer"}),
        json!({"type": "running-requests-size-scorer"}),
        json!({"type": "prefix-cache-scorer"}),
        json!({"type": "mm-embeddings-cache-scorer"}),
        json!({"type": "load-aware-scorer", "parameters": {"threshold": 1 + draw.below(12)}}),
        json!({"type": "session-affinity-scorer", "parameters": {
            "strategy": "session_id",
            "sessionIdConfig": {"sources": [{"attribute": "agent-identity"}], "evictionTtlSeconds": 3600},
        }}),
        json!({"type": "endpoint-attribute-scorer", "parameters": {
            "attributeKey": *draw.one_of(&["running", "backlog"]),
            "algorithm": {"type": algorithm, "normalization": normalization},
        }}),
    ]
}
