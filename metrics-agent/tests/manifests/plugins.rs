//! Plugins whose configuration says more to the agent than its parameters: sources of readings, forms of the
//! filter, other pools.

use core::num::NonZeroU16;
use core::time::Duration;

use metrics_agent_catalogue::Plan;
use metrics_agent_catalogue::scraping::SourceKind;

use crate::reading::{POOL, config, experimental, file, options, refusal, warned};

/// The plugins of the EPP's chart and of its guides on predicted latency.
#[test]
fn configurations_with_predicted_latency_are_accepted() {
    let affinity = "{type: prefix-cache-affinity-filter, parameters: {ttftSource: latencyPredictor, maxTTFTPenaltyMs: 5000}}";
    let streaming = "{type: predicted-latency-producer, parameters: {streamingMode: true}}";
    let accepted = [
        // Without limits.
        format!("plugins: [{{type: predicted-latency-producer}}, {affinity}, {{type: latency-scorer}}, {{type: weighted-random-picker}}]"),
        // With limits, and as the chart has it: the admitter is in no profile.
        format!(
            "plugins: [{streaming}, {affinity}, {{type: slo-headroom-tier-filter}}, {{type: latency-scorer}}, \
             {{type: weighted-random-picker}}, {{type: latency-slo-admitter}}]
schedulingProfiles:
- name: default
  plugins:
  - {{pluginRef: prefix-cache-affinity-filter}}
  - {{pluginRef: slo-headroom-tier-filter}}
  - {{pluginRef: latency-scorer}}
  - {{pluginRef: weighted-random-picker}}"
        ),
        // Disaggregated, with a scorer for each stage.
        format!(
            "plugins: [{{type: always-disagg-pd-decider}}, {{type: prefill-filter}}, {{type: decode-filter}}, {streaming}, \
             {{type: disagg-profile-handler, parameters: {{deciders: {{prefill: always-disagg-pd-decider}}}}}}, {affinity}, \
             {{type: latency-scorer, name: first, parameters: {{ttftWeight: 1, tpotWeight: 0}}}}, \
             {{type: latency-scorer, name: further, parameters: {{ttftWeight: 0, tpotWeight: 1}}}}]
schedulingProfiles:
- {{name: prefill, plugins: [{{pluginRef: prefill-filter}}, {{pluginRef: prefix-cache-affinity-filter}}, {{pluginRef: first}}]}}
- {{name: decode, plugins: [{{pluginRef: decode-filter}}, {{pluginRef: further}}]}}"
        ),
        // The producer in a profile, which has no part in it.
        "plugins: [{type: predicted-latency-producer}, {type: latency-scorer}]
schedulingProfiles: [{name: default, plugins: [{pluginRef: predicted-latency-producer}, {pluginRef: latency-scorer}]}]"
            .to_owned(),
    ];
    for text in accepted {
        assert_eq!(warned(&config(&text)), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn parameters_of_the_epps_predictor_without_effect_are_accepted_with_a_warning() {
    let text = config(
        "plugins: [{type: latency-scorer}, {type: predicted-latency-producer, parameters: {contextTTL: 1m, samplingMean: 50,
  maxDecodeTokenSamplesForPrediction: 2, useEncoderCacheFeatures: true, encoderCacheMatchInfoProducerName: mm, predictInProduce: true}}]",
    );
    let images = "has no effect here: images count as tokens of the prompt";
    let samples = "has no effect here: nothing is sampled during a response, in the EPP since v0.10 neither";
    let expected = [
        "contextTTL has no effect here: a request is followed to its end".to_owned(),
        format!("useEncoderCacheFeatures {images}"),
        format!("encoderCacheMatchInfoProducerName {images}"),
        format!("samplingMean {samples}"),
        format!("maxDecodeTokenSamplesForPrediction {samples}"),
    ];
    assert_eq!(warned(&text), expected.map(|warning| format!("plugins[1].parameters: {warning}")));
    let refused =
        refusal(&config("plugins: [{type: predicted-latency-producer, parameters: {sloBufferFactor: -1}}]"));
    assert!(refused.contains("sloBufferFactor is -1; allowed is above 0"), "{refused}");
}

