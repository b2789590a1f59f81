//! `EndpointPickerConfig` of the EPP's later versions: other fields, and plugins that have no effect here.

use endpoint_picker::epp_rules::EppRules;
use endpoint_picker_wire::{NamedRules, v1};
use metrics_agent_catalogue::{Options, Plan};

use crate::reading::{POOL, config, experimental, file, options, policy, refusal, warned};

#[test]
fn a_configuration_of_v1_decides_as_the_same_of_v1alpha1() {
    let both = "kind: EndpointPickerConfig
plugins: [{type: queue-scorer}, {type: file-discovery, name: files, parameters: {path: /x}}]
flowControl: {maxRequests: 7}
featureGates: [flowControl]
";
    let older =
        format!("apiVersion: llm-d.ai/v1alpha1\n{both}dataLayer: {{discovery: {{pluginRef: files}}}}");
    let newer = format!(
        "apiVersion: llm-d.ai/v1\n{both}dataLayer: {{discovery: {{endpoints: {{pluginRef: files}}}}}}"
    );
    assert_eq!(policy(&older), policy(&newer));
    let read = |text: &str| {
        let plan = Plan::read(&[file("m.yaml", text)], &options()).unwrap();
        plan.endpoints_file.map(|path| path.display().to_string())
    };
    assert_eq!((read(&older), read(&newer)), (Some("/x".to_owned()), Some("/x".to_owned())));
}

#[test]
fn fields_of_later_versions_are_accepted_in_each_version() {
    for version in ["llm-d.ai/v1", "llm-d.ai/v1alpha1"] {
        let text = config(
            "plugins: [{type: queue-scorer}, {type: file-discovery, name: a, parameters: {path: /x}}]
requestHandler: {propagatePriority: true}
dataLayer:
  discovery: {pluginRef: b, endpoints: {pluginRef: a}, peers: {pluginRef: c}}
  peerDiscovery: {pluginRef: d}
  crossReplica: {syncerPluginRef: e, syncInterval: 500ms, publishTimeout: 2s}
  crossReplicaSyncInterval: 1s",
        )
        .replace("llm-d.ai/v1alpha1", version);
        let shared = "has no effect here: proxies share their changes through the agents (--share)";
        assert_eq!(
            warned(&text),
            [
                format!("dataLayer.discovery.peers: {shared}"),
                format!("dataLayer.peerDiscovery: {shared}"),
                format!("dataLayer.crossReplica: {shared}"),
                format!("dataLayer.crossReplicaSyncInterval: {shared}"),
                "dataLayer.discovery.pluginRef: has no effect, because endpoints is given too".to_owned(),
            ]
        );
    }
}

#[test]
fn a_band_may_have_a_time_to_live_of_its_own() {
    let text = config(
        "plugins: [{type: queue-scorer}]
featureGates: [flowControl]
flowControl:
  defaultRequestTTL: 1m
  defaultPriorityBand: {defaultRequestTTL: 2m}
  priorityBands: [{priority: 1, defaultRequestTTL: 1500ms}, {priority: 2, defaultRequestTTL: 0s}, {priority: 3}]",
    );
    let queueing = policy(&text).picker_config.unwrap().flow_control.unwrap();
    let own: Vec<_> = queueing.priority_bands.iter().map(|band| band.default_request_ttl_ms).collect();
    assert_eq!(own, [Some(1_500), Some(0), None]);
    assert_eq!(queueing.default_priority_band.unwrap().default_request_ttl_ms, Some(120_000));
}

