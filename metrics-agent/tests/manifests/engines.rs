//! Scraping as configured: the metrics of engines, and the address of their page.

use std::time::Duration;

use endpoint_picker::epp_rules::EppRules;
use endpoint_picker_wire::v1;
use metrics_agent::agent::Settings;
use metrics_agent_catalogue::dialect::MultiEngine;
use metrics_agent_catalogue::scraping::{Scheme, ScrapePlan, ScrapeSettings};
use metrics_agent_catalogue::{Options, Plan, watch};

use crate::harness::{Agent, eventually, scraping, settings};
use crate::reading::{file, options, plan, refusal};
use crate::scripted::{Behaviour, ScriptedServer};

fn config(plugins: &str, data_layer: &str) -> String {
    format!(
        "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins:\n- {{type: queue-scorer}}\n{plugins}\n{data_layer}\n"
    )
}

fn how(text: &str) -> ScrapePlan {
    plan(text).pools[0].scraping(&settings().scrape)
}

/// Runs an agent with this configuration over one server with this text, until its reading passes.
async fn reading_where(config: &str, text: &str, passes: impl Fn(&v1::Reading) -> bool) -> v1::Reading {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.yaml");
    std::fs::write(&path, config).unwrap();
    let server = ScriptedServer::start(Behaviour::Text(text.to_owned())).await;
    let manifests = Some(watch::ManifestSettings { path, options: options() });
    let agent = Agent::start(Settings { manifests, ..scraping(&[server.address()]) }).await;
    agent.reading_where("the reading", passes).await
}

const LLAMA_CPP: &str = "
- type: core-metrics-extractor
  parameters:
    defaultEngine: llama.cpp
    engineConfigs:
    - name: llama.cpp
      queuedRequestsSpec: llamacpp:requests_deferred
      runningRequestsSpec: llamacpp:requests_processing
      customMetrics:
      - {attributeKey: tokens-per-second, metricSpec: llamacpp:predicted_tokens_seconds}
      - {attributeKey: unknown, metricSpec: llamacpp:nothing_of_this_name}
      - {attributeKey: busy-slots, metricSpec: llamacpp:n_busy_slots_per_decode}";

#[tokio::test]
async fn llama_cpp_is_read_as_configured() {
    let capture = include_str!("../captures/llamacpp-busy.prom");
    let reading = reading_where(&config(LLAMA_CPP, ""), capture, |reading| reading.age_ms.is_some()).await;
    assert_eq!((reading.waiting, reading.running), (Some(4), Some(2)));
    let attribute = |name: &str, value| v1::Attribute { name: name.to_owned(), value };
    assert_eq!(
        reading.attributes,
        [attribute("tokens-per-second", 1131.9), attribute("busy-slots", 1.98879)]
    );
}

#[tokio::test]
async fn an_operators_engine_is_summed_over_its_label() {
    let plugin = "
- type: core-metrics-extractor
  parameters:
    engineConfigs:
    - {name: lmdeploy, queuedRequestsSpec: 'lmdeploy:num_requests_waiting', sumOverLabelName: engine}";
    let text = "# TYPE lmdeploy:num_requests_waiting gauge\n\
                lmdeploy:num_requests_waiting{engine=\"0\"} 3\nlmdeploy:num_requests_waiting{engine=\"1\"} 9\n";
    let reading = reading_where(&config(plugin, ""), text, |reading| reading.age_ms.is_some()).await;
    assert_eq!(reading.waiting, Some(12));
}

#[test]
fn a_pool_under_the_epps_rules_is_read_as_by_the_epp() {
    let by = |rules, engines| {
        let options = Options { epp_rules: rules, ..options() };
        let plan = Plan::read(&[file("m.yaml", &config("", ""))], &options).unwrap();
        let how = plan.pools[0].scraping(&ScrapeSettings { engines, ..settings().scrape });
        let rules = how.settings.text_rules();
        let has_running = how.dialects.of_engine("triton").running.is_some();
        (rules.as_epp, rules.engines, how.dialects.unnamed().len(), has_running)
    };
    assert_eq!(by(EppRules::Own, None), (false, MultiEngine::Sum, 5, false));
    assert_eq!(by(EppRules::Own, Some(MultiEngine::First)), (false, MultiEngine::First, 5, false));
    for rules in [EppRules::V010, EppRules::V011] {
        assert_eq!(by(rules, None), (true, MultiEngine::First, 1, true));
        assert_eq!(by(rules, Some(MultiEngine::Sum)), (true, MultiEngine::Sum, 1, true));
    }
}

