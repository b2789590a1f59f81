//! `EndpointPickerConfig`: plugins for the agent and deprecated types do not reach the filter.

use endpoint_picker_wire::v1;
use serde_json::{Value, json};

use crate::reading::{config, policy, refusal, warnings};

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

/// Example of `by-label-selector`.
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

/// Examples of `disagg-headers-handler` and `prefill-header-handler`.
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

/// The type and the parameters of the first plugin that the filter receives.
fn first(body: &str) -> (String, Value) {
    let first = picker(body).plugins.swap_remove(0);
    (first.r#type, serde_json::from_str(&first.parameters).unwrap())
}

/// Example of `by-label`.
#[test]
fn by_label_is_a_label_selector_filter_of_one_of_some_values() {
    for (parameters, expected) in [
        (
            "{label: a, validValues: [b, c]}",
            json!({"label": "a", "values": ["b", "c"], "allowsNoLabel": false}),
        ),
        ("{label: a, allowsNoLabel: true}", json!({"label": "a", "values": [], "allowsNoLabel": true})),
        // An endpoint without the label has the empty value.
        (
            "{label: a, validValues: [b, '']}",
            json!({"label": "a", "values": ["b", ""], "allowsNoLabel": true}),
        ),
        (
            "{label: any text, validValues: [a b]}",
            json!({"label": "any text", "values": ["a b"], "allowsNoLabel": false}),
        ),
    ] {
        let lowered = first(&format!("plugins: [{{type: by-label, parameters: {parameters}}}]"));
        assert_eq!(lowered, ("label-selector-filter".to_owned(), json!({"oneOf": expected})), "{parameters}");
    }
    for (parameters, expected) in [
        ("{validValues: [b]}", "label is empty; a label's name is needed"),
        ("{label: a}", "validValues is empty; name one, or set allowsNoLabel"),
    ] {
        let plugin = format!("plugins: [{{type: by-label, parameters: {parameters}}}]");
        assert_refused(&plugin, &[&format!("plugins[0].parameters: {expected}")]);
    }
}

/// Example of `data-parallel-profile-handler`.
#[test]
fn data_parallel_profile_handler_is_a_single_profile_handler_with_a_primary_port() {
    for (parameters, port) in [("{}", 8000), ("{primaryPort: 0}", 8000), ("{primaryPort: 9000}", 9000)] {
        let plugin = format!("{{type: data-parallel-profile-handler, parameters: {parameters}}}");
        let lowered = first(&format!("plugins: [{plugin}, {{type: queue-scorer}}]"));
        assert_eq!(lowered, ("single-profile-handler".to_owned(), json!({"primaryPort": port})));
    }
    assert_refused(
        "plugins: [{type: data-parallel-profile-handler, parameters: {primaryPort: 65536}}, {type: queue-scorer}]",
        &["plugins[0].parameters: primaryPort is 65536; allowed is 0 to 65535"],
    );
}

/// Example of `pd-profile-handler`.
#[test]
fn pd_profile_handler_is_a_disagg_profile_handler_that_always_has_a_decider() {
    let config = |parameters: &str, plugins: &str| {
        format!(
            "plugins: [{{type: pd-profile-handler, parameters: {parameters}}}, {{type: decode-filter}}{plugins}]\n\
             schedulingProfiles: [{{name: decode}}]"
        )
    };
    let lowered = first(&config("{prefixPluginName: x}", ", {type: prefix-based-pd-decider}"));
    let expected = json!({"profiles": {}, "deciders": {"prefill": "prefix-based-pd-decider"}});
    assert_eq!(lowered, ("disagg-profile-handler".to_owned(), expected));
    let all = "{decodeProfile: decode, prefillProfile: p, deciderPluginName: d, primaryPort: 9000, \
               prefixMatchInfoProducerName: mine}";
    let plugins =
        ", {type: always-disagg-pd-decider, name: d}, {type: approx-prefix-cache-producer, name: mine}";
    let expected = json!({
        "profiles": {"decode": "decode", "prefill": "p"},
        "deciders": {"prefill": "d"},
        "primaryPort": 9000,
        "prefixMatchInfoProducerName": "mine",
    });
    assert_eq!(first(&config(all, plugins)).1, expected);
    let declared = "declared are pd-profile-handler, decode-filter";
    assert_refused(
        &config("{prefixMatchInfoProducerName: mine}", ""),
        &[
            &format!(
                "plugins[0].parameters.prefixMatchInfoProducerName: no plugin is named \"mine\"; {declared}"
            ),
            &format!(
                "plugins[0].parameters.deciderPluginName: no plugin is named \"prefix-based-pd-decider\"; {declared}"
            ),
        ],
    );
    assert_refused(
        &config("{deciderPluginName: decode-filter, decodeProfile: x}", ""),
        &[
            "schedulingProfiles: disagg-profile-handler needs a profile \"x\"; declared are decode",
            "plugins[0].parameters.deciderPluginName: \"decode-filter\" is a decode-filter, not a decider",
        ],
    );
    assert_refused(
        &config("{primaryPort: 65536}", ""),
        &["plugins[0].parameters: primaryPort is 65536; allowed is 0 to 65535"],
    );
}

#[test]
fn flat_parameters_of_the_disagg_profile_handler_move_into_its_objects() {
    let config = |parameters: &str| {
        config(&format!(
            "plugins: [{{type: disagg-profile-handler, parameters: {{{parameters}}}}}, {{type: always-disagg-pd-decider, name: a}}, \
             {{type: always-disagg-multimodal-decider, name: b}}]\nschedulingProfiles: [{{name: decode}}]"
        ))
    };
    let parameters = |flat: &str| -> Value {
        let plugin = policy(&config(flat)).picker_config.unwrap().plugins.swap_remove(0);
        serde_json::from_str(&plugin.parameters).unwrap()
    };
    let profiles =
        "decodeProfile: decode, prefillProfile: p, encodeProfile: e, profiles: {decode: ''}, deciders: {}";
    let expected = json!({"profiles": {"decode": "decode", "prefill": "p", "encode": "e"}, "deciders": {}});
    assert_eq!(parameters(profiles), expected);
    let deciders = "prefillDeciderPluginName: a, deciderPluginName: b, encodeDeciderPluginName: b";
    let expected = json!({"deciders": {"prefill": "a", "encode": "b"}});
    assert_eq!(parameters(deciders), expected, "of two with one place the first one counts");
    assert_eq!(parameters("deciderPluginName: b"), json!({"deciders": {"prefill": "b"}}));
    assert_eq!(
        parameters("decodeProfile: '', profiles: {decode: decode}"),
        json!({"profiles": {"decode": "decode"}})
    );

    let at = "m.yaml: document 1: plugins[0].parameters";
    assert_eq!(
        warnings(&config("decodeProfile: decode, deciderPluginName: b")),
        [
            format!("{at}.decodeProfile: is deprecated; use profiles.decode"),
            format!("{at}.deciderPluginName: is deprecated; use deciders.prefill"),
        ]
    );
    for (flat, expected) in [
        (
            "decodeProfile: decode, deciders: {prefill: a}",
            ": decodeProfile is deprecated and does not go with profiles and deciders",
        ),
        ("decodeProfile: 5", ".decodeProfile: invalid type: integer `5`, expected a string"),
        (
            "deciderPluginName: c",
            ".deciderPluginName: no plugin is named \"c\"; declared are disagg-profile-handler, a, b",
        ),
    ] {
        assert_eq!(refusal(&config(flat)), format!("document 1: plugins[0].parameters{expected}"));
    }
}

#[test]
fn parameters_that_only_lowering_writes_are_refused() {
    for (type_name, parameter, value) in [
        ("disagg-profile-handler", "primaryPort", "8000"),
        ("disagg-profile-handler", "prefixMatchInfoProducerName", "x"),
        ("label-selector-filter", "oneOf", "{label: a, values: [b], allowsNoLabel: true}"),
        ("by-label-selector", "oneOf", "{label: a, values: [b], allowsNoLabel: true}"),
        ("single-profile-handler", "primaryPort", "8000"),
    ] {
        let plugin = format!("plugins: [{{type: {type_name}, parameters: {{{parameter}: {value}}}}}]");
        assert_refused(
            &plugin,
            &[&format!("plugins[0].parameters.{parameter}: unknown field `{parameter}`")],
        );
    }
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

/// Examples of `metrics-data-source`, `core-metrics-extractor` and `file-discovery`.
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
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/rules");
    let pages = std::fs::read_dir(folder).unwrap().map(|page| page.unwrap().path());
    let pages: String = pages.map(|page| std::fs::read_to_string(page).unwrap()).collect();
    let refusal = refusal(&config("plugins: [{type: magic}]"));
    let (_, types) = refusal.split_once("allowed: ").unwrap();
    let types: Vec<_> = types.split(", ").collect();
    assert!(types.contains(&"file-discovery") && types.contains(&"by-label-selector"), "{types:?}");
    for name in types {
        let heading = format!("\n## `{name}`\n");
        let (_, section) = pages.split_once(&heading).unwrap_or_else(|| panic!("no section on {name}"));
        let section = section.split("\n##").next().unwrap();
        assert!(section.contains("*Example.*"), "no example of {name}");
    }
}
