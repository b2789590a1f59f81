//! The shipped configurations, as dumps.

use std::collections::BTreeMap;

use endpoint_picker_harness::Filter;
use endpoint_picker_harness::config::{Config, examples};
use endpoint_picker_harness::shipped::snippets::{self, Snippet};
use serde_json::{Value, json};

use super::fixture::Recorded;

/// A dump of an Envoy that was started with this document, in which every cluster has two hosts, of which one
/// is the only endpoint of the agent's pools.
fn running(document: &Value) -> Recorded {
    const HOST: &str = "10.0.0.1:8000";
    let resources = &document["static_resources"];
    // The native form has none.
    let stats_config = document.get("stats_config").cloned().unwrap_or_else(|| json!({}));
    let entries = |list: &str, field: &str| -> Vec<Value> {
        resources[list].as_array().unwrap().iter().map(|resource| json!({field: resource})).collect()
    };
    let hosts = ["10.0.0.1", "10.0.0.2"]
        .map(|address| json!({"address": {"socket_address": {"address": address, "port_value": 8000}}}));
    let clusters = resources["clusters"].as_array().unwrap().iter();
    let clusters: Vec<_> =
        clusters.map(|cluster| json!({"name": cluster["name"], "host_statuses": hosts})).collect();
    let pools = ["default", "chat", "embeddings"];
    let statistics = pools.iter().flat_map(|pool| {
        let wasm = format!("wasmcustom.endpoint_picker.{pool}.");
        [format!("{wasm}snapshots: 1"), format!("{wasm}build_info|{}|wasm: 1", env!("CARGO_PKG_VERSION"))]
    });
    let ready = vec![(HOST.to_owned(), "ready")];
    Recorded {
        dump: json!({"configs": [
            {"bootstrap": {"stats_config": stats_config}},
            {"static_listeners": entries("listeners", "listener")},
            {"static_clusters": entries("clusters", "cluster")},
        ]}),
        clusters: json!({"cluster_statuses": clusters}),
        statistics: statistics.collect(),
        pools: BTreeMap::from_iter(pools.map(|pool| (pool.to_owned(), ready.clone()))),
        reason: None,
        age_ms: None,
        agent_error: None,
        grpc_reads_metrics: None,
        health: None,
        unseen_queue: None,
        in_flight: None,
        refusal: None,
        extension: None,
    }
}

/// The whole configurations with the wasm filter, and with it converted to this form: the shipped ones, and
/// those in documents.
fn configurations(filter: Filter) -> Vec<(String, Config)> {
    let examples = examples().unwrap().into_iter().map(|name| format!("examples/{name}"));
    let files = core::iter::once("envoy.yaml".to_owned()).chain(examples);
    let files = files.map(|path| (path.clone(), Config::converted(&path, filter).unwrap()));
    let whole = |snippet: &Snippet| snippet.text.contains("\nstatic_resources:\n");
    let documents = snippets::of_documents().unwrap().into_iter().filter(whole);
    let documents = documents.map(|snippet| {
        let config = Config::installed(&snippet.text, filter).unwrap();
        (snippet.at, config)
    });
    files.chain(documents).collect()
}

#[test]
fn no_shipped_configuration_has_a_mistake() {
    for filter in [Filter::Wasm, Filter::Native] {
        let configurations = configurations(filter);
        assert!(configurations.iter().any(|(at, _)| at.starts_with("docs/install/envoy.md:")));
        for (at, mut config) in configurations {
            let report = running(config.document()).diagnose();
            assert!(report.is_ok(), "{at}, {filter}: {report}");
            let has_listener = report.passed().contains(&"a listener has the endpoint picker");
            assert!(has_listener && report.passed().len() >= 16, "{at}, {filter}: {report}");
        }
    }
}

/// Configuration with the documented cluster of the module.
#[test]
fn the_documented_cluster_of_the_module_has_no_mistake() {
    let of_page = |snippet: &Snippet| snippet.at.starts_with("docs/reference/filter.md:");
    let mut snippets = snippets::of_documents().unwrap().into_iter().filter(of_page);
    let snippet = snippets.find(|snippet| snippet.text.contains("cluster_type:")).unwrap();
    let clusters: Value = serde_saphyr::from_str(&snippet.text).unwrap();
    let mut config = Config::converted("envoy.yaml", Filter::Native).unwrap();
    config.set_picker_field("steering", "cluster".into()).unwrap();
    config.document()["static_resources"]["clusters"] = clusters;
    let report = running(config.document()).diagnose();
    assert!(report.is_ok(), "{report}");
}
