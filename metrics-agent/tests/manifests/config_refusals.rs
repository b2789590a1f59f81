//! `EndpointPickerConfig`: every fault that the EPP refuses.

use crate::reading::{config, plan, refusal};

#[track_caller]
fn assert_refused(body: &str, expected: &str) {
    assert_eq!(refusal(&config(body)), format!("document 1: {expected}"), "{body}");
}

#[track_caller]
fn assert_refused_with(body: &str, begin: &str, parts: &[&str]) {
    let refusal = refusal(&config(body));
    assert!(refusal.starts_with(&format!("document 1: {begin}")), "{body}: {refusal}");
    assert_eq!(refusal.lines().count(), 1, "{refusal}");
    for part in parts {
        assert!(refusal.contains(part), "{body}: {refusal} lacks {part}");
    }
}

#[test]
fn plugins() {
    assert_refused("plugins: [{name: a}]", "plugins[0].type: is missing; it is required");
    assert_refused(
        "plugins: [{type: queue-scorer}, {type: queue-scorer}]",
        "plugins[1].name: \"queue-scorer\" is taken; plugin names are unique",
    );
    assert_refused_with(
        "plugins: [{type: magic-scorer}]",
        "plugins[0].type: unknown plugin type \"magic-scorer\"; allowed: ",
        &["queue-scorer", "metrics-data-source", "max-score-picker"],
    );
    assert_refused_with(
        "plugins: [{type: queue-scorer}, {type: prefix-cache-scorer, parameters: {weight: 1}}]",
        "plugins[1].parameters.weight: unknown field `weight`, expected",
        &["`matchLengthWeight`"],
    );
    assert_refused_with(
        "plugins: [{type: prefix-cache-scorer, parameters: {matchLengthWeight: heavy}}]",
        "plugins[0].parameters.matchLengthWeight: invalid type: string \"heavy\"",
        &["f64"],
    );
    assert_refused_with(
        "plugins: [{type: prefix-cache-scorer, parameters: {matchLengthWeight: 2}}]",
        "plugins[0].parameters: matchLengthWeight is 2; allowed is 0 to 1",
        &[],
    );
    assert_refused(
        "plugins: [{type: queue-scorer, weight: 1}]",
        "plugins[0].weight: is no known field; allowed: name, type, parameters",
    );
}

