//! `EndpointPickerConfig`: configurations that are accepted.

use metrics_agent_catalogue::{Options, Plan};

use crate::reading::{POOL, config, file, options, plan, policy, refusal, warnings};

#[test]
fn experimental_plugins_require_a_flag() {
    let text = config("plugins: [{type: queue-scorer}, {type: session-affinity-scorer}]");
    assert_eq!(
        refusal(&text),
        "document 1: plugins[1].type: \"session-affinity-scorer\" is experimental; allowed only with \
         --allow-experimental-plugins"
    );
    let options = Options { allow_experimental_plugins: true, ..options() };
    Plan::read(&[file("m.yaml", &text)], &options).unwrap();
}

#[test]
fn deprecated_spellings_are_accepted_with_a_warning() {
    let text = config(
        "plugins:
- {type: approx-prefix-cache-producer, parameters: {blockSize: 128}}
- {type: tokenizer}
- {type: openai-parser}
- {type: utilization-detector}
saturationDetector: {pluginRef: utilization-detector}
parser: {pluginRef: openai-parser}",
    )
    .replace("llm-d.ai/v1alpha1", "inference.networking.x-k8s.io/v1alpha1");
    let mut warnings = warnings(&text);
    warnings.retain(|warning| !warning.contains("no plugin filters, scores or picks"));
    let removed = "is deprecated, and the EPP refuses it from v0.11 on";
    assert_eq!(
        warnings,
        [
            "apiVersion: \"inference.networking.x-k8s.io/v1alpha1\" is deprecated; \"llm-d.ai/v1alpha1\" takes its place"
                .to_owned(),
            format!("plugins[1].type: \"tokenizer\" {removed} (#2869); use token-producer"),
            format!("saturationDetector: {removed} (#2838); use flowControl.saturationDetector"),
            format!("parser: {removed} (#2838); use requestHandler.parsers"),
            "plugins[0].parameters.blockSize: is deprecated; use blockSizeTokens, which wins where both are set"
                .to_owned(),
        ]
        .map(|warning| format!("m.yaml: document 1: {warning}"))
    );
    let picker = policy(&text).picker_config.unwrap();
    assert_eq!(picker.plugins[0].parameters, r#"{"blockSizeTokens":128}"#);
    assert_eq!(picker.plugins[1].name, "token-producer");
    assert_eq!(
        (picker.parsers, picker.saturation_detector.unwrap().as_str()),
        (vec!["openai-parser".to_owned()], "utilization-detector")
    );
}

#[test]
fn deprecated_types_are_accepted_with_a_warning() {
    let text = config(
        "plugins:
- {type: by-label, parameters: {label: a, allowsNoLabel: true}}
- {type: by-label-selector}
- {type: prefill-header-handler, parameters: {prefillProfile: prefill}}
- {type: pd-profile-handler, parameters: {deciderPluginName: always-disagg-pd-decider}}
- {type: always-disagg-pd-decider}
schedulingProfiles: [{name: decode}, {name: prefill}]",
    );
    let warned = |at: usize, text: &str| format!("m.yaml: document 1: plugins[{at}].type: {text}");
    let removed = "is deprecated, and the EPP refuses it from v0.11 on";
    assert_eq!(
        warnings(&text),
        [
            warned(0, &format!("\"by-label\" {removed} (#2859); use label-selector-filter")),
            warned(1, &format!("\"by-label-selector\" {removed} (#2865); use label-selector-filter")),
            warned(3, &format!("\"pd-profile-handler\" {removed} (#2493); use disagg-profile-handler")),
            warned(
                2,
                &format!(
                    "\"prefill-header-handler\" {removed} (#2815); use disagg-profile-handler, which writes the headers"
                )
            ),
            warned(
                2,
                "\"prefill-header-handler\" has no effect here: disagg-profile-handler writes the headers"
            ),
        ]
    );
    let other = config("plugins: [{type: data-parallel-profile-handler}, {type: queue-scorer}]");
    assert_eq!(
        warnings(&other),
        [warned(0, "\"data-parallel-profile-handler\" is deprecated; use single-profile-handler")]
    );
    let precise = config(
        "plugins: [{type: precise-prefix-cache-scorer, parameters: {indexerConfig: {tokenizersPoolConfig: {}}}}]",
    );
    let warnings = warnings(&precise);
    let expected =
        format!("\"precise-prefix-cache-scorer\" {removed} (#2844); use precise-prefix-cache-producer");
    assert!(warnings[0].starts_with(&warned(0, &expected)), "{warnings:?}");
    assert!(warnings[1].contains("plugins[0].parameters: blocks are matched by their texts"), "{warnings:?}");
}

#[test]
fn the_precise_mode_of_the_epp_becomes_a_match_by_texts() {
    let text = config(
        "plugins:
- {type: token-producer, parameters: {modelName: m, vllm: {url: 'http://render:8000'}}}
- {type: endpoint-notification-source}
- type: precise-prefix-cache-producer
  parameters:
    tokenProcessorConfig: {blockSize: 64}
    indexerConfig: {kvBlockIndexConfig: {enableMetrics: true}}
    kvEventsConfig: {zmqEndpoint: 'tcp://0.0.0.0:5557'}
- {type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: precise-prefix-cache-producer}}
dataLayer: {sources: [{pluginRef: endpoint-notification-source, extractors: [{pluginRef: precise-prefix-cache-producer}]}]}",
    );
    let about_producer: Vec<String> =
        warnings(&text).into_iter().filter(|warning| warning.contains("plugins[2].parameters: ")).collect();
    assert!(about_producer[0].contains("--kv-events"), "{about_producer:?}");
    assert!(about_producer[1].contains("\"tcp://0.0.0.0:5557\" has no effect"), "{about_producer:?}");
    assert_eq!(about_producer.len(), 2);
    let picker = policy(&text).picker_config.unwrap();
    let types: Vec<&str> = picker.plugins.iter().map(|plugin| plugin.r#type.as_str()).collect();
    assert_eq!(types, ["token-producer", "precise-prefix-cache-producer", "prefix-cache-scorer"]);
}

#[test]
fn a_load_that_counts_cached_prompts_as_tokens_to_read_has_a_warning() {
    let name = "precise-prefix-cache-producer";
    let warned = |load: &str| {
        let text = config(&format!(
            "plugins:
- {{type: endpoint-notification-source}}
- {{type: {name}}}
- {{type: expected-latency-scorer, parameters: {{prefixMatchInfoProducerName: {name}}}}}
{load}"
        ));
        let about_scorer = |warning: &String| warning.contains("plugins[2]");
        warnings(&text).into_iter().filter(about_scorer).collect::<Vec<_>>()
    };
    let expected = format!(
        "m.yaml: document 1: plugins[2].parameters.prefixMatchInfoProducerName: is \"{name}\", and tokens in flight count whole prompts as \
         tokens to read; give inflight-load-producer the same prefixMatchInfoProducerName"
    );
    assert_eq!(warned(""), [expected]);
    let same =
        format!("- {{type: inflight-load-producer, parameters: {{prefixMatchInfoProducerName: {name}}}}}");
    assert_eq!(warned(&same), [""; 0]);
}

#[test]
fn a_current_spelling_wins_over_a_deprecated_one() {
    let picker = policy(&config(
        "plugins: [{type: openai-parser}, {type: anthropic-parser}, {type: queue-scorer},
  {type: utilization-detector, name: a}, {type: utilization-detector, name: b},
  {type: approx-prefix-cache-producer, parameters: {blockSize: 1, blockSizeTokens: 2}}]
saturationDetector: {pluginRef: a}
flowControl: {saturationDetector: {pluginRef: b}}
parser: {pluginRef: openai-parser}
requestHandler: {parsers: [{pluginRef: anthropic-parser}]}",
    ))
    .picker_config
    .unwrap();
    assert_eq!(
        (picker.parsers, picker.saturation_detector),
        (vec!["anthropic-parser".to_owned()], Some("b".to_owned()))
    );
    assert_eq!(picker.plugins[5].parameters, r#"{"blockSizeTokens":2}"#);
}

#[test]
fn flow_control_but_its_detector_is_ignored_with_a_warning() {
    let scorer = "plugins: [{type: queue-scorer}, {type: concurrency-detector}]\n";
    let text = config(&format!(
        "{scorer}flowControl: {{maxBytes: 1Gi, saturationDetector: {{pluginRef: concurrency-detector}}}}"
    ));
    assert_eq!(
        warnings(&text),
        [
            "m.yaml: document 1: flowControl: only saturationDetector is used, because requests are queued only with the feature gate flowControl"
        ]
    );
    assert_eq!(policy(&text).picker_config.unwrap().saturation_detector.unwrap(), "concurrency-detector");
    let only =
        config(&format!("{scorer}flowControl: {{saturationDetector: {{pluginRef: concurrency-detector}}}}"));
    assert_eq!(warnings(&only), Vec::<String>::new());
}

#[test]
fn with_the_gate_requests_wait_in_proxies_that_have_a_queue() {
    let section = "flowControl: {maxRequests: 7, priorityBands: [{priority: 5, maxRequests: 3}]}";
    for gate in ["flowControl", "flowControl= True", "flowControl=0', 'flowControl=1"] {
        let text = config(&format!("plugins: [{{type: queue-scorer}}]\nfeatureGates: ['{gate}']\n{section}"));
        let [warning] = &warnings(&text)[..] else { panic!("{:?}", warnings(&text)) };
        let expected = "requests wait only in the native module; the wasm filter refuses this configuration";
        assert!(warning.ends_with(expected), "{warning}");
        let queueing = policy(&text).picker_config.unwrap().flow_control.unwrap();
        assert_eq!((queueing.max_requests, queueing.priority_bands.len()), (7, 1));
    }
    let off = config(&format!(
        "plugins: [{{type: queue-scorer}}]\nfeatureGates: [flowControl, 'flowControl=0']\n{section}"
    ));
    assert_eq!(policy(&off).picker_config.unwrap().flow_control, None);
}

#[test]
fn parsers_and_the_default_detector_need_not_be_declared() {
    let picker = policy(&config(
        "plugins: [{type: queue-scorer}]
requestHandler: {parsers: [{pluginRef: openai-parser}]}
flowControl: {saturationDetector: {pluginRef: utilization-detector}}",
    ))
    .picker_config
    .unwrap();
    let names: Vec<_> = picker.plugins.iter().map(|plugin| plugin.name.as_str()).collect();
    assert_eq!((names, picker.saturation_detector), (vec!["queue-scorer", "openai-parser"], None));
}

#[test]
fn a_configuration_without_scheduling_plugins_picks_at_random_with_a_warning() {
    let text = config("plugins: [{type: metrics-data-source}]");
    assert_eq!(
        warnings(&text),
        [
            "m.yaml: document 1: plugins: no plugin filters, scores or picks; endpoints are picked at random, as in the EPP"
        ]
    );
    let profiles = policy(&text).picker_config.unwrap().profiles;
    assert_eq!((profiles.len(), profiles[0].plugins.len()), (1, 0));
}

#[test]
fn no_configuration_is_the_default_one() {
    assert_eq!(policy(POOL).picker_config, None);
}

#[test]
fn a_configuration_is_for_all_pools_or_for_the_one_it_names() {
    let scorer = |metadata: &str, name: &str| {
        config(&format!("{metadata}plugins: [{{type: queue-scorer, name: {name}}}]\n---\n"))
    };
    let pools = POOL.to_owned() + &POOL.replace("{name: p}", "{name: q}");
    let text = format!("{pools}\n{}{}", scorer("metadata: {name: q}\n", "own"), scorer("", "common"));
    let used: Vec<_> = plan(&text)
        .pools
        .into_iter()
        .map(|pool| (pool.name, pool.policy.picker_config.unwrap().plugins[0].name.clone()))
        .collect();
    assert_eq!(used, [("p".to_owned(), "common".to_owned()), ("q".to_owned(), "own".to_owned())]);
    assert_eq!(
        refusal(&format!("{pools}\n{}{}", scorer("", "a"), scorer("", "b"))),
        "document 4: metadata.name: is a second configuration of all pools; the first is document 3 of m.yaml"
    );
    assert_eq!(
        refusal(&format!("{pools}\n{}", scorer("metadata: {name: r}\n", "a"))),
        "document 3: metadata.name: unknown pool \"r\"; allowed are p, q, or no metadata for all pools"
    );
}
