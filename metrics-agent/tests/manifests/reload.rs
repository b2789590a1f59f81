//! Manifests that change while the agent runs.

use endpoint_picker_wire::v1::Policy;
use metrics_agent::agent::Settings;
use metrics_agent_catalogue::watch;

use crate::harness::{Agent, eventually, settings};
use crate::pools::{Setup, endpoints, pool, server, waiting};
use crate::reading::options;

fn objective(priority: i32) -> String {
    format!(
        "\napiVersion: llm-d.ai/v1alpha2\nkind: InferenceObjective\nmetadata: {{name: o}}\n\
         spec: {{priority: {priority}, poolRef: {{name: p}}}}\n---"
    )
}

fn policy(snapshot: &endpoint_picker_wire::v1::Snapshot) -> Policy {
    snapshot.topology.as_ref().unwrap().policy.clone().unwrap()
}

#[tokio::test]
async fn a_new_policy_is_a_new_topology_and_readings_stay() {
    let one = server(1).await;
    let setup = Setup::start(&(pool("p", "a") + &objective(-1)), &endpoints(&[(&one, "a: x")]), None).await;
    let before = setup.snapshot_where("p", |s| waiting(s) == [Some(1)]).await;
    assert_eq!(policy(&before).objectives[0].priority, -1);
    setup.replace("manifests/m.yaml", &(pool("p", "a") + &objective(-2)));
    let after = setup.snapshot_where("p", |s| s.topology_version != before.topology_version).await;
    assert_eq!(policy(&after).objectives[0].priority, -2);
    assert_eq!(waiting(&after), [Some(1)], "the reading is there at once");
    assert_eq!(one.connections(), 1, "the scraping goes on");
}

#[tokio::test]
async fn after_a_refused_change_the_last_valid_set_stays_and_the_next_valid_one_is_used() {
    let one = server(1).await;
    let good = pool("p", "a") + &objective(-1);
    let setup = Setup::start(&good, &endpoints(&[(&one, "a: x")]), None).await;
    let before = setup.snapshot_where("p", |s| waiting(s) == [Some(1)]).await;
    let refused = "metrics_agent_manifest_reloads_total{result=\"refused\"}";
    let bad_shadow = "\napiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\n\
                      metadata: {name: p, annotations: {endpoint-picker/shadow: 'true'}}\nplugins: [{type: none}]";
    for bad in [
        good.replace("-1", "low"),
        good.replace("Objective", "Objektive"),
        "{".to_owned(),
        good.clone() + bad_shadow,
    ] {
        let known = setup.agent.metric(refused).await;
        setup.replace("manifests/m.yaml", &bad);
        eventually("the refusal", async || (setup.agent.metric(refused).await > known).then_some(())).await;
        assert_eq!(setup.snapshot("p").await.unwrap().topology_version, before.topology_version);
        assert_eq!(setup.agent.get("/readyz").await.status, 200);
    }
    assert!(setup.agent.metric(refused).await < 4.5, "each change is counted once");
    setup.replace("manifests/m.yaml", &(pool("p", "a") + &objective(-9)));
    let after = setup.snapshot_where("p", |s| s.topology_version != before.topology_version).await;
    assert_eq!(policy(&after).objectives[0].priority, -9);
}

#[tokio::test]
async fn an_added_pool_is_served_and_a_removed_one_is_not() {
    let (one, two) = (server(1).await, server(2).await);
    let setup = Setup::start(&pool("p", "a"), &endpoints(&[(&one, "a: x"), (&two, "b: x")]), None).await;
    let known = setup.snapshot_where("p", |s| waiting(s) == [Some(1)]).await;
    let path = format!(
        "/v1/pools/p/snapshot?topology={}&readings={}&wait_ms=30000",
        known.topology_version, known.readings_version
    );
    one.set_behaviour(crate::scripted::Behaviour::Hang);
    setup.replace("manifests/m.yaml", &pool("q", "b"));
    setup.snapshot_where("q", |s| waiting(s) == [Some(2)]).await;
    assert_eq!(setup.snapshot("p").await, Err(404));
    assert_eq!(setup.agent.get(&path).await.status, 404);
}

#[tokio::test]
async fn only_the_envoy_file_of_a_removed_pool_is_removed() {
    let (one, two) = (server(1).await, server(2).await);
    let found = endpoints(&[(&one, "a: x"), (&two, "b: x")]);
    let both = pool("p", "a") + &pool("q", "b");
    let setup = Setup::start(&both, &found, Some("{pool}.json")).await;
    let is_there = |pool: &str| setup.directory.path().join(format!("{pool}.json")).exists();
    eventually("both files", async || (is_there("p") && is_there("q")).then_some(())).await;
    setup.replace("manifests/m.yaml", &pool("q", "b"));
    eventually("the file is removed", async || (!is_there("p")).then_some(())).await;
    assert!(is_there("q"));
    setup.replace("manifests/m.yaml", &both);
    eventually("it comes back", async || is_there("p").then_some(())).await;
}

