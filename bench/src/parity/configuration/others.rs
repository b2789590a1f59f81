//! Plugins outside of profiles: data sources, producers, parsers, detectors.

use super::{Draft, Draw};
use endpoint_picker::epp_rules::EppRules;
use serde_json::{Value, json};

/// The metrics of vLLM with two of them as custom metrics too.
pub(super) fn extractor() -> Value {
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

impl Draft {
    pub(super) fn others(&mut self, draw: &mut Draw, rules: EppRules) {
        if draw.chance(30) {
            let tokens = *draw.one_of(&["token-producer", "tokenizer"]);
            self.declare(json!({"type": tokens, "parameters": {"estimate": {}}}));
        }
        let producers = [
            json!({"type": "inflight-load-producer", "parameters": {"addEstimatedOutputTokens": true}}),
            json!({"type": "session-id-producer", "parameters": {"cookieName": "session"}}),
            json!({"type": "mm-embeddings-cache-producer"}),
            json!({"type": "topology-extractor"}),
            // The EPP has no priorities with endpoints from a file, so it admits every request.
            json!({"type": "probabilistic-admitter"}),
        ];
        for producer in producers {
            if draw.chance(15) {
                self.declare(producer);
            }
        }
        if draw.chance(20) {
            self.declare(json!({"type": "models-data-source"}));
            self.declare(json!({"type": "models-data-extractor"}));
            let extractors = json!([{"pluginRef": "models-data-extractor"}]);
            self.sources.push(json!({"pluginRef": "models-data-source", "extractors": extractors}));
        }
        if draw.chance(20) {
            self.declare(json!({"type": "endpoint-notification-source"}));
        }
        if draw.chance(30) {
            self.parsers(draw, rules);
        }
        if draw.chance(30) {
            let detector = *draw.one_of(&["utilization-detector", "concurrency-detector"]);
            self.declare(json!({"type": detector}));
            let section = json!({"saturationDetector": {"pluginRef": detector}});
            self.sections.insert(String::from("flowControl"), section);
        }
    }

    /// Some of the parsers in any order.
    fn parsers(&mut self, draw: &mut Draw, rules: EppRules) {
        let mut all = vec![
            "anthropic-parser",
            "passthrough-parser",
            "vertexai-parser",
            "vllmgrpc-parser",
            "vllmhttp-parser",
        ];
        if rules.is_after_v010() {
            all.push("sglanghttp-parser");
        }
        let mut some = vec!["openai-parser"];
        for _ in 0..=draw.below(3) {
            let at = draw.index(all.len());
            some.push(all.swap_remove(at));
        }
        for parser in &some {
            self.declare(json!({"type": parser}));
        }
        let parsers: Vec<Value> = some.iter().map(|parser| json!({"pluginRef": parser})).collect();
        self.sections.insert(String::from("requestHandler"), json!({"parsers": parsers}));
    }
}
