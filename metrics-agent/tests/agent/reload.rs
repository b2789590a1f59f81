//! Endpoints from a file that changes.

use std::path::{Path, PathBuf};
use std::time::Instant;

use endpoint_picker_wire::v1::Snapshot;
use metrics_agent::agent::Settings;
use metrics_agent::publish::eds::Target;
use metrics_agent_sources::endpoints::Sources;
use serde_json::json;
use tempfile::TempDir;

use crate::harness::{Agent, eventually, scraping, settings};
use crate::scripted::{Behaviour, ScriptedServer, load};

fn file(servers: &[&ScriptedServer]) -> String {
    let entries = servers.iter().map(|server| {
        let (ip, port) = (server.address().ip(), server.address().port());
        format!("- {{name: s{port}, address: \"{ip}\", port: {port}}}\n")
    });
    format!("endpoints:\n{}", if servers.is_empty() { "  []\n".to_owned() } else { entries.collect() })
}

pub(crate) fn reading(path: PathBuf) -> Settings {
    Settings { sources: Sources { file: Some(path), ..Sources::default() }, ..settings() }
}

fn addresses(snapshot: &Snapshot) -> Vec<String> {
    snapshot.topology.as_ref().unwrap().endpoints.iter().map(|e| e.address.clone()).collect()
}

fn shows(snapshot: &Snapshot, servers: &[&ScriptedServer]) -> bool {
    addresses(snapshot) == servers.iter().map(|s| s.address().to_string()).collect::<Vec<_>>()
}

async fn server(waiting: u64) -> ScriptedServer {
    ScriptedServer::start(Behaviour::Text(load(waiting, 0))).await
}

struct Setup {
    directory: TempDir,
    path: PathBuf,
    one: ScriptedServer,
    two: ScriptedServer,
    agent: Agent,
}

/// An agent whose file has the endpoint `one`.
async fn setup() -> Setup {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("endpoints.yaml");
    let (one, two) = (server(1).await, server(2).await);
    std::fs::write(&path, file(&[&one])).unwrap();
    let agent = Agent::start(reading(path.clone())).await;
    agent.reading_where("the first endpoint's value", |r| r.waiting == Some(1)).await;
    Setup { directory, path, one, two, agent }
}

pub(crate) fn rename_into_place(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, path).unwrap();
}

#[tokio::test]
async fn an_added_endpoint_is_scraped_and_the_old_one_keeps_its_task() {
    let Setup { path, one, two, agent, directory: _directory } = setup().await;
    let changed = Instant::now();
    rename_into_place(&path, &file(&[&one, &two]));
    let both = |s: &Snapshot| s.readings.iter().map(|r| r.waiting).eq([Some(1), Some(2)]);
    agent.snapshot_where("both values", both).await;
    println!("the added endpoint's values were published {:?} after the change", changed.elapsed());
    assert_eq!(one.connections(), 1, "its connection is the old one");
}

#[tokio::test]
async fn a_removed_endpoint_is_no_longer_scraped() {
    let Setup { path, one, two, agent, directory: _directory } = setup().await;
    std::fs::write(&path, file(&[&two])).unwrap();
    agent.snapshot_where("only the other", |s| shows(s, &[&two])).await;
    agent.reading_where("its value", |r| r.waiting == Some(2)).await;
    let (requests, others) = (one.requests(), two.requests());
    eventually("more scrapes of the other", async || (two.requests() > others + 5).then_some(())).await;
    assert!(one.requests() <= requests + 1, "one may have been in flight");
}

#[tokio::test]
async fn an_invalid_file_changes_nothing_and_the_next_valid_one_is_used() {
    let Setup { path, one, two, agent, directory: _directory } = setup().await;
    let before = agent.snapshot("").await.unwrap();
    let bad = file(&[&one, &two]).replace(&format!("port: {}}}", two.address().port()), "port: 0}");
    for text in [&bad, "", "endpoints:\n- {name: a, addres: 10.0.0.1}", &(file(&[&one]) + &file(&[&one]))] {
        let refused = agent.metric("metrics_agent_config_reloads_total{result=\"refused\"}").await;
        rename_into_place(&path, text);
        eventually("the refusal", async || {
            let now = agent.metric("metrics_agent_config_reloads_total{result=\"refused\"}").await;
            (now > refused).then_some(())
        })
        .await;
        let after = agent.snapshot("").await.unwrap();
        assert_eq!(after.topology_version, before.topology_version, "{text}");
        assert_eq!(agent.get("/readyz").await.status, 200);
    }
    std::fs::remove_file(&path).unwrap();
    agent.reading_where("still scraped", |r| r.waiting == Some(1)).await;
    rename_into_place(&path, &file(&[&two]));
    agent.snapshot_where("the next valid set", |s| shows(s, &[&two])).await;
}

