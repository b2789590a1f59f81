//! GPU utilization from DCGM exporters, over real sockets.

use std::net::SocketAddr;

use endpoint_picker::pool::Endpoint;
use endpoint_picker::pool::reading::GPU_UTILIZATION;
use metrics_agent::agent::Settings;
use metrics_agent_catalogue::{Options, watch};
use metrics_agent_sources::endpoints::{Declared, Sources};
use tempfile::TempDir;

use crate::harness::{Agent, eventually, options_for, settings};
use crate::scripted::{Behaviour, ScriptedServer, load};

fn exporter_text(pods: &[(&str, u64)]) -> Behaviour {
    let series = pods
        .iter()
        .map(|(pod, percent)| format!("DCGM_FI_DEV_GPU_UTIL{{gpu=\"0\",pod=\"{pod}\"}} {percent}\n"));
    Behaviour::Text("# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n".to_owned() + &series.collect::<String>())
}

/// Settings with two endpoints, `default/a` and `default/b`, and an exporter for both.
fn with_exporter(endpoints: [SocketAddr; 2], exporter: SocketAddr) -> (Settings, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("manifests.yaml");
    let port = exporter.port();
    let manifest = format!(
        "apiVersion: llm-d.ai/v1\nkind: EndpointPickerConfig\nplugins:\n- {{type: dcgm-data-source, parameters: {{port: {port}}}}}\n\
         - {{type: dcgm-extractor}}\n- {{type: queue-scorer}}\n\
         dataLayer: {{sources: [{{pluginRef: dcgm-data-source, extractors: [{{pluginRef: dcgm-extractor}}]}}]}}\n"
    );
    std::fs::write(&path, manifest).unwrap();
    let options = Options { allow_experimental_plugins: true, ..options_for("default") };
    let named = ["default/a", "default/b"].into_iter().zip(endpoints);
    let endpoints = named.map(|(name, address)| Endpoint::new(name.to_owned(), address, vec![])).collect();
    let sources = Sources { fixed: Declared { endpoints, ..Declared::default() }, ..Sources::default() };
    let manifests = Some(watch::ManifestSettings { path, options });
    (Settings { manifests, sources, ..settings() }, directory)
}

/// Waits until the endpoints have these values.
async fn utilization(agent: &Agent, what: &str, expected: [Option<f64>; 2]) {
    let has_values = |snapshot: &endpoint_picker_wire::v1::Snapshot| {
        let values = snapshot.readings.iter().map(|reading| {
            assert_eq!(reading.waiting.unwrap_or(1), 1, "the server's own values stay");
            reading.attributes.iter().find(|it| it.name == GPU_UTILIZATION).map(|it| it.value)
        });
        values.eq(expected)
    };
    agent.snapshot_where(what, has_values).await;
}

#[tokio::test]
async fn each_endpoint_has_the_utilization_of_its_pod_from_one_scrape() {
    let servers = [
        ScriptedServer::start(Behaviour::Text(load(1, 1))).await,
        ScriptedServer::start(Behaviour::Text(load(1, 1))).await,
    ];
    let exporter = ScriptedServer::start(exporter_text(&[("a", 35), ("b", 90), ("a", 80)])).await;
    let addresses = [servers[0].address(), servers[1].address()];
    let (settings, _directory) = with_exporter(addresses, exporter.address());
    let agent = Agent::start(settings).await;
    utilization(&agent, "both values", [Some(0.8), Some(0.9)]).await;
    assert_eq!(exporter.connections(), 1, "endpoints of one exporter share its scrapes");

    exporter.set_behaviour(exporter_text(&[("b", 10)]));
    utilization(
        &agent,
        "a new value, and the last one of a pod that is not in the text",
        [Some(0.8), Some(0.1)],
    )
    .await;
    let no_value = "metrics_agent_source_errors_total{source=\"dcgm\",reason=\"no_metrics\"}";
    eventually(no_value, async || (agent.metric(no_value).await >= 1.0).then_some(())).await;
}

#[tokio::test]
async fn an_exporter_that_fails_or_is_hostile_costs_only_its_own_values() {
    let servers = [
        ScriptedServer::start(Behaviour::Text(load(1, 1))).await,
        ScriptedServer::start(Behaviour::Text(load(1, 1))).await,
    ];
    let exporter = ScriptedServer::start(exporter_text(&[("a", 35), ("b", 90)])).await;
    let addresses = [servers[0].address(), servers[1].address()];
    let (settings, _directory) = with_exporter(addresses, exporter.address());
    let agent = Agent::start(settings).await;
    utilization(&agent, "both values", [Some(0.35), Some(0.9)]).await;
    for (behaviour, reason) in [
        (Behaviour::Status(500), "status"),
        (Behaviour::Raw(b"\x16\x03\x01 hello\r\n\r\n"), "http"),
        (Behaviour::Text("x".repeat(5 << 20)), "too_large"),
        (Behaviour::Text("a 1\n".repeat(50_001)), "too_many_series"),
    ] {
        exporter.set_behaviour(behaviour);
        let metric = format!("metrics_agent_source_errors_total{{source=\"dcgm\",reason=\"{reason}\"}}");
        eventually(&metric, async || (agent.metric(&metric).await >= 1.0).then_some(())).await;
    }
    let served = servers[0].requests();
    eventually("more scrapes of the servers", async || (servers[0].requests() > served + 3).then_some(()))
        .await;
    utilization(&agent, "the last values", [Some(0.35), Some(0.9)]).await;
    exporter.set_behaviour(exporter_text(&[("a", 1), ("b", 2)]));
    utilization(&agent, "new values", [Some(0.01), Some(0.02)]).await;
}
