//! Scorers and pickers of one profile.

use super::{Draft, Draw, ROOM};
use endpoint_picker::epp_rules::EppRules;
use serde_json::{Value, json};

impl Draft {
    /// Two to five scorers, each with the producers that it needs in v0.10.
    pub(super) fn scorers(&mut self, draw: &mut Draw, rules: EppRules, has_filters: bool) -> Vec<Value> {
        let mut all = of_readings(draw);
        all.append(&mut of_prompts(draw));
        all.append(&mut of_requests(draw, rules));
        if !has_filters {
            // An endpoint that filters keep from every request has no place in the order.
            all.push(json!({"type": "no-hit-lru-scorer"}));
        }
        if self.plugins.iter().any(reads_matches) {
            all.retain(|scorer| !reads_uncached_tokens(scorer));
        }
        let mut members = Vec::new();
        for _ in 0..2 + draw.below(4) {
            let at = draw.index(all.len());
            let scorer = all.swap_remove(at);
            let weight = (1 + draw.below(12)) as f64 / 4.0;
            self.needs(draw, &scorer);
            // With both the EPP draws at its start whether cached tokens count as load.
            if reads_matches(&scorer) {
                all.retain(|other| !reads_uncached_tokens(other));
            } else if reads_uncached_tokens(&scorer) {
                all.retain(|other| !reads_matches(other));
            }
            members.push(self.member(scorer, Some(weight)));
        }
        members
    }

    fn needs(&mut self, draw: &mut Draw, scorer: &Value) {
        match scorer["type"].as_str() {
            Some("token-load-scorer") => self.declare(json!({"type": "inflight-load-producer"})),
            Some("mm-embeddings-cache-scorer") if draw.chance(50) => {
                self.declare(json!({"type": "mm-embeddings-cache-producer"}));
            }
            Some("multicluster-prefix-cache-scorer") => {
                let hub = json!({"type": "multicluster-approx-prefix-cache-producer"});
                self.declare(hub);
            }
            Some("session-affinity-scorer") => {
                self.declare(json!({"type": "agent-identity", "parameters": {
                    "additionalSessionHeaders": ["X-Team"],
                }}));
                self.declare(json!({"type": "session-id-producer", "parameters": {
                    "headerName": "x-session-id",
                }}));
            }
            Some("prefix-cache-scorer") if draw.chance(40) => {
                self.declare(json!({"type": "approx-prefix-cache-producer", "parameters": {
                    "autoTune": false,
                    "blockSizeTokens": *draw.one_of(&[64, 96]),
                    "lruCapacityPerServer": ROOM,
                    "maxPrefixTokensToMatch": *draw.one_of(&[128, 1024]),
                }}));
            }
            _ => {}
        }
    }

    /// A picker of its own, in some profiles.
    pub(super) fn picker(&mut self, draw: &mut Draw) -> Option<Value> {
        let name = *draw.one_of(&["max-score-picker", "random-picker", "weighted-random-picker"]);
        // The EPP counts media as cached at every endpoint of the list, not at the destination alone.
        let has_media = self.plugins.iter().any(|plugin| plugin["type"] == "mm-embeddings-cache-scorer");
        let endpoints = if has_media { 1 } else { 1 + draw.below(2) };
        let picker = json!({"type": name, "parameters": {"maxNumOfEndpoints": endpoints}});
        draw.chance(35).then(|| self.member(picker, None))
    }
}

/// Whether a plugin needs a producer of the matches of prompts.
fn reads_matches(plugin: &Value) -> bool {
    let name = plugin["type"].as_str().unwrap_or_default();
    name.contains("prefix-cache") || name == "no-hit-lru-scorer"
}

/// Whether a scorer counts the tokens of a request that are not cached.
fn reads_uncached_tokens(scorer: &Value) -> bool {
    scorer["type"] == "token-load-scorer"
}

fn of_readings(draw: &mut Draw) -> Vec<Value> {
    let algorithm = *draw.one_of(&["linear_lower_is_better", "linear_higher_is_better"]);
    let normalization = if draw.chance(50) {
        json!({"fixedRange": {"min": draw.below(3), "max": 3 + draw.below(8)}})
    } else {
        json!({"adaptiveRange": {}})
    };
    vec![
        json!({"type": "queue-scorer"}),
        json!({"type": "running-requests-size-scorer"}),
        json!({"type": "load-aware-scorer", "parameters": {"threshold": 1 + draw.below(12)}}),
        // The EPP takes no parameters here and ignores these.
        json!({"type": "lora-affinity-scorer", "parameters": {
            "countTwice": true, "unreportedAsEmpty": false,
        }}),
        json!({"type": "endpoint-attribute-scorer", "parameters": {
            "attributeKey": *draw.one_of(&["running", "backlog"]),
            "algorithm": {"type": algorithm, "normalization": normalization},
        }}),
    ]
}

fn of_prompts(draw: &mut Draw) -> Vec<Value> {
    let length = json!({
        "matchLengthWeight": draw.below(5) as f64 / 4.0, "matchLengthScaleTokens": 100 + draw.below(900),
    });
    let hub = json!({"prefixMatchInfoProducerName": "multicluster-approx-prefix-cache-producer"});
    vec![
        json!({"type": "prefix-cache-scorer", "parameters": if draw.chance(50) { length } else { json!({}) }}),
        json!({"type": "multicluster-prefix-cache-scorer", "parameters": hub}),
        json!({"type": "mm-embeddings-cache-scorer"}),
        json!({"type": "context-length-aware"}),
    ]
}

fn of_requests(draw: &mut Draw, rules: EppRules) -> Vec<Value> {
    let session = if rules.is_after_v010() {
        json!({"attribute": "SessionIDDataKey", "producer": "session-id-producer"})
    } else {
        json!({"attribute": "SessionIDDataKey/session-id-producer"})
    };
    let sources = [session, json!({"attribute": "agent-identity"}), json!({"header": "x-session-id"})];
    let by_id = json!({
        "strategy": "session_id",
        // No binding ends while cases are compared.
        "sessionIdConfig": {"sources": [draw.one_of(&sources)], "evictionTtlSeconds": 3600},
    });
    vec![
        json!({"type": "session-affinity-scorer", "parameters": if draw.chance(50) { by_id } else { json!({}) }}),
        json!({"type": "active-request-scorer", "parameters": {
            "idleThreshold": draw.below(2), "maxBusyScore": 0.6,
        }}),
        json!({"type": "token-load-scorer", "parameters": {"queueThresholdTokens": 500 + draw.below(1500)}}),
        json!({"type": "header-label-affinity-scorer", "parameters": {
            "headerName": "X-Tier", "labelKey": "tier",
        }}),
    ]
}
