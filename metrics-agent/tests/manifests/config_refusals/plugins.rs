//! Faults of plugins and of profiles.

use super::asserts::{assert_refused, assert_refused_with};
use crate::reading::{config, plan};

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
        "plugins[0].weight: unknown field; allowed: name, type, parameters",
    );
}

#[test]
fn types_of_the_epp_that_are_refused_on_purpose_have_the_reason() {
    for (kind, reason) in [
        ("destination-endpoint-served-verifier", "it is for the conformance tests of the EPP"),
        ("multicluster-file-discovery", "a hub picks among the gateways of clusters"),
        ("multicluster-queue-scorer", "a hub picks among the gateways of clusters"),
    ] {
        let config = format!("plugins: [{{type: queue-scorer}}, {{type: {kind}}}]");
        let expected = format!("plugins[1].type: {kind:?} is not supported: ");
        assert_refused_with(&config, &expected, &[reason]);
    }
}

#[test]
fn expressions_are_compiled_with_the_configuration() {
    let config = |expression: &str| {
        format!(
            "plugins: [{{type: request-attribute-reporter, parameters: {{attributes: [{{key: {{name: cost}}, expression: '{expression}'}}]}}}}]"
        )
    };
    for (expression, problem) in [
        ("usage.prompt_tokens +", "failed to compile at "),
        ("tokens", "undeclared reference to \"tokens\"; the only variable is usage"),
        ("[1].map(x, x)[0]", "has a macro that repeats its argument"),
    ] {
        let expected = format!("plugins[0].parameters: attributes[0].expression {expression:?}: ");
        assert_refused_with(&config(expression), &expected, &[problem]);
    }
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
        "schedulingProfiles[0].plugins[0].weight: \"heavy\" is a string; allowed is a number",
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
fn a_name_that_is_nearly_known_gets_a_suggestion() {
    // The suggestion comes before the known names, of which there may be many.
    for (document, begin) in [
        (
            "plugins: [{type: queue-scorrer}]",
            "plugins[0].type: unknown plugin type \"queue-scorrer\"; did you mean \"queue-scorer\"? Allowed: ",
        ),
        (
            "plugins: [{type: queue-scorer, parameter: {}}]",
            "plugins[0].parameter: unknown field; did you mean \"parameters\"? Allowed: ",
        ),
        (
            "plugins: [{type: prefix-cache-scorer, parameters: {matchLenghtWeight: 1}}]",
            "plugins[0].parameters.matchLenghtWeight: unknown field `matchLenghtWeight`; did you mean \"matchLengthWeight\"? Expected is ",
        ),
        (
            "schedulingProfile: []",
            "schedulingProfile: unknown field; did you mean \"schedulingProfiles\"? Allowed: ",
        ),
    ] {
        assert_refused_with(document, begin, &[]);
    }
}
