//! Refused files on the page and in `metrics-agent snapshot`.

use std::path::Path;

use endpoint_picker::pool::Endpoint;
use metrics_agent::agent::Settings;
use metrics_agent::publish::eds::Target;
use metrics_agent_catalogue::watch;
use serde_json::{Value, json};

use crate::harness::{Agent, eventually, options_for, scraping};
use crate::reload::{reading, rename_into_place};
use crate::snapshot_command::snapshot;

const VALID: &str = "endpoints: [{name: a, address: 127.0.0.1, port: 1}]";

/// The response to `GET /v1/pools`, as the page reads it.
async fn refused(agent: &Agent) -> Value {
    serde_json::from_slice::<Value>(&agent.get("/v1/pools").await.body).unwrap()["refused"].clone()
}

async fn refused_where(agent: &Agent, what: &str, passes: impl Fn(&Value) -> bool) {
    eventually(what, async || passes(&refused(agent).await).then_some(())).await;
}

/// Whether exactly this file is refused, for a reason with this part.
fn is_of(refused: &Value, path: &Path, reason: &str, earlier_in_force: bool) -> bool {
    let object = &refused["objects"][0];
    refused["count"] == 1
        && object["object"] == path.to_str().unwrap()
        && object["earlier_in_force"] == earlier_in_force
        && object["reasons"][0].as_str().unwrap().contains(reason)
}

/// The output of `metrics-agent snapshot` about refused files, and whether it succeeds.
async fn printed(agent: &Agent) -> (Vec<String>, bool) {
    let output = snapshot(&["--agent", &agent.address.to_string()]).await;
    let text = String::from_utf8(output.stdout).unwrap();
    let lines = text.lines().filter(|line| line.starts_with("refused: ")).map(str::to_owned);
    (lines.collect(), output.status.success())
}

#[tokio::test]
async fn a_refused_manifest_file_is_listed_until_it_is_valid_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("manifests.yaml");
    let pool = |port: &str| {
        format!(
            "apiVersion: inference.networking.k8s.io/v1\nkind: InferencePool\nmetadata: {{name: p}}\n\
             spec: {{selector: {{matchLabels: {{app: a}}}}, targetPorts: [{{number: {port}}}]}}\n"
        )
    };
    std::fs::write(&path, pool("0")).unwrap();
    let manifests = Some(watch::ManifestSettings { path: path.clone(), options: options_for("default") });
    let address = "127.0.0.1:1".parse().unwrap();
    let agent = Agent::start(Settings { manifests, ..scraping(&[address]) }).await;
    let reason = "spec.targetPorts[0].number";
    refused_where(&agent, "the refusal", |it| is_of(it, &path, reason, false)).await;
    // Without a pool there is no table.
    let (lines, succeeds) = printed(&agent).await;
    let [line] = &lines[..] else { panic!("{lines:?}") };
    assert!(line.starts_with(&format!("refused: {}: document 1: {reason}", path.display())), "{line}");
    assert!(line.ends_with("; nothing of it is in force") && !succeeds, "{line}");

    rename_into_place(&path, &pool("8000"));
    refused_where(&agent, "no refusal", |it| *it == json!({"count": 0, "objects": []})).await;
    eventually("the pool", async || printed(&agent).await.1.then_some(())).await;
    assert_eq!(printed(&agent).await, (vec![], true));

    rename_into_place(&path, &pool("0"));
    refused_where(&agent, "the second refusal", |it| is_of(it, &path, reason, true)).await;
    let (lines, succeeds) = printed(&agent).await;
    assert!(lines[0].ends_with("; its last valid version stays in force") && succeeds, "{lines:?}");
    assert!((agent.metric("metrics_agent_refused_objects{kind=\"File\"}").await - 1.0).abs() < 0.5);
}