/// Examples of `sheddable-eviction-filter` and `priority-then-time-eviction-order-policy`.
#[test]
fn plugins_without_effect_are_accepted_with_the_reason() {
    let text = config(
        "plugins:
- {type: queue-scorer}
- {type: metrics-data-source}
- {type: core-metrics-extractor}
- {type: endpoint-notification-source}
- {type: k8s-notification-source, parameters: {version: v1, kind: Pod}}
- {type: models-data-source, parameters: {interval: 1s}}
- {type: models-data-extractor}
- {type: sheddable-eviction-filter}
- {type: priority-then-time-eviction-order-policy}
dataLayer:
  sources:
  - {pluginRef: endpoint-notification-source, extractors: [{pluginRef: queue-scorer}]}
  - {pluginRef: metrics-data-source, extractors: [{pluginRef: core-metrics-extractor}]}",
    );
    let refused = refusal(&text);
    assert!(refused.contains("plugins[7].type: \"sheddable-eviction-filter\" is experimental"), "{refused}");
    let options = Options { allow_experimental_plugins: true, ..options() };
    let plan = Plan::read(&[file("m.yaml", &text)], &options).unwrap();
    let warned: Vec<_> = plan.warnings.iter().map(ToString::to_string).collect();
    let expected = [
        (3, "\"endpoint-notification-source\" has no effect here: discovery reports"),
        (4, "\"k8s-notification-source\" has no effect here: no plugin reads"),
        (7, "\"sheddable-eviction-filter\" has no effect here: flowControl.enableEviction"),
        (8, "\"priority-then-time-eviction-order-policy\" has no effect here: flowControl.enableEviction"),
        (5, "\"models-data-source\" has no effect here: dataLayer.sources lists no"),
        (6, "\"models-data-extractor\" has no effect here: dataLayer.sources lists no"),
    ];
    assert_eq!(warned.len(), expected.len(), "{warned:?}");
    for (warning, (index, text)) in warned.iter().zip(expected) {
        assert!(
            warning.starts_with(&format!("m.yaml: document 1: plugins[{index}].type: {text}")),
            "{warning}"
        );
    }
    let plugins = &plan.pools[0].policy.picker_config.as_ref().unwrap().plugins;
    let names: Vec<_> = plugins.iter().map(|plugin| plugin.name.as_str()).collect();
    assert_eq!(names, ["queue-scorer"], "the filter does not receive them");
}

/// Examples of `k8s-notification-source` and `models-data-source`.
#[test]
fn their_parameters_are_checked() {
    for (plugin, expected) in [
        ("{type: k8s-notification-source}", "parameters: version and kind are required"),
        (
            "{type: models-data-source, parameters: {path: m}}",
            "parameters: path is \"m\"; it must start with '/'",
        ),
        (
            "{type: endpoint-notification-source, parameters: {x: 1}}",
            "parameters.x: unknown field `x`, there are no fields",
        ),
    ] {
        assert_eq!(
            refusal(&config(&format!("plugins: [{plugin}]"))),
            format!("document 1: plugins[0].{expected}")
        );
    }
}

#[test]
fn a_pool_decides_by_the_rules_of_the_flag_or_of_its_annotation() {
    let rules = |annotation: &str, flag| {
        let text = POOL.replace("{name: p}", &format!("{{name: p, annotations: {{{annotation}}}}}"));
        let options = Options { epp_rules: flag, ..options() };
        Plan::read(&[file("m.yaml", &text)], &options).map(|plan| plan.pools[0].policy.epp_rules())
    };
    let [own, older, newer] = [v1::EppRules::Own, v1::EppRules::V010, v1::EppRules::V011];
    assert_eq!(rules("", EppRules::default()).unwrap(), own);
    assert_eq!(rules("", EppRules::V010).unwrap(), older);
    assert_eq!(rules("other: v0.10", EppRules::V011).unwrap(), newer);
    assert_eq!(rules("endpoint-picker/epp-rules: v0.11", EppRules::V010).unwrap(), newer);
    assert_eq!(rules("endpoint-picker/epp-rules: main", EppRules::V010).unwrap(), newer);
    assert_eq!(rules("endpoint-picker/epp-rules: v0.10", EppRules::V011).unwrap(), older);
    assert_eq!(rules("endpoint-picker/epp-rules: own", EppRules::V011).unwrap(), own);
    assert_eq!(
        rules("endpoint-picker/epp-rules: v1", EppRules::V011).unwrap_err().to_string(),
        "m.yaml: document 1: metadata.annotations: \"endpoint-picker/epp-rules\": \"v1\" is unknown; allowed are own, v0.10, v0.11"
    );
    let former = POOL.replace("{name: p}", "{name: p, annotations: {endpoint-picker/epp-rules: main}}");
    let warning = "metadata.annotations: \"endpoint-picker/epp-rules\": \"main\" is the former name of v0.11; use v0.11";
    assert_eq!(warned(&former), [warning]);
}

#[test]
fn a_filter_with_which_clients_choose_servers_needs_the_flag() {
    let text = config("plugins: [{type: queue-scorer}, {type: header-based-testing-filter}]");
    assert!(refusal(&text).contains("\"header-based-testing-filter\" is experimental"));
}

