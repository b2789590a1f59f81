//! Plugins as configurations declare them: each type with parameters that change what it does. Those of
//! scorers are next to their rules.

use serde_json::{Value, json};

pub(crate) fn filters() -> Vec<Value> {
    let limits = |conditions: Value, fallback: bool| {
        let parameters = json!({"conditions": conditions, "fallbackOnEmpty": fallback});
        json!({"type": "utilization-filter", "parameters": parameters})
    };
    let affinity =
        |parameters: Value| json!({"type": "prefix-cache-affinity-filter", "parameters": parameters});
    let one_of = |values: Value, allows_no_label: bool| {
        let one_of = json!({"label": "zone", "values": values, "allowsNoLabel": allows_no_label});
        json!({"type": "label-selector-filter", "parameters": {"oneOf": one_of}})
    };
    let with = |label: &str, operator: &str, values: Value| {
        let expression = json!({"key": label, "operator": operator, "values": values});
        json!({"matchLabels": {}, "matchExpressions": [expression]})
    };
    let threshold = |attribute: &str, operator: &str, value: u64, more: Value| {
        let threshold = json!({"operator": operator, "value": value});
        let mut parameters = json!({
            "attribute": attribute, "algorithm": {"type": "threshold", "threshold": threshold}});
        parameters.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        json!({"type": "endpoint-attribute-filter", "parameters": parameters})
    };
    vec![
        json!({"type": "label-selector-filter", "parameters": {"matchLabels": {"zone": "a"}}}),
        json!({"type": "label-selector-filter", "parameters": with("zone", "NotIn", json!(["b", "c"]))}),
        json!({"type": "label-selector-filter", "parameters": with("zone", "Exists", json!([]))}),
        json!({"type": "label-selector-filter", "parameters": with("range", "DoesNotExist", json!([]))}),
        json!({"type": "label-selector-filter", "parameters": with("zone", "In", json!(["a", "b"]))}),
        one_of(json!(["b"]), true),
        one_of(json!(["a", "b"]), false),
        json!({"type": "decode-filter"}),
        json!({"type": "prefill-filter"}),
        json!({"type": "encode-filter"}),
        limits(json!([{"metric": "waiting-queue", "maxValue": 3}]), true),
        limits(json!([{"metric": "running-requests", "maxValue": 0}]), false),
        limits(
            json!([{"metric": "kv-cache-utilization", "maxValue": 0.8},
                   {"metric": "active-requests", "maxValue": 1}]),
            true,
        ),
        affinity(json!({})),
        affinity(json!({"affinityThreshold": 0.3, "explorationProbability": 1})),
        affinity(json!({"affinityThreshold": 0.3, "maxTTFTPenaltyMs": 3})),
        affinity(json!({"affinityThreshold": 0.5, "maxTTFTPenaltyMs": 0})),
        affinity(json!({"affinityThreshold": 0.3, "ttftSource": "latencyPredictor", "maxTTFTPenaltyMs": 15})),
        json!({"type": "slo-headroom-tier-filter", "parameters": {"epsilonExploreNeg": 0}}),
        json!({"type": "slo-headroom-tier-filter", "parameters": {"epsilonExploreNeg": 1}}),
        affinity(json!({"affinityThreshold": -1, "prefixMatchInfoProducerName": OWN_PREFIXES})),
        json!({"type": "session-affinity-filter"}),
        json!({"type": "session-affinity-filter", "parameters": {"strategy": "session_id"}}),
        json!({"type": "active-request-filter", "parameters": {"maxRequests": 1, "fallbackOnEmpty": true}}),
        json!({"type": "active-request-filter", "parameters": {"maxRequests": 2}}),
        threshold("WaitingQueueSize", "LessThanOrEqual", 3, json!({})),
        threshold("KVCacheUsagePercent/core-metrics-extractor", "NotEqual", 0, json!({"onMissing": "Fail"})),
        threshold("GPUUtilization/dcgm-extractor", "LessThan", 1, json!({"fallbackOnEmpty": true})),
        threshold(
            "InFlightTokens",
            "LessThan",
            300,
            json!({
            "producer": "inflight-load-producer", "fallbackOnEmpty": true}),
        ),
        json!({"type": "legacy-filter-tree", "parameters": {"version": "v0.1"}}),
        json!({"type": "legacy-filter-tree", "parameters": {
            "loraAffinityThreshold": 1, "queueThresholdCritical": 20, "queueingThresholdLoRA": 9}}),
        json!({"type": "legacy-filter-tree", "parameters": {"version": "v0.5", "loraAffinityThreshold": 0}}),
        json!({"type": "header-based-testing-filter"}),
        json!({"type": "served-model-filter"}),
        json!({"type": "served-model-filter", "parameters": {"onMissing": "Fail", "fallbackOnEmpty": true}}),
        json!({"type": "topology-affinity-filter"}),
        json!({"type": "topology-affinity-filter", "parameters": {"minAffinity": "rack"}}),
        json!({"type": "utilization-detector", "parameters": {"queueDepthThreshold": 4, "headroom": 0.5}}),
        json!({"type": "concurrency-detector", "parameters": {"maxConcurrency": 3, "headroom": 0.5}}),
        json!({"type": "concurrency-detector", "parameters": {
            "concurrencyMode": "tokens", "maxTokenConcurrency": 700}}),
    ]
}

