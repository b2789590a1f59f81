//! Several pools in one agent, over real sockets.

use std::collections::BTreeSet;
use std::path::Path;

use endpoint_picker_wire::{decode, v1};
use metrics_agent::agent::Settings;
use metrics_agent::publish::eds::Target;
use metrics_agent_catalogue::watch;
use metrics_agent_sources::endpoints::Sources;
use tempfile::TempDir;

use crate::harness::{Agent, eventually, settings};
use crate::reading::options;
use crate::scripted::{Behaviour, ScriptedServer, load};

pub(crate) fn pool(name: &str, app: &str) -> String {
    format!(
        "
apiVersion: inference.networking.k8s.io/v1
kind: InferencePool
metadata: {{name: {name}}}
spec: {{selector: {{matchLabels: {{{app}: x}}}}, targetPorts: [{{number: 8000}}]}}
---"
    )
}

/// An endpoints file with these servers and their labels, the content of a YAML map.
pub(crate) fn endpoints(servers: &[(&ScriptedServer, &str)]) -> String {
    let entries = servers.iter().map(|(server, labels)| {
        let (ip, port) = (server.address().ip(), server.address().port());
        format!("- {{name: s{port}, address: \"{ip}\", port: {port}, labels: {{{labels}}}}}\n")
    });
    format!("endpoints:\n{}", entries.collect::<String>())
}

/// An agent over a directory with `manifests/m.yaml` and `endpoints.yaml`.
pub(crate) struct Setup {
    pub(crate) directory: TempDir,
    pub(crate) agent: Agent,
}

impl Setup {
    pub(crate) async fn start(manifests: &str, endpoints: &str, eds: Option<&str>) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("manifests");
        std::fs::create_dir(&path).unwrap();
        std::fs::write(path.join("m.yaml"), manifests).unwrap();
        std::fs::write(directory.path().join("endpoints.yaml"), endpoints).unwrap();
        let eds =
            eds.map(|file| Target { path: directory.path().join(file), cluster: "of-{pool}".to_owned() });
        let agent = Agent::start(Settings {
            manifests: Some(watch::ManifestSettings { path, options: options() }),
            sources: Sources { file: Some(directory.path().join("endpoints.yaml")), ..Sources::default() },
            eds,
            ..settings()
        })
        .await;
        Self { directory, agent }
    }

    /// Replaces a file of the directory atomically.
    pub(crate) fn replace(&self, file: &str, text: &str) {
        let new = self.directory.path().join("new");
        std::fs::write(&new, text).unwrap();
        std::fs::rename(new, self.directory.path().join(file)).unwrap();
    }

    pub(crate) async fn snapshot(&self, pool: &str) -> Result<v1::Snapshot, u16> {
        let answer = self.agent.get(&format!("/v1/pools/{pool}/snapshot")).await;
        if answer.status == 200 { Ok(decode(&answer.body).unwrap()) } else { Err(answer.status) }
    }

    pub(crate) async fn snapshot_where(
        &self,
        pool: &str,
        passes: impl Fn(&v1::Snapshot) -> bool,
    ) -> v1::Snapshot {
        eventually(pool, async || self.snapshot(pool).await.ok().filter(&passes)).await
    }
}

pub(crate) async fn server(waiting: u64) -> ScriptedServer {
    ScriptedServer::start(Behaviour::Text(load(waiting, 0))).await
}

pub(crate) fn waiting(snapshot: &v1::Snapshot) -> Vec<Option<u64>> {
    snapshot.readings.iter().map(|reading| reading.waiting).collect()
}