#[test]
fn parameters_are_an_object_of_known_names() {
    for (plugin, at) in [
        ("{type: prefix-cache-scorer, parameters: [0.5]}", "plugins[0].parameters"),
        ("{type: queue-scorer, parameters: []}", "plugins[0].parameters"),
        (
            "{type: utilization-filter, parameters: {conditions: [[active-requests, 1]]}}",
            "plugins[0].parameters.conditions[0]",
        ),
    ] {
        assert_refused(&format!("plugins: [{plugin}]"), &format!("{at}: is a list; allowed is an object"));
    }
    assert_refused_with(
        "plugins: [{type: prefix-cache-scorer, parameters: {weight: null}}]",
        "plugins[0].parameters.weight: unknown field `weight`, expected",
        &["`matchLengthWeight`"],
    );
    assert_refused_with(
        "plugins: [{type: utilization-filter, parameters: {conditions: [{metric: waiting-queue, maxValue: 1, unit: null}]}}]",
        "plugins[0].parameters.conditions[0].unit: unknown field `unit`, expected",
        &["`maxValue`"],
    );
    let nulls = plan(&config(
        "plugins: [{type: prefix-cache-scorer, parameters: {matchLengthWeight: null, matchLengthScaleTokens: 9}}, \
         {type: queue-scorer, parameters: null}]",
    ));
    let plugins = &nulls.pools[0].policy.picker_config.as_ref().unwrap().plugins;
    let parameters: Vec<_> = plugins.iter().map(|plugin| plugin.parameters.as_str()).collect();
    assert_eq!(parameters, [r#"{"matchLengthScaleTokens":9}"#, "{}"]);
}

#[test]
fn the_former_names_of_a_prefix_plugin_are_accepted() {
    let names = "{prefixPluginName: prefix-cache-scorer, prefixPluginType: prefix-cache-scorer, lruSize: 7}";
    plan(&config(&format!("plugins: [{{type: no-hit-lru-scorer, parameters: {names}}}]")));
}

#[test]
fn times_of_flow_control() {
    for (field, value, shown) in [
        ("defaultRequestTTL", "abc", "\"abc\""),
        ("noEndpointRequestTTL", "'5'", "\"5\""),
        ("defaultRequestTTL", "-1s", "\"-1s\""),
    ] {
        assert_refused(
            &format!("plugins: [{{type: queue-scorer}}]\nflowControl: {{{field}: {value}}}"),
            &format!(
                "flowControl.{field}: {shown} is not a duration; allowed is one such as 60s, 1m30s or 0s"
            ),
        );
    }
    plan(&config(
        "plugins: [{type: queue-scorer}]\nflowControl: {defaultRequestTTL: 1m30s, noEndpointRequestTTL: 0s}",
    ));
}

#[test]
fn profiles() {
    let scorer = "plugins: [{type: queue-scorer}]\nschedulingProfiles: ";
    let refused = |profiles: &str, expected: &str| assert_refused(&format!("{scorer}{profiles}"), expected);
    refused("[{plugins: []}]", "schedulingProfiles[0].name: is missing; it is required");
    refused("[{name: ''}]", "schedulingProfiles[0].name: a profile needs a name");
    refused(
        "[{name: a, plugins: [{weight: 1}]}]",
        "schedulingProfiles[0].plugins[0].pluginRef: is missing; it is required",
    );
    refused(
        "[{name: a, plugins: [{pluginRef: x}]}]",
        "schedulingProfiles[0].plugins[0].pluginRef: no plugin is named \"x\"; declared are queue-scorer",
    );
    refused(
        "[{name: a, plugins: [{pluginRef: queue-scorer, weight: heavy}]}]",
        "schedulingProfiles[0].plugins[0].weight: \"heavy\" is a text; allowed is a number",
    );
    let handler = "plugins: [{type: disagg-profile-handler}]\nschedulingProfiles: ";
    assert_refused(
        &format!("{handler}[{{name: decode}}, {{name: decode}}]"),
        "schedulingProfiles[1].name: \"decode\" is taken; profile names are unique",
    );
}

#[test]
fn profile_handlers() {
    assert_refused_with(
        "plugins: [{type: single-profile-handler}, {type: single-profile-handler, name: b}]",
        "plugins[1]: multiple profile handlers found",
        &[],
    );
    let two = "\nschedulingProfiles: [{name: a}, {name: b}]";
    assert_refused_with(
        &format!("plugins: [{{type: queue-scorer}}]{two}"),
        "plugins: no profile handler is declared",
        &["several profiles"],
    );
    assert_refused_with(
        &format!("plugins: [{{type: single-profile-handler}}]{two}"),
        "schedulingProfiles: ",
        &["single-profile-handler"],
    );
}

#[test]
fn pickers() {
    assert_refused_with(
        "plugins: [{type: max-score-picker}, {type: random-picker}]\n\
         schedulingProfiles: [{name: a, plugins: [{pluginRef: max-score-picker}, {pluginRef: random-picker}]}]",
        "schedulingProfiles[0].plugins[1]: the profile has a picker already",
        &[],
    );
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
        (
            "flowControl",
            "\"flowControl\" turns queueing on, which is not supported; allowed is flowControl=false".to_owned(),
        ),
        (
            "flowControl=True",
            "\"flowControl=True\" turns queueing on, which is not supported; allowed is flowControl=false".to_owned(),
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
            "requestHandler.parsers[0].pluginRef: \"queue-scorer\" is a queue-scorer, which is no parser",
        ),
        ("parser: {pluginRef: x}", "parser.pluginRef: no plugin is named \"x\""),
        (
            "flowControl: {saturationDetector: {pluginRef: x}}",
            "flowControl.saturationDetector.pluginRef: no plugin is named \"x\"",
        ),
        (
            "flowControl: {saturationDetector: {pluginRef: queue-scorer}}",
            "flowControl.saturationDetector.pluginRef: \"queue-scorer\" is a queue-scorer, which is no saturation detector",
        ),
        ("saturationDetector: {pluginRef: x}", "saturationDetector.pluginRef: no plugin is named \"x\""),
    ] {
        assert_refused_with(&format!("{scorer}{body}"), expected, &[]);
    }
}

#[test]
fn fields_and_their_kinds() {
    for (body, expected) in [
        ("schedulingProfile: []", "schedulingProfile: is no known field; allowed: "),
        ("plugins: {}", "plugins: is an object; allowed is a list"),
        ("flowControl: {maxByte: 1}", "flowControl.maxByte: is no known field; allowed: "),
        (
            "flowControl: {priorityBands: [{x: 1}]}",
            "flowControl.priorityBands[0].x: is no known field; allowed: ",
        ),
        ("dataLayer: {injectDefaults: 1}", "dataLayer.injectDefaults: 1; allowed is true or false"),
        ("metadata: {}", "metadata.name: is missing; it is required"),
        ("spec: {}", "spec: is no known field; allowed: "),
    ] {
        assert_refused_with(body, expected, &[]);
    }
}

#[test]
fn all_faults_of_the_parts_are_reported_at_once() {
    let refusal = refusal(&config(
        "featureGates: [x]
plugins:
- {type: magic}
- {type: queue-scorer, parameters: {y: 1}}
- {type: metrics-data-source, parameters: {caCertPath: x}}
dataLayer: {sources: [{pluginRef: metrics-data-source, extractors: [{pluginRef: z}]}]}",
    ));
    let paths: Vec<_> = refusal.lines().map(|line| line.split(": ").nth(1).unwrap()).collect();
    let expected = [
        "featureGates[0]",
        "plugins[0].type",
        "plugins[1].parameters.y",
        "dataLayer.sources[0].extractors[0].pluginRef",
        "plugins[2].parameters.caCertPath",
    ];
    assert_eq!(paths, expected);
}

#[test]
fn all_faults_of_the_combination_are_reported_at_once() {
    let text = config(
        "plugins: [{type: queue-scorer}, {type: queue-scorer, name: second}]
schedulingProfiles: [{name: a, plugins: [{pluginRef: x}, {pluginRef: y}]}]
parser: {pluginRef: z}",
    );
    let declared = "declared are queue-scorer, second";
    let expected = [
        format!("document 1: parser.pluginRef: no plugin is named \"z\"; {declared}"),
        format!(
            "document 1: schedulingProfiles[0].plugins[0].pluginRef: no plugin is named \"x\"; {declared}"
        ),
        format!(
            "document 1: schedulingProfiles[0].plugins[1].pluginRef: no plugin is named \"y\"; {declared}"
        ),
    ];
    assert_eq!(refusal(&text), expected.join("\n"));
}