#[tokio::test]
async fn a_source_sets_the_port_of_the_metrics() {
    let server = ScriptedServer::start(Behaviour::Text(crate::scripted::load(7, 1))).await;
    let source =
        format!("- {{type: metrics-data-source, parameters: {{port: {}}}}}", server.address().port());
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.yaml");
    std::fs::write(&path, config(&source, "")).unwrap();
    let manifests = Some(watch::ManifestSettings { path, options: options() });
    let elsewhere = "127.0.0.1:1".parse().unwrap();
    let agent = Agent::start(Settings { manifests, ..scraping(&[elsewhere]) }).await;
    agent.reading_where("the value of the other port", |reading| reading.waiting == Some(7)).await;
}

#[test]
fn settings_that_a_source_leaves_out_are_those_of_the_flags() {
    let flags = settings().scrape;
    let default = how(&config("", ""));
    assert_eq!(
        (&default.settings.path, default.settings.interval, default.port),
        (&flags.path, flags.interval, None)
    );
    let source = "- {type: metrics-data-source, parameters: {path: /m, port: 9400, interval: 200ms}}";
    let how = how(&config(source, ""));
    assert_eq!(how.settings.path, "/m");
    assert_eq!((how.settings.interval, how.port.unwrap().get()), (Duration::from_millis(200), 9400));
    assert_eq!(how.settings.timeout, flags.timeout);
}

#[test]
fn the_referenced_source_and_extractor_are_used() {
    let plugins = "
- {type: metrics-data-source, name: a, parameters: {path: /a}}
- {type: metrics-data-source, name: b, parameters: {path: /b}}
- {type: core-metrics-extractor, name: c, parameters: {engineConfigs: [{name: vllm, queuedRequestsSpec: q}]}}";
    let text = config(plugins, "dataLayer: {sources: [{pluginRef: b, extractors: [{pluginRef: c}]}]}");
    let how = how(&text);
    assert_eq!(how.settings.path, "/b");
    let vllm = how.dialects.of_engine("vllm");
    assert_eq!(vllm.waiting.as_ref().unwrap().name(), "q");
    assert_eq!(vllm.running, None, "an engine of a built-in name replaces that one entirely");
    assert_eq!(how.dialects.of_engine("sglang").waiting.as_ref().unwrap().name(), "sglang:num_queue_reqs");
}

#[test]
fn the_scheme_is_https_if_flags_or_manifest_ask_for_it() {
    let (http, https) = ("{scheme: http}", "{scheme: https}");
    for (manifest, flags, expected) in [
        (http, Scheme::Http, Scheme::Http),
        (https, Scheme::Http, Scheme::Https),
        (http, Scheme::Https, Scheme::Https),
    ] {
        let plugins = format!("- {{type: metrics-data-source, parameters: {manifest}}}");
        let flags = ScrapeSettings { scheme: flags, ..settings().scrape };
        let how = plan(&config(&plugins, "")).pools[0].scraping(&flags);
        assert_eq!(how.settings.scheme, expected, "{manifest} {flags:?}");
    }
}

#[tokio::test]
async fn https_is_refused_without_flags_that_trust_a_certificate() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("config.yaml");
    std::fs::write(&path, config("- {type: metrics-data-source, parameters: {scheme: https}}", "")).unwrap();
    let manifests = Some(watch::ManifestSettings { path, options: options() });
    let agent = Agent::start(Settings { manifests, ..scraping(&[([127, 0, 0, 1], 1).into()]) }).await;
    eventually("the refusal", async || {
        let text = agent.get("/readyz").await.text();
        (text.contains("has https") && text.contains("--scrape-ca")).then_some(())
    })
    .await;
}

