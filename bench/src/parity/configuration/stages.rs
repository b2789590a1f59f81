//! Stages of disaggregated serving.

use super::{Draft, Draw};
use serde_json::{Value, json};

/// Levels of closeness, from the closest.
const LEVELS: [&str; 4] = ["host", "rack", "zone", "region"];

impl Draft {
    pub(super) fn stages(&mut self, draw: &mut Draw) {
        let decider = if draw.chance(50) {
            json!({"type": "always-disagg-pd-decider"})
        } else {
            json!({"type": "prefix-based-pd-decider", "parameters": {
                "nonCachedTokens": 16 + draw.below(48), "promptTokens": draw.below(2) * 100,
            }})
        };
        let name = decider["type"].clone();
        let (handler, is_prefill_first) = match draw.below(4) {
            0 => {
                self.declare(decider);
                (json!({"type": "pd-profile-handler", "parameters": {"deciderPluginName": name}}), false)
            }
            1 => {
                let encode = self.encode_decider(draw);
                let parameters = json!({"stageOrder": "prefill-first", "deciders": encode});
                (json!({"type": "disagg-profile-handler", "parameters": parameters}), true)
            }
            _ => {
                self.declare(decider);
                let mut deciders = self.encode_decider(draw);
                deciders["prefill"] = name;
                (json!({"type": "disagg-profile-handler", "parameters": {"deciders": deciders}}), false)
            }
        };
        let has_places = handler["type"] == "disagg-profile-handler";
        self.declare(handler);
        if !has_places {
            // Without it the EPP's `pd-profile-handler` names no prefill endpoint.
            self.declare(json!({"type": "prefill-header-handler"}));
        } else if draw.chance(40) {
            let writer = *draw.one_of(&["disagg-headers-handler", "prefill-header-handler"]);
            self.declare(json!({"type": writer}));
        }
        if has_places {
            self.declare(json!({"type": "topology-extractor"}));
        }
        let is_prefill_late = has_places && !is_prefill_first;
        let is_decode_late = has_places && is_prefill_first;
        if has_places {
            // With three profiles v0.10's `pd-profile-handler` runs the prefill stage again and again.
            self.stage(draw, "encode", false);
        }
        self.stage(draw, "prefill", is_prefill_late);
        self.stage(draw, "decode", is_decode_late);
        if draw.chance(25) {
            let parameters = json!({"prefillProfileName": *draw.one_of(&["prefill", "decode"])});
            self.declare(json!({"type": "p2p-source-producer", "parameters": parameters}));
        }
    }

    /// The decider of the encode stage, in most configurations.
    fn encode_decider(&mut self, draw: &mut Draw) -> Value {
        if !draw.chance(70) {
            return json!({});
        }
        self.declare(json!({"type": "always-disagg-multimodal-decider"}));
        json!({"encode": "always-disagg-multimodal-decider"})
    }

    /// The profile of a stage, `is_late` if it knows the endpoint of another one.
    fn stage(&mut self, draw: &mut Draw, name: &str, is_late: bool) {
        let mut members = self.scored_by_cache();
        members.push(self.member(json!({"type": format!("{name}-filter")}), None));
        if is_late && draw.chance(60) {
            let parameters = json!({"minAffinity": *draw.one_of(&LEVELS)});
            members.push(
                self.member(json!({"type": "topology-affinity-filter", "parameters": parameters}), None),
            );
        }
        if is_late && draw.chance(80) {
            members.push(self.member(json!({"type": "topology-affinity-scorer"}), Some(0.5)));
        }
        for scorer in [
            "queue-scorer",
            "running-requests-size-scorer",
            "prefix-cache-scorer",
            "mm-embeddings-cache-scorer",
        ] {
            if draw.chance(40) {
                let weight = (1 + draw.below(8)) as f64 / 4.0;
                members.push(self.member(json!({"type": scorer}), Some(weight)));
            }
        }
        self.profile(name, &members);
    }
}