const GPU: &str = "plugins:
- {type: models-data-source}
- {type: models-data-extractor}
- {type: dcgm-data-source, name: gpus, parameters: {port: 9401, interval: 1s, useNodeAddress: true, path: /gpu}}
- {type: dcgm-extractor}
- type: endpoint-attribute-filter
  parameters:
    attribute: GPUUtilization/dcgm-extractor
    fallbackOnEmpty: true
    algorithm: {type: threshold, threshold: {operator: LessThanOrEqual, value: 0.9}}
- type: endpoint-attribute-scorer
  parameters:
    attributeKey: GPUUtilization
    producer: dcgm-extractor
    algorithm: {type: linear_lower_is_better, normalization: {fixedRange: {min: 0.0, max: 1.0}}}
dataLayer:
  sources:
  - {pluginRef: models-data-source, extractors: [{pluginRef: models-data-extractor}]}
  - {pluginRef: gpus, extractors: [{pluginRef: dcgm-extractor}]}";

#[test]
fn gpu_utilization_is_read_from_exporters_and_by_the_attribute_plugins() {
    assert!(refusal(&config(GPU)).contains("\"dcgm-data-source\" is experimental"));
    let plan = experimental(&config(GPU)).unwrap();
    let sources = plan.pools[0].scraping(&crate::harness::settings().scrape).sources;
    let [gpu, models] = &sources[..] else { panic!("{sources:?}") };
    assert_eq!(models.kind, SourceKind::Models);
    assert_eq!(
        (gpu.kind, gpu.port.map(NonZeroU16::get), gpu.is_on_node),
        (SourceKind::Gpu, Some(9401), true)
    );
    assert_eq!((gpu.settings.path.path(), gpu.settings.interval), ("/gpu", Duration::from_secs(1)));
    let plugins = &plan.pools[0].policy.picker_config.as_ref().unwrap().plugins;
    let names: Vec<_> = plugins.iter().map(|plugin| plugin.name.as_str()).collect();
    assert_eq!(names, ["endpoint-attribute-filter", "endpoint-attribute-scorer"]);
}

#[test]
fn gpu_utilization_without_a_source_is_refused() {
    let unlisted = "is published only if dataLayer.sources lists a dcgm-data-source with a dcgm-extractor";
    for (from, to, expected) in [
        (", extractors: [{pluginRef: dcgm-extractor}]", "", unlisted),
        ("{pluginRef: gpus,", "{pluginRef: gpus2,", "no plugin is named \"gpus2\""),
        (
            "[{pluginRef: dcgm-extractor}]",
            "[{pluginRef: models-data-extractor}]",
            "\"models-data-extractor\" is a models-data-extractor; allowed: dcgm-extractor",
        ),
        ("port: 9401", "port: 70000", "port is 70000; allowed is 1 to 65535"),
        ("interval: 1s", "interval: 70ms", "is 70ms; it must be a multiple of 50ms"),
        ("path: /gpu", "scheme: ftp", "unknown variant `ftp`"),
    ] {
        let refused = experimental(&config(&GPU.replacen(from, to, 1))).unwrap_err();
        assert!(refused.contains(expected), "{refused}");
    }
    let twice = format!("{GPU}\n  - {{pluginRef: gpus, extractors: [{{pluginRef: dcgm-extractor}}]}}");
    let refused = experimental(&config(&twice)).unwrap_err();
    assert!(refused.contains("\"gpus\" is a second dcgm-data-source; allowed is one"), "{refused}");
}

