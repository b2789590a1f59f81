//! Faults of the other fields.

use super::asserts::{assert_refused, assert_refused_with};
use crate::reading::{config, plan};

#[test]
fn times_of_flow_control() {
    for (field, value, printed) in [
        ("defaultRequestTTL", "abc", "\"abc\""),
        ("noEndpointRequestTTL", "'5'", "\"5\""),
        ("defaultRequestTTL", "-1s", "\"-1s\""),
    ] {
        assert_refused(
            &format!("plugins: [{{type: queue-scorer}}]\nflowControl: {{{field}: {value}}}"),
            &format!(
                "flowControl.{field}: {printed} is not a duration; allowed is one such as 60s, 1m30s or 0s"
            ),
        );
    }
    plan(&config(
        "plugins: [{type: queue-scorer}]\nflowControl: {defaultRequestTTL: 1m30s, noEndpointRequestTTL: 0s}",
    ));
}

#[test]
fn quantities_of_flow_control() {
    for (field, value, printed) in
        [("maxBytes", "1 Gi", "\"1 Gi\""), ("maxRequests", "-1", "\"-1\""), ("maxRequests", "[]", "\"[]\"")]
    {
        let problem = format!("{printed} is not a quantity; allowed is one such as 100, 1k, 500M or 1Gi");
        for (before, after) in
            [("", ""), ("priorityBands: [{", "}]"), ("defaultNegativePriorityBand: {", "}")]
        {
            let at = match before {
                "" => String::new(),
                "priorityBands: [{" => "priorityBands[0].".to_owned(),
                _ => "defaultNegativePriorityBand.".to_owned(),
            };
            assert_refused(
                &format!(
                    "plugins: [{{type: queue-scorer}}]\nflowControl: {{{before}{field}: {value}{after}}}"
                ),
                &format!("flowControl.{at}{field}: {problem}"),
            );
        }
    }
}

#[test]
fn policies_of_flow_control() {
    let plugins =
        "plugins: [{type: queue-scorer}, {type: metrics-data-source}, {type: edf-ordering-policy}]\n";
    for (section, expected) in [
        ("usageLimitPolicyPluginRef: x", "usageLimitPolicyPluginRef: no plugin is named \"x\""),
        (
            "usageLimitPolicyPluginRef: queue-scorer",
            "usageLimitPolicyPluginRef: \"queue-scorer\" is a queue-scorer, not a usage limit policy",
        ),
        (
            "usageLimitPolicyPluginRef: metrics-data-source",
            "usageLimitPolicyPluginRef: \"metrics-data-source\" is a metrics-data-source, not a usage limit policy",
        ),
        (
            "defaultPriorityBand: {fairnessPolicyRef: edf-ordering-policy}",
            "defaultPriorityBand.fairnessPolicyRef: \"edf-ordering-policy\" is a edf-ordering-policy, not a fairness policy",
        ),
        (
            "defaultNegativePriorityBand: {orderingPolicyRef: round-robin-fairness-policy}",
            "defaultNegativePriorityBand.orderingPolicyRef: no plugin is named \"round-robin-fairness-policy\"",
        ),
        (
            "priorityBands: [{priority: 1}, {priority: 2, orderingPolicyRef: metrics-data-source}]",
            "priorityBands[1].orderingPolicyRef: \"metrics-data-source\" is a metrics-data-source, not a request ordering policy",
        ),
        (
            "priorityBands: [{priority: 1}, {priority: 1}]",
            "priorityBands[1].priority: 1 is taken; priorities are unique",
        ),
        ("priorityBands: [{priority: 3000000000}]", "priorityBands[0].priority: "),
    ] {
        let body = format!("{plugins}flowControl: {{{section}}}");
        assert_refused_with(&body, &format!("flowControl.{expected}"), &[]);
    }
}

#[test]
fn feature_gates() {
    let known = "allowed are flowControl, haPopulateNonLeaderDatastore";
    for (gate, expected) in [
        ("magic", format!("unknown feature gate \"magic\"; {known}")),
        ("magic=true", format!("unknown feature gate \"magic\"; {known}")),
        ("dataLayer", format!("unknown feature gate \"dataLayer\"; {known}")),
        (
            "flowControl=maybe",
            "\"flowControl=maybe\" is not a boolean; allowed are flowControl, flowControl=true and flowControl=false".to_owned(),
        ),
    ] {
        assert_refused(&format!("featureGates: ['{gate}']"), &format!("featureGates[0]: {expected}"));
    }
    for gate in [
        "flowControl=false",
        "flowControl= F",
        "haPopulateNonLeaderDatastore",
        "haPopulateNonLeaderDatastore=0",
    ] {
        plan(&config(&format!("featureGates: ['{gate}']")));
    }
}

#[test]
fn references_to_parsers_and_detectors() {
    let scorer = "plugins: [{type: queue-scorer}]\n";
    for (body, expected) in [
        (
            "requestHandler: {parsers: [{pluginRef: openai-parser}, {pluginRef: x}]}",
            "requestHandler.parsers[1].pluginRef: no plugin is named \"x\"",
        ),
        (
            "requestHandler: {parsers: [{pluginRef: queue-scorer}]}",
            "requestHandler.parsers[0].pluginRef: \"queue-scorer\" is a queue-scorer, not a parser",
        ),
        ("parser: {pluginRef: x}", "parser.pluginRef: no plugin is named \"x\""),
        (
            "flowControl: {saturationDetector: {pluginRef: x}}",
            "flowControl.saturationDetector.pluginRef: no plugin is named \"x\"",
        ),
        (
            "flowControl: {saturationDetector: {pluginRef: queue-scorer}}",
            "flowControl.saturationDetector.pluginRef: \"queue-scorer\" is a queue-scorer, not a saturation detector",
        ),
        ("saturationDetector: {pluginRef: x}", "saturationDetector.pluginRef: no plugin is named \"x\""),
    ] {
        assert_refused_with(&format!("{scorer}{body}"), expected, &[]);
    }
}

#[test]
fn fields_and_their_kinds() {
    for (body, expected) in [
        (
            "schedulingProfile: []",
            "schedulingProfile: unknown field; did you mean \"schedulingProfiles\"? Allowed: ",
        ),
        ("plugins: {}", "plugins: is an object; allowed is a list"),
        (
            "flowControl: {maxByte: 1}",
            "flowControl.maxByte: unknown field; did you mean \"maxBytes\"? Allowed: ",
        ),
        (
            "flowControl: {priorityBands: [{x: 1}]}",
            "flowControl.priorityBands[0].x: unknown field; allowed: ",
        ),
        ("dataLayer: {injectDefaults: 1}", "dataLayer.injectDefaults: 1; allowed is true or false"),
        ("metadata: {}", "metadata.name: is missing; it is required"),
        ("spec: {}", "spec: unknown field; allowed: "),
    ] {
        assert_refused_with(body, expected, &[]);
    }
}