#[tokio::test]
async fn each_pool_has_its_own_endpoints_and_shared_ones_are_scraped_once() {
    let (one, both, two) = (server(1).await, server(2).await, server(3).await);
    let found = endpoints(&[(&one, "a: x"), (&both, "a: x, b: x"), (&two, "b: x")]);
    let setup = Setup::start(&(pool("p", "a") + &pool("q", "b")), &found, None).await;
    setup.snapshot_where("p", |s| waiting(s) == [Some(1), Some(2)]).await;
    setup.snapshot_where("q", |s| waiting(s) == [Some(2), Some(3)]).await;
    both.set_behaviour(Behaviour::Text(load(9, 0)));
    setup.snapshot_where("p", |s| waiting(s) == [Some(1), Some(9)]).await;
    setup.snapshot_where("q", |s| waiting(s) == [Some(9), Some(3)]).await;
    assert_eq!((one.connections(), both.connections(), two.connections()), (1, 1, 1));
    let unknown = setup.agent.get("/v1/pools/default/snapshot").await;
    assert_eq!(
        (unknown.status, unknown.text().as_str()),
        (404, r#"{"error":"no such pool; allowed: p, q"}"#)
    );
}

#[tokio::test]
async fn an_endpoint_without_a_port_has_those_of_its_pool() {
    let (one, two) = (server(1).await, server(2).await);
    let ports = [&one, &two].map(|server| server.address().port());
    let pool = |name: &str, ports: &[u16]| {
        let ports: Vec<_> = ports.iter().map(|port| format!("{{number: {port}}}")).collect();
        pool(name, "a").replace("{number: 8000}", &ports.join(", "))
    };
    let found = "endpoints: [{name: s, address: 127.0.0.1, labels: {a: x}}]";
    let setup = Setup::start(&(pool("p", &ports[..1]) + &pool("q", &ports)), found, None).await;
    let names = |snapshot: &v1::Snapshot| -> Vec<String> {
        let endpoints = snapshot.topology.iter().flat_map(|topology| &topology.endpoints);
        endpoints.map(|endpoint| format!("{} {}", endpoint.name, endpoint.address)).collect()
    };
    let snapshot = setup.snapshot_where("p", |s| waiting(s) == [Some(1)]).await;
    assert_eq!(names(&snapshot), [format!("default/s {}", one.address())]);
    let snapshot = setup.snapshot_where("q", |s| waiting(s) == [Some(1), Some(2)]).await;
    let ranks =
        [format!("default/s-rank-0 {}", one.address()), format!("default/s-rank-1 {}", two.address())];
    assert_eq!(names(&snapshot), ranks);
}

#[tokio::test]
async fn pools_that_share_a_server_may_read_it_differently() {
    let text = load(1, 0) + "# TYPE own gauge\nown 42\n";
    let server = ScriptedServer::start(Behaviour::Text(text)).await;
    let config = "
apiVersion: llm-d.ai/v1alpha1
kind: EndpointPickerConfig
metadata: {name: q}
plugins:
- {type: queue-scorer}
- {type: core-metrics-extractor, parameters: {engineConfigs: [{name: vllm, queuedRequestsSpec: own}]}}";
    let manifests = pool("p", "a") + &pool("q", "a") + config;
    let setup = Setup::start(&manifests, &endpoints(&[(&server, "a: x")]), None).await;
    setup.snapshot_where("p", |s| waiting(s) == [Some(1)]).await;
    setup.snapshot_where("q", |s| waiting(s) == [Some(42)]).await;
}

#[tokio::test]
async fn a_change_of_one_pool_leaves_the_topology_of_another_alone() {
    let (one, two) = (server(1).await, server(2).await);
    let found = |labels| endpoints(&[(&one, "a: x"), (&two, labels)]);
    let setup = Setup::start(&(pool("p", "a") + &pool("q", "b")), &found("c: x"), None).await;
    let before = setup.snapshot_where("p", |s| waiting(s) == [Some(1)]).await;
    let without = setup.snapshot_where("q", |s| s.readings.is_empty()).await;
    setup.replace("endpoints.yaml", &found("b: x"));
    let with = setup.snapshot_where("q", |s| waiting(s) == [Some(2)]).await;
    assert_ne!(with.topology_version, without.topology_version);
    assert_eq!(setup.snapshot("p").await.unwrap().topology_version, before.topology_version);
}

fn hosts(path: &Path) -> Option<(String, BTreeSet<u64>)> {
    let file: serde_json::Value = serde_json::from_slice(&std::fs::read(path).ok()?).unwrap();
    let resource = &file["resources"][0];
    let hosts = resource["endpoints"][0]["lb_endpoints"].as_array().unwrap();
    let port =
        |host: &serde_json::Value| host["endpoint"]["address"]["socket_address"]["port_value"].as_u64();
    Some((resource["cluster_name"].as_str().unwrap().to_owned(), hosts.iter().filter_map(port).collect()))
}

#[tokio::test]
async fn each_pool_has_its_own_file_for_envoy() {
    let (one, two) = (server(1).await, server(2).await);
    let found = endpoints(&[(&one, "a: x"), (&two, "b: x")]);
    let setup = Setup::start(&(pool("p", "a") + &pool("q", "b")), &found, Some("{pool}.json")).await;
    for (name, server) in [("p", &one), ("q", &two)] {
        let path = setup.directory.path().join(format!("{name}.json"));
        let expected = (format!("of-{name}"), BTreeSet::from([u64::from(server.address().port())]));
        eventually("the file", async || hosts(&path).filter(|seen| *seen == expected)).await;
    }
}

#[tokio::test]
async fn several_pools_require_a_different_envoy_file_each() {
    let one = server(1).await;
    let found = endpoints(&[(&one, "a: x")]);
    let setup = Setup::start(&(pool("p", "a") + &pool("q", "b")), &found, Some("eds.json")).await;
    let reason = eventually("the reason", async || {
        Some(setup.agent.get("/readyz").await.text()).filter(|text| text.contains("has 2 pools"))
    });
    assert!(reason.await.contains("unless --eds-file contains {pool}"));
    assert_eq!(setup.snapshot("p").await, Err(503));
    setup.replace("manifests/m.yaml", &pool("p", "a"));
    setup.snapshot_where("p", |s| waiting(s) == [Some(1)]).await;
}