#[tokio::test]
async fn a_refused_endpoints_file_is_listed_until_it_is_valid_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("endpoints.yaml");
    std::fs::write(&path, "endpoints: 7").unwrap();
    let agent = Agent::start(reading(path.clone())).await;
    refused_where(&agent, "the refusal", |it| is_of(it, &path, "endpoints: ", false)).await;
    for (invalid, reason) in [
        ("endpoints: [{name: a, address: 127.0.0.1, port: 0}]", "endpoints[0].port"),
        ("endpoints: [{name: a, address: 127.0.0.1}]", "the endpoint default/a has no port"),
        ("}", "neither YAML nor JSON"),
    ] {
        rename_into_place(&path, VALID);
        refused_where(&agent, "no refusal", |it| it["count"] == 0).await;
        agent.snapshot_where("the valid set", |it| it.topology.is_some()).await;
        assert_eq!(printed(&agent).await, (vec![], true));
        rename_into_place(&path, invalid);
        refused_where(&agent, invalid, |it| is_of(it, &path, reason, true)).await;
        let (lines, succeeds) = printed(&agent).await;
        let [line] = &lines[..] else { panic!("{lines:?}") };
        assert!(line.starts_with(&format!("refused: {}: {reason}", path.display())), "{line}");
        assert!(line.ends_with("; its last valid version stays in force") && succeeds, "{line}");
    }
}

#[tokio::test]
async fn manifests_that_are_refused_at_the_start_leave_an_eds_file_without_endpoints() {
    let directory = tempfile::tempdir().unwrap();
    let (path, eds) = (directory.path().join("manifests.yaml"), directory.path().join("eds.json"));
    std::fs::write(&path, "kind: Nothing").unwrap();
    let manifests = Some(watch::ManifestSettings { path: path.clone(), options: options_for("default") });
    let target = Target { path: eds.clone(), cluster: "model-servers".to_owned() };
    let mut settings = Settings { manifests, eds: Some(target), ..scraping(&[]) };
    let label = ("app".to_owned(), "a".to_owned());
    let endpoint = Endpoint::new("default/a".to_owned(), "127.0.0.1:1".parse().unwrap(), vec![label]);
    settings.sources.fixed.endpoints.push(endpoint);
    let agent = Agent::start(settings).await;
    let hosts = || -> Option<Value> {
        let file: Value = serde_json::from_slice(&std::fs::read(&eds).ok()?).expect("whole");
        let resource = &file["resources"][0];
        assert_eq!(resource["cluster_name"], "model-servers");
        Some(resource["endpoints"][0]["lb_endpoints"].clone())
    };
    let is_empty = async || (hosts()? == json!([])).then_some(());
    eventually("an empty file, with which Envoy starts", is_empty).await;
    assert_eq!(agent.get("/readyz").await.status, 503);
    std::fs::remove_file(&eds).unwrap();
    eventually("the file again", is_empty).await;
    let pool = "apiVersion: inference.networking.k8s.io/v1\nkind: InferencePool\nmetadata: {name: p}\n\
                spec: {selector: {matchLabels: {app: a}}, targetPorts: [{number: 1}]}\n";
    rename_into_place(&path, pool);
    eventually("the endpoint", async || (hosts()? != json!([])).then_some(())).await;
}

#[tokio::test]
async fn an_eds_file_of_an_earlier_run_stays_while_the_first_manifests_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let (path, eds) = (directory.path().join("manifests.yaml"), directory.path().join("eds.json"));
    std::fs::write(&path, "kind: Nothing").unwrap();
    std::fs::write(&eds, "of an earlier run").unwrap();
    let manifests = Some(watch::ManifestSettings { path: path.clone(), options: options_for("default") });
    let target = Target { path: eds.clone(), cluster: "model-servers".to_owned() };
    let address = "127.0.0.1:1".parse().unwrap();
    let agent = Agent::start(Settings { manifests, eds: Some(target), ..scraping(&[address]) }).await;
    let refused = "metrics_agent_manifest_reloads_total{result=\"refused\"}";
    for count in [0.5, 1.5] {
        eventually("a refusal", async || (agent.metric(refused).await > count).then_some(())).await;
        rename_into_place(&path, "kind: Nothing either");
    }
    assert_eq!(std::fs::read_to_string(&eds).unwrap(), "of an earlier run");
}