/// The problems of a configuration under these rules, without their places; empty: it is accepted.
fn refused_by(rules: EppRules, body: &str) -> Vec<String> {
    let options = Options { epp_rules: rules, allow_experimental_plugins: true, ..options() };
    let Err(problems) = Plan::read(&[file("m.yaml", &config(body))], &options) else { return Vec::new() };
    problems.to_string().lines().map(|line| line.replace("m.yaml: document 1: ", "")).collect()
}

#[test]
fn documents_are_read_by_the_schema_of_the_version_whose_rules_decide() {
    let removed = "plugins: [{type: queue-scorer}, {type: tokenizer}, {type: inflight-load-producer, parameters: {outputRatio: 2}}]
parser: {pluginRef: openai-parser}";
    let of_v011 = "and this pool reads documents of v0.11 (--epp-rules own reads all)";
    assert_eq!(
        refused_by(EppRules::V011, removed),
        [
            format!(
                "plugins[1].type: \"tokenizer\" is removed in v0.11 of the EPP (#2869), {of_v011}; use token-producer"
            ),
            format!("parser: is removed in v0.11 of the EPP (#2838), {of_v011}; use requestHandler.parsers"),
            format!("plugins[2].parameters.outputRatio: is removed in v0.11 of the EPP (#2309), {of_v011}"),
        ]
    );
    let newer = "plugins: [{type: queue-scorer}, {type: active-request-filter, parameters: {maxRequests: 9}}]
flowControl: {noEndpointRequestTTL: 9s}";
    let of_v010 = "and this pool reads documents of v0.10 (--epp-rules own reads all)";
    assert_eq!(
        refused_by(EppRules::V010, newer),
        [
            format!(
                "plugins[1].type: \"active-request-filter\" is in the EPP since v0.11 (#2209), {of_v010}; use utilization-filter"
            ),
            format!("flowControl.noEndpointRequestTTL: is in the EPP since v0.11 (#2284), {of_v010}"),
        ]
    );
    for (rules, body) in [
        (EppRules::V010, removed),
        (EppRules::V011, newer),
        (EppRules::Own, removed),
        (EppRules::Own, newer),
        // Ours are in no version, and a name is not a type.
        (
            EppRules::V010,
            "plugins: [{type: expected-latency-scorer}, {type: queue-scorer, name: active-request-filter}]",
        ),
        (EppRules::V011, "plugins: [{type: expected-latency-scorer}, {type: queue-scorer, name: tokenizer}]"),
    ] {
        assert_eq!(refused_by(rules, body), Vec::<String>::new(), "{rules:?} {body}");
    }
}

#[test]
fn of_one_version_each_schema_has_its_own_fields() {
    let problems = |rules, version: &str, data_layer: &str| {
        let text = config(&format!("plugins: [{{type: queue-scorer}}]\ndataLayer: {{{data_layer}}}"))
            .replace("llm-d.ai/v1alpha1", version);
        let options = Options { epp_rules: rules, ..options() };
        Plan::read(&[file("m.yaml", &text)], &options).err().map(|problems| problems.to_string())
    };
    let newer = "crossReplica: {syncInterval: 1s}";
    let older = "crossReplicaSyncInterval: 1s, peerDiscovery: {pluginRef: a}";
    let [v1, v1alpha1] = ["llm-d.ai/v1", "llm-d.ai/v1alpha1"];
    for (version, data_layer) in [(v1, newer), (v1alpha1, older)] {
        assert_eq!(problems(EppRules::V011, version, data_layer), None, "{version}");
    }
    let refused = problems(EppRules::V011, v1, older).unwrap();
    for expected in [
        "dataLayer.crossReplicaSyncInterval: is in the EPP's documents of another apiVersion, and",
        "; use crossReplica.syncInterval",
        "dataLayer.peerDiscovery: is in the EPP's documents of another apiVersion, and",
    ] {
        assert!(refused.contains(expected), "{refused}");
    }
    assert!(problems(EppRules::V011, v1alpha1, newer).unwrap().contains("; use crossReplicaSyncerPluginRef"));
    for version in [v1, v1alpha1] {
        for data_layer in [newer, older] {
            assert_eq!(problems(EppRules::Own, version, data_layer), None, "all are read");
        }
    }
}

