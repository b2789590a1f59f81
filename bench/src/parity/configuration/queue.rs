//! Flow control: requests come one by one, so none waits.

use super::{Draft, Draw};
use endpoint_picker::epp_rules::EppRules;
use serde_json::json;

impl Draft {
    pub(super) fn queue(&mut self, draw: &mut Draw, rules: EppRules) {
        let mut members = self.scored_by_cache();
        members.extend(self.scorers(draw, rules, true));
        self.profile("default", &members);
        let fairness = *draw.one_of(&[
            "global-strict-fairness-policy",
            "round-robin-fairness-policy",
            "program-aware-fairness",
        ]);
        let ordering =
            *draw.one_of(&["fcfs-ordering-policy", "edf-ordering-policy", "slo-deadline-ordering-policy"]);
        let limit = draw
            .one_of(&[
                json!({"type": "static-usage-limit-policy"}),
                json!({"type": "soft-reflective-ceiling-policy"}),
                json!({"type": "priority-holdback-policy", "parameters": {"minCeiling": 0.5}}),
            ])
            .clone();
        let band = json!({"fairnessPolicyRef": fairness, "orderingPolicyRef": ordering});
        let section = json!({
            "defaultRequestTTL": "30s",
            "usageLimitPolicyPluginRef": limit["type"],
            "saturationDetector": {"pluginRef": "concurrency-detector"},
            "defaultPriorityBand": band,
        });
        // The types that decide about evictions have no effect without this.
        for evicts in ["sheddable-eviction-filter", "priority-then-time-eviction-order-policy"] {
            if draw.chance(40) {
                self.declare(json!({"type": evicts}));
            }
        }
        self.declare(json!({"type": fairness}));
        self.declare(json!({"type": ordering}));
        self.declare(limit);
        // No case has a hundred requests in flight.
        self.declare(json!({"type": "concurrency-detector", "parameters": {"maxConcurrency": 100}}));
        if draw.chance(40) {
            self.declare(json!({"type": "request-attribute-reporter", "parameters": {"attributes": [
                {"key": {"name": "cost"}, "expression": "usage.prompt_tokens + 2.0 * usage.completion_tokens"},
            ]}}));
        }
        self.sections.insert(String::from("flowControl"), section);
        self.sections.insert(String::from("featureGates"), json!(["flowControl"]));
    }
}
