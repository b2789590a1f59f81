//! `metrics-agent check`, as a user runs it.

use std::process::{Command, Output};

use crate::reading::POOL;

fn check(text: &str, flags: &[&str]) -> (Output, String) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("m.yaml");
    std::fs::write(&path, text).unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_metrics-agent"))
        .arg("check")
        .arg(directory.path())
        .args(flags)
        .output()
        .unwrap();
    (output, path.display().to_string())
}

#[test]
fn valid_manifests_are_summarized() {
    let text = format!("{POOL}\napiVersion: v1\nkind: Service\n");
    let (output, path) = check(&text, &[]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(
        String::from_utf8(output.stdout).unwrap(),
        format!(
            "valid: 2 documents in 1 file\n\
             pool \"p\": namespace default, labels app=a, target ports 8000\n  \
             the rules expected-latency; the filter's failure mode; 0 objectives, 0 rewrite rules, 0 models\n  \
             endpoints without an engine label are recognised by their metrics: vllm, sglang, trtllm-serve, triton-tensorrt-llm, triton\n\
             warning: {path}: document 2: kind: Service of v1 is not read by the agent; the document is skipped\n"
        )
    );
}

#[test]
fn the_engine_of_endpoints_without_a_label_is_that_of_the_epp_under_its_rules() {
    let (output, _) = check(POOL, &["--epp-rules", "v0.10"]);
    let summary = String::from_utf8(output.stdout).unwrap();
    let line = "\n  KV usage is read from vllm:kv_cache_usage_perc, or vllm:gpu_cache_usage_perc where a server lacks it\n";
    assert!(summary.contains("; the rules of the EPP's v0.10\n"), "{summary}");
    assert!(summary.contains(line), "{summary}");
}

#[test]
fn the_filter_that_the_rules_of_v0_11_add_is_named() {
    let line =
        "\n  the saturation detector \"utilization-detector\" filters last in the profiles \"default\"\n";
    for (rules, expected) in [("own", false), ("v0.10", false), ("v0.11", true)] {
        let (output, _) = check(POOL, &["--epp-rules", rules]);
        let summary = String::from_utf8(output.stdout).unwrap();
        assert_eq!(summary.contains(line), expected, "{rules}: {summary}");
        assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    }
    let (output, _) = check(POOL, &["--epp-rules", "main"]);
    assert!(String::from_utf8(output.stdout).unwrap().contains(line));
    let warning = "metrics-agent: --epp-rules main is the former name of v0.11; use v0.11\n";
    assert_eq!(String::from_utf8(output.stderr).unwrap(), warning);
}

#[test]
fn shadows_are_in_the_summary_too() {
    let shadow = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n\
                  metadata: {name: p, annotations: {endpoint-picker/shadow: \"true\"}}\n\
                  plugins: [{type: queue-scorer}, {type: max-score-picker}]\n";
    let (output, _) = check(&format!("{POOL}\n{shadow}"), &[]);
    let summary = String::from_utf8(output.stdout).unwrap();
    assert!(summary.contains("; a shadow of 2 plugins, 1 profile\n"), "{summary}");
}

#[test]
fn a_picker_list_longer_than_the_shipped_retries_is_a_warning() {
    let summary = |endpoints: u32| {
        let config = format!(
            "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nmetadata: {{name: p}}\n\
             plugins: [{{type: queue-scorer}}, {{type: max-score-picker, parameters: {{maxNumOfEndpoints: {endpoints}}}}}]\n"
        );
        let (output, _) = check(&format!("{POOL}\n---\n{config}"), &[]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let warning = "\n  warning: plugin \"max-score-picker\": maxNumOfEndpoints is 6, and the shipped envoy.yaml sends a request to at most 4 \
                   endpoints; set num_retries of the route's retry_policy to 5\n";
    assert!(summary(6).contains(warning), "{}", summary(6));
    assert!(!summary(4).contains("warning"), "{}", summary(4));
}

#[test]
fn all_problems_are_reported_and_the_exit_code_is_1() {
    let text = format!("{}{POOL}", POOL.replace("8000", "0").replace("app: a", "app: 1"));
    let (output, path) = check(&text, &[]);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0));
    assert_eq!(
        String::from_utf8(output.stderr).unwrap(),
        format!(
            "{path}: document 1: spec.selector.matchLabels.app: 1; allowed is a string\n\
             {path}: document 1: spec.targetPorts[0].number: 0 is not a port; allowed is 1 to 65535\n"
        )
    );
}

#[test]
fn check_accepts_experimental_plugins_as_the_agent_does() {
    let text = "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: [{type: session-affinity-scorer}]";
    assert_eq!(check(text, &[]).0.status.code(), Some(1));
    assert_eq!(check(text, &["--allow-experimental-plugins"]).0.status.code(), Some(0));
}

/// A pool of servers of gRPC.
fn grpc(app_protocol: &str, plugins: &str, more: &str) -> String {
    let pool = POOL.replace("targetPorts", &format!("{app_protocol}targetPorts"));
    let config = format!(
        "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nmetadata: {{name: p}}\n\
         plugins: [{{type: vllmgrpc-parser}}, {plugins}, {{type: max-score-picker}}]\n\
         requestHandler: {{parsers: [{{pluginRef: vllmgrpc-parser}}]}}\n{more}"
    );
    let (output, _) = check(&format!("{pool}\n---\n{config}"), &[]);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn a_pool_of_grpc_has_the_protocol_and_the_port_of_its_servers() {
    let h2c = "appProtocol: kubernetes.io/h2c, ";
    assert!(!grpc(h2c, "{type: active-request-scorer}", "").contains("warning"));
    let protocol = "\n  warning: vllmgrpc-parser reads gRPC, and appProtocol is http: gateways speak HTTP/1.1 to the servers";
    for app_protocol in ["", "appProtocol: http, "] {
        let summary = grpc(app_protocol, "{type: active-request-scorer}", "");
        assert!(summary.contains(protocol), "{summary}");
    }
    let metrics = "\n  warning: the metrics for queue-scorer are scraped at the endpoints' own port";
    let summary = grpc(h2c, "{type: queue-scorer}", "");
    assert!(summary.contains(metrics), "{summary}");
    let source = "dataLayer: {sources: [{pluginRef: metrics-data-source, extractors: [{pluginRef: core-metrics-extractor}]}]}\n";
    let plugins = "{type: queue-scorer}, {type: core-metrics-extractor}, {type: metrics-data-source, parameters: {port: 8001}}";
    let summary = grpc(h2c, plugins, source);
    assert!(!summary.contains("warning"), "{summary}");
}

#[test]
fn a_pool_of_http_2_without_a_parser_of_grpc_is_a_warning() {
    let pool = POOL.replace("targetPorts", "appProtocol: kubernetes.io/h2c, targetPorts");
    let (output, _) = check(&pool, &[]);
    let summary = String::from_utf8(output.stdout).unwrap();
    assert!(
        summary.contains("\n  warning: appProtocol is kubernetes.io/h2c, and no parser reads gRPC"),
        "{summary}"
    );
}