#[tokio::test]
async fn more_endpoints_than_allowed_are_refused_and_the_last_valid_set_stays() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("endpoints.yaml");
    let (one, two) = (server(1).await, server(2).await);
    std::fs::write(&path, file(&[&one, &two])).unwrap();
    let agent = Agent::start(Settings { max_endpoints: 1, ..reading(path.clone()) }).await;
    eventually("the reason", async || {
        let text = agent.get("/readyz").await.text();
        text.contains("2 endpoints; at most 1 are allowed (--max-endpoints)").then_some(())
    })
    .await;
    rename_into_place(&path, &file(&[&one]));
    agent.snapshot_where("one is allowed", |s| shows(s, &[&one])).await;
    rename_into_place(&path, &file(&[&one, &two]));
    let refused = "metrics_agent_config_reloads_total{result=\"refused\"}";
    eventually("the refusal", async || (agent.metric(refused).await > 1.5).then_some(())).await;
    assert!(shows(&agent.snapshot("").await.unwrap(), &[&one]));
}

#[tokio::test]
async fn a_config_map_is_read_again_when_its_symlink_is_swapped() {
    let directory = tempfile::tempdir().unwrap();
    let (one, two) = (server(1).await, server(2).await);
    let version = |name: &str, servers: &[&ScriptedServer]| {
        let version = directory.path().join(name);
        std::fs::create_dir(&version).unwrap();
        std::fs::write(version.join("endpoints.yaml"), file(servers)).unwrap();
    };
    version("..v1", &[&one]);
    std::os::unix::fs::symlink("..v1", directory.path().join("..data")).unwrap();
    let path = directory.path().join("endpoints.yaml");
    std::os::unix::fs::symlink("..data/endpoints.yaml", &path).unwrap();
    let agent = Agent::start(reading(path)).await;
    agent.snapshot_where("the first version", |s| shows(s, &[&one])).await;
    version("..v2", &[&one, &two]);
    std::os::unix::fs::symlink("..v2", directory.path().join("..data_tmp")).unwrap();
    std::fs::rename(directory.path().join("..data_tmp"), directory.path().join("..data")).unwrap();
    std::fs::remove_dir_all(directory.path().join("..v1")).unwrap();
    agent.snapshot_where("the second version", |s| shows(s, &[&one, &two])).await;
}

#[tokio::test]
async fn without_a_valid_file_the_agent_reports_why_and_serves_when_it_comes() {
    let directory = tempfile::tempdir().unwrap();
    let (path, eds) = (directory.path().join("endpoints.yaml"), directory.path().join("eds.json"));
    let target = Target { path: eds.clone(), cluster: "model-servers".to_owned() };
    let agent = Agent::start(Settings { eds: Some(target), ..reading(path.clone()) }).await;
    let not_ready = eventually("the reason", async || {
        Some(agent.get("/readyz").await.text()).filter(|text| text.contains("cannot be read"))
    })
    .await;
    assert!(not_ready.contains("endpoints.yaml"), "{not_ready}");
    eventually("an empty file, with which Envoy starts", async || {
        let file: serde_json::Value = serde_json::from_slice(&std::fs::read(&eds).ok()?).expect("whole");
        let resource = &file["resources"][0];
        (resource["cluster_name"] == "model-servers" && resource["endpoints"][0]["lb_endpoints"] == json!([]))
            .then_some(())
    })
    .await;
    assert_eq!(agent.snapshot("").await, Err(503));
    let one = server(1).await;
    rename_into_place(&path, &file(&[&one]));
    agent.snapshot_where("the set", |s| shows(s, &[&one])).await;
    eventually("ready", async || (agent.get("/readyz").await.status == 200).then_some(())).await;
    assert!(std::fs::read_to_string(&eds).unwrap().contains(&one.address().port().to_string()));
}

#[tokio::test]
async fn a_file_of_an_earlier_run_stays_while_the_endpoints_cannot_be_read() {
    let directory = tempfile::tempdir().unwrap();
    let (path, eds) = (directory.path().join("endpoints.yaml"), directory.path().join("eds.json"));
    std::fs::write(&eds, "of an earlier run").unwrap();
    let target = Target { path: eds.clone(), cluster: "model-servers".to_owned() };
    let agent = Agent::start(Settings { eds: Some(target), ..reading(path.clone()) }).await;
    let refused = "metrics_agent_config_reloads_total{result=\"refused\"}";
    eventually("the refusal", async || (agent.metric(refused).await > 0.5).then_some(())).await;
    rename_into_place(&path, "endpoints: none");
    eventually("another refusal", async || (agent.metric(refused).await > 1.5).then_some(())).await;
    assert_eq!(std::fs::read_to_string(&eds).unwrap(), "of an earlier run");
}

#[tokio::test]
async fn an_endpoint_without_a_port_is_refused_without_a_pool_that_has_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("endpoints.yaml");
    std::fs::write(&path, "endpoints: [{name: a, address: 127.0.0.1}]").unwrap();
    let agent = Agent::start(reading(path.clone())).await;
    eventually("the reason", async || {
        let text = agent.get("/readyz").await.text();
        text.contains("the endpoint default/a has no port; it is required without an InferencePool")
            .then_some(())
    })
    .await;
    let one = server(1).await;
    rename_into_place(&path, &file(&[&one]));
    agent.snapshot_where("the set", |s| shows(s, &[&one])).await;
    rename_into_place(&path, "endpoints: [{name: a, address: 127.0.0.1}]");
    rename_into_place(&path, "endpoints: [{name: b, address: 127.0.0.1}]");
    agent.reading_where("still scraped", |r| r.waiting == Some(1)).await;
    assert_eq!(agent.get("/readyz").await.status, 200);
}