pub(crate) fn detectors() -> Vec<Value> {
    vec![
        json!({"type": "utilization-detector", "parameters": {"metricsStalenessThreshold": "20s"}}),
        json!({"type": "utilization-detector", "parameters": {
            "queueDepthThreshold": 20, "kvCacheUtilThreshold": 1, "metricsStalenessThreshold": "7s"}}),
        json!({"type": "utilization-detector", "parameters": {
            "metricsStalenessThreshold": "7s", "stalenessPolicy": "ignore"}}),
        json!({"type": "concurrency-detector", "parameters": {"maxConcurrency": 1}}),
        json!({"type": "concurrency-detector", "parameters": {
            "concurrencyMode": "tokens", "maxTokenConcurrency": 300}}),
        json!({"type": "concurrency-detector", "parameters": {
            "concurrencyMode": "hybrid", "maxConcurrency": 2, "maxTokenConcurrency": 400}}),
    ]
}

pub(crate) fn pickers() -> Vec<Value> {
    let types = ["max-score-picker", "random-picker", "weighted-random-picker"];
    let lengths = [json!({}), json!({"maxNumOfEndpoints": 3}), json!({"maxNumOfEndpoints": -2})];
    let lengths = [&lengths[..], &[json!({"maxNumOfEndpoints": 50})]].concat();
    types
        .iter()
        .flat_map(|kind| lengths.iter().map(move |length| json!({"type": kind, "parameters": length})))
        .collect()
}

/// Plugins that no profile refers to.
pub(crate) fn producers() -> Vec<Value> {
    vec![
        json!({"type": "approx-prefix-cache-producer", "parameters": {"autoTune": false}}),
        json!({"type": "approx-prefix-cache-producer", "parameters": {
            "autoTune": false, "blockSizeTokens": 100, "lruCapacityPerServer": 5}}),
        json!({"type": "approx-prefix-cache-producer", "parameters": {"maxPrefixTokensToMatch": 200}}),
        json!({"type": "approx-prefix-cache-producer", "parameters": {
            "maxPrefixTokensToMatch": 0, "maxPrefixBlocksToMatch": 2}}),
        json!({"type": "approx-prefix-cache-producer", "parameters": {
            "maxPrefixTokensToMatch": 0, "maxPrefixBlocksToMatch": 0, "lruCapacityPerServer": 0}}),
        json!({"type": "approx-prefix-cache-producer", "parameters": {
            "minBlockSizeTokens": 16, "capacityInTokens": true}}),
        json!({"type": "approx-prefix-cache-producer", "parameters": {
            "capacityInTokens": true, "learnFromUsage": true}}),
        json!({"type": "mm-embeddings-cache-producer", "parameters": {"cacheSizeInMBPerServer": 64}}),
        json!({"type": "inflight-load-producer"}),
        json!({"type": "inflight-load-producer", "parameters": {"addEstimatedOutputTokens": true}}),
        json!({"type": "inflight-load-producer", "parameters": {
            "addEstimatedOutputTokens": true, "outputRatio": 0.3, "maxEstimatedOutputTokens": 40}}),
        topology_extractor(),
        json!({"type": "p2p-source-producer"}),
        json!({"type": "p2p-source-producer", "parameters": {"minCachedTokenDelta": 100}}),
        json!({"type": "predicted-latency-producer", "parameters": {
            "streamingMode": true, "endpointRoleLabel": "llm-d.ai/role"}}),
        json!({"type": "predicted-latency-producer", "parameters": {
            "streamingMode": true, "sloBufferFactor": 0.5, "prefixMatchInfoProducerName": OWN_PREFIXES}}),
        json!({"type": "predicted-latency-producer", "parameters": {"streamingMode": true}}),
        json!({"type": "predicted-latency-producer", "parameters": {"predictInProduce": false}}),
        json!({"type": "latency-slo-admitter"}),
        json!({"type": "latency-slo-admitter"}),
        json!({"type": "probabilistic-admitter"}),
        json!({"type": "probabilistic-admitter", "parameters": {
            "queueDepthThreshold": 50, "power": 1, "k": 0.5}}),
    ]
}

/// The producer of places, by labels that the endpoints have.
pub(crate) fn topology_extractor() -> Value {
    let [hostname, rack, zone, region] = PLACES;
    let parameters = json!({"hostname": hostname, "rack": rack, "zone": zone, "region": region});
    json!({"type": "topology-extractor", "parameters": parameters})
}

/// The labels of a host, a rack, a zone and a region.
pub(crate) const PLACES: [&str; 4] = ["range", "zone", "llm-d.ai/context-length-range", "llm-d.ai/role"];

/// The name that some of these plugins know a prefix producer by.
pub(crate) const OWN_PREFIXES: &str = "own-prefixes";

/// The name that some of these plugins know a producer of bursts by.
pub(crate) const BURSTS: &str = "burst-prefix-cache-producer";

/// The name that some of these plugins know a session producer by.
pub(crate) const SESSIONS: &str = "sessions";

/// The attribute that some of these plugins know an agent session by, and the type of the plugin that
/// publishes it.
pub(crate) const AGENTS: &str = "agent-identity";

/// Declared if another plugin speaks of them.
pub(crate) fn spoken_of() -> [Value; 4] {
    [
        json!({"name": OWN_PREFIXES, "type": "approx-prefix-cache-producer", "parameters": {
            "autoTune": true, "blockSizeTokens": 70, "lruCapacityPerServer": 7}}),
        json!({"name": BURSTS, "type": BURSTS, "parameters": {
            "windowDurationMs": 200, "maxPerReplica": 2, "maxPrefixTokensToMatch": 200}}),
        json!({"name": SESSIONS, "type": "session-id-producer", "parameters": {"cookieName": "sid"}}),
        json!({"name": AGENTS, "type": AGENTS, "parameters": {"additionalSessionHeaders": ["X-Zone"]}}),
    ]
}
