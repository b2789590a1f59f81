//! The shipped configurations, as dumps.

use std::collections::BTreeMap;

use endpoint_picker_harness::Filter;
use endpoint_picker_harness::config::{Config, examples};
use serde_json::{Value, json};

use super::fixture::Recorded;

/// A dump of an Envoy that was started with this document, in which every cluster has one host, the pools' only endpoint.
fn running(document: &Value) -> Recorded {
    const HOST: &str = "10.0.0.1:8000";
    let resources = &document["static_resources"];
    let entries = |list: &str, field: &str| -> Vec<Value> {
        resources[list].as_array().unwrap().iter().map(|resource| json!({field: resource})).collect()
    };
    let address = json!({"socket_address": {"address": "10.0.0.1", "port_value": 8000}});
    let clusters = resources["clusters"].as_array().unwrap().iter();
    let clusters: Vec<_> = clusters
        .map(|cluster| json!({"name": cluster["name"], "host_statuses": [{"address": address}]}))
        .collect();
    let pools = ["default", "chat", "embeddings"];
    let statistics = pools.iter().flat_map(|pool| {
        let wasm = format!("wasmcustom.endpoint_picker.{pool}.");
        [format!("{wasm}snapshots: 1"), format!("{wasm}build_info|{}|wasm: 1", env!("CARGO_PKG_VERSION"))]
    });
    let ready = vec![(HOST.to_owned(), "ready")];
    Recorded {
        dump: json!({"configs": [
            {"static_listeners": entries("listeners", "listener")},
            {"static_clusters": entries("clusters", "cluster")},
        ]}),
        clusters: json!({"cluster_statuses": clusters}),
        statistics: statistics.collect(),
        pools: BTreeMap::from_iter(pools.map(|pool| (pool.to_owned(), ready.clone()))),
        reason: None,
        agent_error: None,
        grpc_reads_metrics: None,
        health: None,
        refusal: None,
        extension: None,
    }
}

#[test]
fn no_shipped_configuration_has_a_mistake() {
    let examples = examples().unwrap().into_iter().map(|name| format!("examples/{name}"));
    for path in core::iter::once("envoy.yaml".to_owned()).chain(examples) {
        for filter in [Filter::Wasm, Filter::Native] {
            let mut config = Config::converted(&path, filter).unwrap();
            let report = running(config.document()).diagnose();
            assert!(report.is_ok(), "{path}, {filter}: {report}");
            let has_listener = report.passed().contains(&"a listener has the endpoint picker");
            assert!(has_listener && report.passed().len() >= 12, "{path}, {filter}: {report}");
        }
    }
}