/// Example of `endpoint-notification-source`.
#[test]
fn unsupported_settings_are_refused_with_their_path() {
    for (plugins, data_layer, expected) in [
        (
            "- {type: metrics-data-source, parameters: {caCertPath: /ca}}",
            "",
            "plugins[1].parameters.caCertPath: \"/ca\" is not supported; use the agent's flag --scrape-ca",
        ),
        (
            "- {type: metrics-data-source, parameters: {interval: 70ms}}",
            "",
            "plugins[1].parameters.interval: is 70ms; it must be a multiple of 50ms",
        ),
        (
            "- {type: core-metrics-extractor, parameters: {engineConfigs: [{name: a, kvUsageSpec: 'a{'}]}}",
            "",
            "plugins[1].parameters.engineConfigs[0].kvUsageSpec: \"a{\" is not a metric spec; allowed is name or \
             name{label=value,…}",
        ),
        (
            "- {type: core-metrics-extractor, parameters: {defaultEngine: x}}",
            "",
            "plugins[1].parameters.defaultEngine: unknown engine \"x\"; allowed are sglang, triton, \
             triton-tensorrt-llm, trtllm-serve, vllm",
        ),
        (
            "",
            "dataLayer: {sources: [{pluginRef: x}]}",
            "dataLayer.sources[0].pluginRef: no plugin is named \"x\"; declared are queue-scorer",
        ),
        (
            "",
            "dataLayer: {sources: [{pluginRef: queue-scorer}]}",
            "dataLayer.sources[0].pluginRef: \"queue-scorer\" is a queue-scorer; allowed: metrics-data-source, \
             dcgm-data-source, endpoint-notification-source, k8s-notification-source, models-data-source, \
             latency-observer-producer-hub",
        ),
        (
            "- {type: metrics-data-source}",
            "dataLayer: {sources: [{pluginRef: metrics-data-source}, {pluginRef: metrics-data-source}]}",
            "dataLayer.sources[1].pluginRef: \"metrics-data-source\" is a second metrics-data-source; allowed is one",
        ),
        (
            "",
            "dataLayer: {discovery: {pluginRef: queue-scorer}}",
            "dataLayer.discovery.pluginRef: \"queue-scorer\" is a queue-scorer; allowed: file-discovery",
        ),
        (
            "",
            "dataLayer: {discovery: {endpoints: {pluginRef: queue-scorer}}}",
            "dataLayer.discovery.endpoints.pluginRef: \"queue-scorer\" is a queue-scorer; allowed: file-discovery",
        ),
        (
            "",
            "dataLayer: {discovery: {}}",
            "dataLayer.discovery: names no plugin; allowed are pluginRef, endpoints and peers",
        ),
        (
            "- {type: metrics-data-source}\n- {type: core-metrics-extractor}\n- {type: core-metrics-extractor, name: b}",
            "dataLayer: {sources: [{pluginRef: metrics-data-source, extractors: [{pluginRef: core-metrics-extractor}, {pluginRef: b}]}]}",
            "dataLayer.sources[0].extractors[1].pluginRef: \"b\" is not allowed; a metrics-data-source has at most one extractor",
        ),
        (
            "- {type: endpoint-notification-source}",
            "dataLayer: {sources: [{pluginRef: endpoint-notification-source, extractors: [{pluginRef: x}]}]}",
            "dataLayer.sources[0].extractors[0].pluginRef: no plugin is named \"x\"; declared are queue-scorer, \
             endpoint-notification-source",
        ),
    ] {
        assert_eq!(refusal(&config(plugins, data_layer)), format!("document 1: {expected}"));
    }
}

#[test]
fn a_custom_metric_that_is_scored_must_be_collected() {
    let scorer = "
- type: endpoint-attribute-scorer
  parameters: {attributeKey: busy-slots, algorithm: {type: linear_lower_is_better}}";
    let read = |text: &str| {
        let options = Options { allow_experimental_plugins: true, ..options() };
        Plan::read(&[file("m.yaml", text)], &options).map_err(|problems| problems.to_string())
    };
    assert!(read(&config(&format!("{LLAMA_CPP}{scorer}"), "")).is_ok());
    assert_eq!(
        read(&config(scorer, "")).unwrap_err(),
        "m.yaml: document 1: plugins[1].parameters.attributeKey: \"busy-slots\" is not an attribute of \
         core-metrics-extractor; allowed are WaitingQueueSize, RunningRequestsSize, KVCacheUsagePercent and its \
         customMetrics (none are declared)"
    );
}