#[tokio::test]
async fn a_config_map_is_read_again_when_its_symlink_is_swapped() {
    let one = server(1).await;
    let directory = tempfile::tempdir().unwrap();
    let version = |name: &str, text: &str| {
        std::fs::create_dir(directory.path().join(name)).unwrap();
        std::fs::write(directory.path().join(name).join("m.yaml"), text).unwrap();
    };
    version("..v1", &pool("p", "a"));
    std::os::unix::fs::symlink("..v1", directory.path().join("..data")).unwrap();
    std::os::unix::fs::symlink("..data/m.yaml", directory.path().join("m.yaml")).unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), endpoints(&[(&one, "a: x")])).unwrap();
    let mut settings = settings();
    settings.sources.file = Some(file.path().to_owned());
    settings.manifests =
        Some(watch::ManifestSettings { path: directory.path().to_owned(), options: options() });
    let agent = Agent::start(settings).await;
    let served = async |pool: &str| {
        let path = format!("/v1/pools/{pool}/snapshot");
        eventually(pool, async || (agent.get(&path).await.status == 200).then_some(())).await;
    };
    served("p").await;
    version("..v2", &pool("q", "a"));
    std::os::unix::fs::symlink("..v2", directory.path().join("..data_tmp")).unwrap();
    std::fs::rename(directory.path().join("..data_tmp"), directory.path().join("..data")).unwrap();
    std::fs::remove_dir_all(directory.path().join("..v1")).unwrap();
    served("q").await;
}

#[tokio::test]
async fn without_valid_manifests_the_agent_reports_why_and_serves_when_they_come() {
    let one = server(1).await;
    let setup = Setup::start("kind: InferencePool", &endpoints(&[(&one, "a: x")]), None).await;
    let reason = eventually("the reason", async || {
        Some(setup.agent.get("/readyz").await.text()).filter(|text| text.contains("refused"))
    });
    let reason = reason.await;
    assert!(reason.contains("m.yaml: document 1: apiVersion: is missing"), "{reason}");
    assert_eq!(setup.snapshot("p").await, Err(503));
    setup.replace("manifests/m.yaml", &pool("p", "a"));
    setup.snapshot_where("p", |s| waiting(s) == [Some(1)]).await;
    eventually("ready", async || (setup.agent.get("/readyz").await.status == 200).then_some(())).await;
}

#[tokio::test]
async fn a_configuration_may_name_the_endpoints_file() {
    let (one, two) = (server(1).await, server(2).await);
    let directory = tempfile::tempdir().unwrap();
    let config = |file: &str| {
        let path = directory.path().join(file);
        format!(
            "apiVersion: llm-d.ai/v1alpha1\nkind: EndpointPickerConfig\nplugins: [{{type: queue-scorer}}, \
             {{type: file-discovery, parameters: {{path: {}}}}}]\ndataLayer: {{discovery: {{pluginRef: file-discovery}}}}",
            path.display()
        )
    };
    std::fs::write(directory.path().join("one.yaml"), endpoints(&[(&one, "")])).unwrap();
    std::fs::write(directory.path().join("two.yaml"), endpoints(&[(&two, "")])).unwrap();
    let path = directory.path().join("config");
    std::fs::write(&path, config("one.yaml")).unwrap();
    let manifests = Some(watch::ManifestSettings { path: path.clone(), options: options() });
    let agent = Agent::start(Settings { manifests, ..settings() }).await;
    agent.snapshot_where("the first file's", |s| waiting(s) == [Some(1)]).await;
    std::fs::write(&path, config("two.yaml")).unwrap();
    agent.snapshot_where("the second file's", |s| waiting(s) == [Some(2)]).await;
}

#[tokio::test]
async fn manifests_without_endpoints_are_refused_without_flags_for_endpoints() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("m.yaml");
    std::fs::write(&path, pool("p", "a")).unwrap();
    let manifests = Some(watch::ManifestSettings { path, options: options() });
    let agent = Agent::start(Settings { manifests, ..settings() }).await;
    let reason = eventually("the reason", async || {
        Some(agent.get("/readyz").await.text()).filter(|text| text.contains("has no source of endpoints"))
    });
    assert!(reason.await.contains("--endpoints-file or a file-discovery plugin"));
}