#[test]
fn a_configuration_for_bursts_is_accepted_with_a_warning_that_no_request_waits() {
    let text = config(
        "plugins:
- {type: token-producer, parameters: {modelName: m, vllm: {url: \"http://localhost:8000\"}}}
- {type: burst-prefix-cache-producer, parameters: {windowDurationMs: 200, maxPerReplica: -1, minColocateBlocks: 0}}
- {type: prefix-cache-scorer, parameters: {prefixMatchInfoProducerName: burst-prefix-cache-producer}}
- {type: load-aware-scorer}",
    );
    assert!(refusal(&text).contains("\"burst-prefix-cache-producer\" is experimental"));
    let warned: Vec<_> = experimental(&text).unwrap().warnings.iter().map(ToString::to_string).collect();
    let expected =
        "m.yaml: document 1: plugins[1].parameters: requests are not held for the window of 200 ms";
    assert!(warned.iter().any(|warning| warning.starts_with(expected)), "{warned:?}");
    let refused = experimental(&text.replace("minColocateBlocks: 0", "minColocateBlocks: 2")).unwrap_err();
    assert!(
        refused.contains("minColocateBlocks is 2; allowed is 0, because requests are not held"),
        "{refused}"
    );
}

/// As the EPP's integration test has it: in a profile too, where it does nothing.
#[test]
fn a_number_of_responses_is_for_the_native_module() {
    let text = config(
        "plugins:
- {type: queue-scorer}
- {type: max-score-picker}
- name: cost
  type: request-attribute-reporter
  parameters:
    attributes:
    - key: {namespace: envoy.lb, name: x-gateway-inference-request-cost}
      expression: usage.completion_tokens * 2
      condition: has(usage.completion_tokens)
schedulingProfiles:
- {name: default, plugins: [{pluginRef: queue-scorer}, {pluginRef: max-score-picker}, {pluginRef: cost}]}",
    );
    let warned = |text: &str| -> Vec<String> {
        experimental(text).unwrap().warnings.iter().map(ToString::to_string).collect()
    };
    let at = "m.yaml: document 1: plugins[2].parameters: ";
    let wasm =
        format!("{at}the number has no effect with the wasm filter, which cannot write dynamic metadata");
    let warnings = warned(&text);
    assert!(warnings.contains(&wasm), "{warnings:?}");
    let failure = format!("{at}the expressions fail with a usual response: ");
    assert!(warnings.iter().any(|warning| warning.starts_with(&failure)), "{warnings:?}");
    let fixed = warned(&text.replace("* 2", "* 2.0"));
    assert!(!fixed.iter().any(|warning| warning.starts_with(&failure)), "{fixed:?}");
}

#[test]
fn the_models_of_servers_are_read_for_the_filter_by_models() {
    let text = config(
        "plugins:
- {type: models-data-source, parameters: {path: /m}}
- {type: models-data-extractor}
- {type: served-model-filter}
dataLayer: {sources: [{pluginRef: models-data-source, extractors: [{pluginRef: models-data-extractor}]}]}",
    );
    let plan = experimental(&text).unwrap();
    let sources = plan.pools[0].scraping(&crate::harness::settings().scrape).sources;
    let [models] = &sources[..] else { panic!("{sources:?}") };
    assert_eq!((models.kind, models.port, models.is_on_node), (SourceKind::Models, None, false));
    assert_eq!((models.settings.path.path(), models.settings.interval), ("/m", Duration::from_secs(1)));
    // Lists of models read them too.
    let listed = text.replace("- {type: served-model-filter}\n", "");
    let sources =
        experimental(&listed).unwrap().pools[0].scraping(&crate::harness::settings().scrape).sources;
    assert_eq!(sources.len(), 1);
    let unlisted = text.replace(", extractors: [{pluginRef: models-data-extractor}]", "");
    let refused = experimental(&unlisted).unwrap_err();
    assert!(refused.contains("lists a models-data-source with a models-data-extractor"), "{refused}");
}

#[test]
fn a_pool_names_other_pools_that_take_its_requests() {
    let fallback = |annotation: &str| {
        let pool = POOL.replace("{name: p}", &format!("{{name: p, annotations: {{{annotation}}}}}"));
        let text = format!("{pool}\n---\n{}", POOL.replace("{name: p}", "{name: spare}"));
        Plan::read(&[file("m.yaml", &text)], &options())
    };
    let named = |annotation: &str| fallback(annotation).unwrap().pools[0].policy.fallback.clone();
    assert!(named("other: spare").is_empty());
    assert_eq!(named("endpoint-picker/fallback: spare"), ["spare"]);
    let plan = fallback("endpoint-picker/fallback: 'gone, spare'").unwrap();
    assert_eq!(plan.pools[0].policy.fallback, ["spare"]);
    assert_eq!(
        plan.warnings[0].to_string(),
        "m.yaml: document 1: metadata.annotations: \"endpoint-picker/fallback\": unknown pool \"gone\"; it is left out"
    );
    for list in ["''", "p", "'spare,spare'", "team/spare", "'a,b,c,d,e,f,g,h,i'"] {
        let refusal = fallback(&format!("endpoint-picker/fallback: {list}")).unwrap_err().to_string();
        assert!(
            refusal.contains("is refused; allowed are the names of up to 8 other pools"),
            "{list}: {refusal}"
        );
    }
}
