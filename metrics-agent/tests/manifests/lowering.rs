//! `EndpointPickerConfig`: plugins for the agent and deprecated types do not reach the filter.

use endpoint_picker_wire::v1;

use crate::reading::{config, policy, refusal};

fn picker(body: &str) -> v1::PickerConfig {
    policy(&config(body)).picker_config.unwrap()
}

/// The names and types that the filter receives.
fn types(body: &str) -> Vec<(String, String)> {
    picker(body).plugins.into_iter().map(|plugin| (plugin.name, plugin.r#type)).collect()
}

#[track_caller]
fn assert_refused(body: &str, expected: &[&str]) {
    let expected: Vec<_> = expected.iter().map(|line| format!("document 1: {line}")).collect();
    assert_eq!(refusal(&config(body)), expected.join("\n"), "{body}");
}

#[test]
fn by_label_selector_is_a_label_selector_filter_under_the_name_it_was_given() {
    for (name, expected) in [("", "by-label-selector"), ("name: gold, ", "gold")] {
        let config = |plugin: &str| {
            format!(
                "plugins: [{{{plugin}, parameters: {{matchLabels: {{tier: gold}}}}}}, {{type: queue-scorer}}]\n\
                 schedulingProfiles: [{{name: default, plugins: [{{pluginRef: {expected}}}, {{pluginRef: queue-scorer}}]}}]"
            )
        };
        let deprecated = picker(&config(&format!("{name}type: by-label-selector")));
        let current = picker(&config(&format!("name: {expected}, type: label-selector-filter")));
        assert_eq!(deprecated, current);
    }
    assert_refused(
        "plugins: [{type: by-label-selector, parameters: {matchExpressions: [{key: a, operator: In}]}}]",
        &["plugins[0].parameters: matchExpressions[0]: operator In takes at least one value"],
    );
}

#[test]
fn headers_handlers_have_no_effect() {
    let with = |plugin: &str, reference: &str| {
        picker(&format!(
            "plugins: [{plugin}{{type: disagg-profile-handler}}, {{type: decode-filter}}]\n\
             schedulingProfiles: [{{name: decode, plugins: [{reference}{{pluginRef: decode-filter}}]}}]"
        ))
    };
    let without = with("", "");
    for handler in ["disagg-headers-handler", "prefill-header-handler"] {
        let plugin =
            format!("{{type: {handler}, parameters: {{prefillProfile: prefill, encodeProfile: e}}}}, ");
        assert_eq!(with(&plugin, ""), without);
        assert_eq!(with(&plugin, &format!("{{pluginRef: {handler}}}, ")), without);
    }
}

#[test]
fn the_data_layer_does_not_reach_the_filter() {
    let plugins = "plugins: [{type: metrics-data-source}, {type: core-metrics-extractor}, {type: queue-scorer}, \
                   {type: file-discovery, name: files, parameters: {path: /x, watchFile: true}}]";
    assert_eq!(types(plugins), [("queue-scorer".to_owned(), "queue-scorer".to_owned())]);
    assert_eq!(picker(plugins), picker("plugins: [{type: queue-scorer}]"));
}

#[test]
fn deprecated_types_with_a_rule_of_their_own_reach_the_filter() {
    let parallel = "plugins: [{type: data-parallel-profile-handler}, \
                    {type: by-label, parameters: {label: a, validValues: [b], allowsNoLabel: true}}]";
    let same = |name: &str| (name.to_owned(), name.to_owned());
    assert_eq!(types(parallel), [same("data-parallel-profile-handler"), same("by-label")]);
    let prefill = "plugins: [{type: pd-profile-handler}, {type: prefix-based-pd-decider}]\n\
                   schedulingProfiles: [{name: decode}]";
    assert_eq!(types(prefill), [same("pd-profile-handler"), same("prefix-based-pd-decider")]);
}

#[test]
fn faults_have_the_indexes_of_the_document() {
    assert_refused(
        "plugins: [{type: metrics-data-source}, {type: max-score-picker}, {type: file-discovery, parameters: {path: x}}, \
         {type: random-picker}, {type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: x}}]\n\
         schedulingProfiles: [{name: a, plugins: [{pluginRef: max-score-picker}, {pluginRef: file-discovery}, \
         {pluginRef: random-picker}]}]",
        &[
            "schedulingProfiles[0].plugins[2]: the profile has a picker already; one is allowed",
            "plugins[4].parameters.prefixMatchInfoProducerName: no plugin is named \"x\"; declared are max-score-picker, random-picker, \
             prefix-cache-scorer",
        ],
    );
}

#[test]
fn a_plugin_of_the_agent_is_not_one_of_the_filter() {
    let source =
        |fields: &str| format!("plugins: [{{type: metrics-data-source}}, {{type: queue-scorer}}{fields}\n");
    let is_a = "\"metrics-data-source\" is a metrics-data-source, not a";
    for (fields, expected) in [
        (
            "]\nrequestHandler: {parsers: [{pluginRef: openai-parser}, {pluginRef: metrics-data-source}]}",
            format!("requestHandler.parsers[1].pluginRef: {is_a} parser"),
        ),
        ("]\nparser: {pluginRef: metrics-data-source}", format!("parser.pluginRef: {is_a} parser")),
        (
            "]\nflowControl: {saturationDetector: {pluginRef: metrics-data-source}}",
            format!("flowControl.saturationDetector.pluginRef: {is_a} saturation detector"),
        ),
        (
            "]\nsaturationDetector: {pluginRef: metrics-data-source}",
            format!("saturationDetector.pluginRef: {is_a} saturation detector"),
        ),
        (
            ", {type: disagg-profile-handler, parameters: {deciders: {prefill: metrics-data-source}}}]\n\
             schedulingProfiles: [{name: decode}]",
            format!("plugins[2].parameters.deciders.prefill: {is_a} decider"),
        ),
    ] {
        assert_refused(&source(fields), &[&expected]);
    }
}

#[test]
fn names_are_unique_among_all_plugins() {
    let taken = |index: usize| format!("plugins[{index}].name: \"a\" is taken; plugin names are unique");
    assert_refused(
        "plugins: [{type: metrics-data-source, name: a}, {type: queue-scorer, name: a}, {type: file-discovery, \
         name: a, parameters: {path: x}}, {type: random-picker, name: a}]",
        &[&taken(1), &taken(2), &taken(3)],
    );
}

#[test]
fn parameters_of_the_agents_plugins_are_checked() {
    for (plugin, expected) in [
        ("{type: metrics-data-source, parameters: {port: 0}}", "port is 0; allowed is 1 to 65535"),
        ("{type: metrics-data-source, parameters: {path: m}}", "path is \"m\"; it must start with '/'"),
        (
            "{type: core-metrics-extractor, parameters: {engineConfigs: [{name: default}]}}",
            "engineConfigs[0].name is \"default\"; allowed is a unique name other than \"default\"",
        ),
        ("{type: file-discovery}", "path is empty; it must name the endpoints' file"),
    ] {
        assert_refused(&format!("plugins: [{plugin}]"), &[&format!("plugins[0].parameters: {expected}")]);
    }
    let unknown = refusal(&config("plugins: [{type: prefill-header-handler, parameters: {profile: x}}]"));
    assert!(
        unknown.starts_with("document 1: plugins[0].parameters.profile: unknown field `profile`"),
        "{unknown}"
    );
}

#[test]
fn every_accepted_type_has_a_section_with_an_example() {
    let page = include_str!("../../../docs/rules.md");
    let refusal = refusal(&config("plugins: [{type: magic}]"));
    let (_, types) = refusal.split_once("allowed: ").unwrap();
    let types: Vec<_> = types.split(", ").collect();
    assert!(types.contains(&"file-discovery") && types.contains(&"by-label-selector"), "{types:?}");
    for name in types {
        let heading = format!("\n### `{name}`\n");
        let (_, section) = page.split_once(&heading).unwrap_or_else(|| panic!("no section on {name}"));
        let section = section.split("\n##").next().unwrap();
        assert!(section.contains("*Example.*"), "no example of {name}");
    }
}