#[tokio::test]
async fn new_labels_are_published_and_a_new_engine_is_read_in_its_dialect() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("endpoints.yaml");
    let sglang = "# TYPE sglang:num_queue_reqs gauge\nsglang:num_queue_reqs 7\n";
    let server = ScriptedServer::start(Behaviour::Text(load(3, 1) + sglang)).await;
    let entry = |labels: &str| file(&[&server]).replace('}', &format!(", labels: {{{labels}}}}}"));
    std::fs::write(&path, entry("tier: a")).unwrap();
    let agent = Agent::start(reading(path.clone())).await;
    agent.reading_where("as vLLM", |r| r.waiting == Some(3)).await;
    rename_into_place(&path, &entry("tier: b"));
    let label = |s: &Snapshot| s.topology.as_ref().unwrap().endpoints[0].labels[0].value.clone();
    agent.snapshot_where("the new label", |s| label(s) == "b").await;
    assert_eq!(server.connections(), 1, "a label that does not name an engine leaves the task alone");
    rename_into_place(&path, &entry("llm-d.ai/engine-type: sglang"));
    agent.reading_where("as SGLang", |r| r.waiting == Some(7)).await;
}

#[tokio::test]
async fn envoys_file_is_updated_and_never_half_written() {
    let directory = tempfile::tempdir().unwrap();
    let (path, eds) = (directory.path().join("endpoints.yaml"), directory.path().join("eds.json"));
    let (one, two) = (server(1).await, server(2).await);
    std::fs::write(&path, file(&[])).unwrap();
    let target = Target { path: eds.clone(), cluster: "model-servers".to_owned() };
    let agent = Agent::start(Settings { eds: Some(target), ..reading(path.clone()) }).await;
    eventually("ready", async || (agent.get("/readyz").await.status == 200).then_some(())).await;
    assert!(eds.exists(), "the file is there before the agent is ready");
    let seen = |eds: &Path| {
        let file: serde_json::Value = serde_json::from_slice(&std::fs::read(eds).unwrap()).expect("whole");
        let hosts = file["resources"][0]["endpoints"][0]["lb_endpoints"].as_array().unwrap().len();
        (hosts, file["version_info"].as_str().unwrap().to_owned())
    };
    let mut versions = std::collections::HashSet::new();
    for servers in [&[&one][..], &[&one, &two], &[], &[&two]] {
        rename_into_place(&path, &file(servers));
        let version = eventually("Envoy's hosts", async || {
            let (hosts, version) = seen(&eds);
            (hosts == servers.len()).then_some(version)
        });
        versions.insert(version.await);
    }
    assert_eq!(versions.len(), 4, "each set has its own version");
}

#[tokio::test]
async fn a_deleted_eds_file_is_written_again() {
    let directory = tempfile::tempdir().unwrap();
    let eds = directory.path().join("eds.json");
    let server = server(1).await;
    let target = Target { path: eds.clone(), cluster: "model-servers".to_owned() };
    let agent = Agent::start(Settings { eds: Some(target), ..scraping(&[server.address()]) }).await;
    agent.reading_where("a reading", |r| r.waiting == Some(1)).await;
    let port = u64::from(server.address().port());
    for _ in 0..2 {
        std::fs::remove_file(&eds).unwrap();
        eventually("the file again", async || eds.exists().then_some(())).await;
        let file: serde_json::Value = serde_json::from_slice(&std::fs::read(&eds).unwrap()).unwrap();
        let host = &file["resources"][0]["endpoints"][0]["lb_endpoints"][0];
        assert_eq!(host["endpoint"]["address"]["socket_address"]["port_value"], port);
    }
}

#[tokio::test]
async fn an_endpoint_that_returns_counts_as_restarted_and_one_that_stays_does_not() {
    let Setup { path, one, two, agent, directory: _directory } = setup().await;
    rename_into_place(&path, &file(&[&two]));
    agent.snapshot_where("the other endpoint alone", |s| shows(s, &[&two])).await;
    rename_into_place(&path, &file(&[&one, &two]));
    let both = |s: &Snapshot| shows(s, &[&one, &two]) && s.readings.iter().all(|r| r.waiting.is_some());
    let before = agent.snapshot_where("both", both).await;
    assert!(before.readings[0].cached_since_ms.is_some());
    rename_into_place(&path, &file(&[&one]));
    agent.snapshot_where("the first one alone", |s| shows(s, &[&one])).await;
    rename_into_place(&path, &file(&[&one, &two]));
    let after = agent.snapshot_where("both again", both).await;
    assert_eq!(after.readings[0].cached_since_ms, before.readings[0].cached_since_ms);
    assert!(after.readings[1].cached_since_ms > before.readings[1].cached_since_ms);
}