#[test]
fn the_annotation_of_a_pool_decides_about_the_names_of_its_configuration() {
    let pool = POOL.replace("{name: p}", "{name: p, annotations: {endpoint-picker/epp-rules: v0.11}}");
    let text = format!("{pool}\n{}", config("plugins: [{type: queue-scorer}, {type: tokenizer}]"));
    assert!(refusal(&text).contains("\"tokenizer\" is removed in v0.11 of the EPP (#2869)"));
    let shadow = "metadata: {name: p, annotations: {endpoint-picker/shadow: \"true\"}}";
    let text = format!(
        "{pool}\n{}",
        config(&format!("{shadow}\nplugins: [{{type: queue-scorer}}, {{type: tokenizer}}]"))
    );
    assert!(refusal(&text).contains("\"tokenizer\" is removed in v0.11 of the EPP (#2869)"));
}

#[test]
fn names_without_a_release_have_the_word_to_use_instead() {
    let unreleased = "plugins: [{type: thunder-agent}, {type: approx-prefix-cache-producer, parameters: {prefixHashSource: metadata}}]";
    for rules in EppRules::NAMED {
        assert_eq!(
            refused_by(rules, unreleased),
            [
                "plugins[1].parameters.prefixHashSource: was never released in a version of the EPP (#1972); use body, the prompt itself",
                "plugins[0].type: \"thunder-agent\" is known, and not released in any version of the EPP (#2964); \
                 use program-aware-fairness with agent-identity",
            ]
        );
    }
}

/// Examples of `disaggregatedset-rollout-screener`, `multicluster-approx-prefix-cache-producer`,
/// `multicluster-prefix-cache-scorer` and
/// `multicluster-session-affinity-filter`.
#[test]
fn types_that_pass_every_endpoint_or_are_aliases_are_accepted_with_a_warning_of_what_they_do_not_do() {
    let text = config(
        "plugins:
- {type: queue-scorer}
- {type: multicluster-approx-prefix-cache-producer}
- {type: multicluster-prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: multicluster-approx-prefix-cache-producer}}
- {type: multicluster-session-affinity-filter}
- type: disaggregatedset-rollout-screener
  parameters: {scope: {labelSelector: a=b}, revisionGating: {mode: max-role, requiredRoles: [prefill, decode]}}",
    );
    assert!(refusal(&text).contains("\"multicluster-prefix-cache-scorer\" is experimental"));
    let plan = experimental(&text).unwrap();
    let warned: Vec<String> = plan.warnings.iter().map(ToString::to_string).collect();
    for (warning, (index, text)) in warned.iter().zip([
        (1, "chooses among no clusters"),
        (2, "chooses among no clusters"),
        (3, "chooses among no clusters"),
        (4, "has no effect here: every endpoint passes: no revision is drawn"),
    ]) {
        assert!(warning.contains(&format!("plugins[{index}].type: ")) && warning.contains(text), "{warning}");
    }
    let plugins = &plan.pools[0].policy.picker_config.as_ref().unwrap().plugins;
    let types: Vec<&str> = plugins.iter().map(|plugin| plugin.r#type.as_str()).collect();
    assert_eq!(
        types,
        ["queue-scorer", "approx-prefix-cache-producer", "prefix-cache-scorer", "session-affinity-filter"]
    );
}

#[test]
fn a_pool_without_a_configuration_has_the_recommended_rules_or_those_of_the_epp_that_decides() {
    let has_configuration = |annotation: &str, epp_rules, rules| {
        let text = POOL.replace("{name: p}", &format!("{{name: p, annotations: {{{annotation}}}}}"));
        let options = Options { epp_rules, rules, ..options() };
        Plan::read(&[file("m.yaml", &text)], &options).unwrap().pools[0].policy.picker_config.is_some()
    };
    let (own, named) = (EppRules::Own, NamedRules::ExpectedLatency);
    assert!(has_configuration("", own, None));
    assert!(!has_configuration("", own, Some(NamedRules::Epp)));
    assert!(!has_configuration("", EppRules::V010, None), "the EPP's default");
    assert!(!has_configuration("endpoint-picker/epp-rules: v0.11", own, None));
    assert!(has_configuration("endpoint-picker/epp-rules: own", EppRules::V011, None));
    assert!(has_configuration("endpoint-picker/epp-rules: v0.11", own, Some(named)), "a flag counts");
}
