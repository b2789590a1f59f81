//! The chart's parts that the other tests do not use: what the agent's token permits, other values on
//! upgrade, a sidecar, and what the API server makes of all that the chart can render.

use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::tools;
use endpoint_picker_kube::{Cluster, Ground};
use serde_json::{Value, json};
use std::ffi::OsStr;

const RELEASE: &str = "picker";
const AGENT: &str = "picker-endpoint-picker";

fn chart() -> String {
    tools::root().join("deploy/chart").display().to_string()
}

/// Runs helm for the release in a namespace, with values as JSON.
async fn helm(cluster: &Cluster, command: &[&str], namespace: &str, values: &Value) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("values.json");
    std::fs::write(&file, values.to_string()).unwrap();
    let (chart, file) = (chart(), file.display().to_string());
    let arguments = [&chart, "--namespace", namespace, "--values", &file];
    cluster.helm(command.iter().chain(arguments.iter())).await.unwrap()
}

/// Simulated model servers with their pool, without a gateway.
fn demo() -> Value {
    let pool = json!({"name": "demo", "selector": {"app": "demo-model-server"}, "targetPorts": [8000], "create": true});
    json!({"demo": {"enabled": true, "replicas": 1}, "pools": [pool]})
}

/// Waits until the agent has created an Event on a rewrite that it cannot use: it has read the namespace, and
/// has written there.
async fn until_refused(cluster: &Cluster, namespace: &str) {
    let rewrite = json!({
        "apiVersion": "llm-d.ai/v1alpha2", "kind": "InferenceModelRewrite", "metadata": {"name": "half"},
        "spec": {
            "poolRef": {"name": "demo"},
            "rules": [{"targets": [{"modelRewrite": "a", "weight": 1}, {"modelRewrite": "b"}]}],
        },
    });
    cluster.apply(namespace, &rewrite.to_string()).await.unwrap();
    eventually("the agent refuses the rewrite", async || {
        let events = ["get", "events", "--namespace", namespace, "--field-selector=reason=Refused"];
        let events = cluster
            .kubectl(events.iter().chain(&["--output=jsonpath={.items[*].involvedObject.name}"]))
            .await;
        match events {
            Ok(names) if names.split(' ').any(|name| name == "half") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
}

async fn uninstall(cluster: &Cluster, namespace: &str) {
    cluster.helm(["uninstall", RELEASE, "--namespace", namespace, "--wait"]).await.unwrap();
    cluster.delete_namespace(namespace).await.unwrap();
}

#[tokio::test]
async fn the_agents_token_permits_what_it_reads_and_nothing_else() {
    let cluster = Ground::shared().await.cluster();
    let namespace = &cluster.create_namespace("rights").await.unwrap();
    helm(cluster, &["install", RELEASE], namespace, &demo()).await;
    let token = cluster.kubectl(["create", "token", AGENT, "--namespace", namespace]).await.unwrap();
    let as_agent = async |command: &str| {
        let words = command.split(' ').map(str::to_owned);
        cluster.kubectl([format!("--token={}", token.trim())].into_iter().chain(words)).await
    };

    for kind in [
        "pods",
        "inferencepools.inference.networking.k8s.io",
        "inferenceobjectives.inference.networking.x-k8s.io",
        "inferenceobjectives.llm-d.ai",
        "inferencemodelrewrites.llm-d.ai",
    ] {
        as_agent(&format!("get {kind} --namespace {namespace}")).await.unwrap();
    }
    for refused in [
        format!("get secrets --namespace {namespace}"),
        format!("get configmaps --namespace {namespace}"),
        format!("get services --namespace {namespace}"),
        format!("get leases --namespace {namespace}"),
        format!("delete pods --all --namespace {namespace}"),
        format!("label inferencepool demo a=b --namespace {namespace}"),
        format!("create token {AGENT} --namespace {namespace}"),
        "get pods --namespace default".to_owned(),
        "get inferencepools --all-namespaces".to_owned(),
        "get namespaces".to_owned(),
        "get nodes".to_owned(),
    ] {
        let answer = as_agent(&refused).await;
        let reason = answer.expect_err(&refused).to_string();
        assert!(reason.to_lowercase().contains("forbidden"), "{refused}: {reason}");
    }
    uninstall(cluster, namespace).await;
}

#[tokio::test]
async fn helm_test_fails_while_the_agent_refuses_an_object() {
    let cluster = Ground::shared().await.cluster();
    let namespace = &cluster.create_namespace("check").await.unwrap();
    helm(cluster, &["install", RELEASE, "--wait", "--timeout=60s"], namespace, &demo()).await;
    let test = ["test", RELEASE, "--namespace", namespace, "--timeout=60s"];
    cluster.helm(test).await.unwrap();
    let left =
        ["get", "pods,roles,rolebindings", "--selector=app.kubernetes.io/component=check", "--output=name"];
    let left = cluster.kubectl(left.iter().chain(&["--namespace", namespace])).await.unwrap();
    assert_eq!(left, "", "left of the test that succeeded");
    until_refused(cluster, namespace).await;
    let refused =
        cluster.helm(test).await.expect_err("the cluster has an object that is refused").to_string();
    assert!(refused.contains("endpoint-picker-check"), "{refused}");
    uninstall(cluster, namespace).await;
}

#[tokio::test]
async fn an_upgrade_to_all_namespaces_replaces_the_role_and_keeps_the_token() {
    let cluster = Ground::shared().await.cluster();
    let namespace = &cluster.create_namespace("upgrade").await.unwrap();
    let other = &cluster.create_namespace("other").await.unwrap();
    helm(cluster, &["install", RELEASE, "--wait", "--timeout=60s"], namespace, &demo()).await;
    until_refused(cluster, namespace).await;
    let token = async || {
        let name = format!("{namespace}-{AGENT}-token");
        let get = ["get", "secret", &name, "--namespace", namespace, "--output=jsonpath={.data.token}"];
        cluster.kubectl(get).await.unwrap()
    };
    let before = token().await;

    let mut values = demo();
    values["watch"] = json!({"namespaces": ["*"]});
    values["agent"] = json!({"replicas": 1});
    helm(cluster, &["upgrade", RELEASE], namespace, &values).await;
    until_refused(cluster, other).await;
    assert!(!before.is_empty() && token().await == before, "the upgrade changed the token");
    let roles = cluster.kubectl(["get", "roles", "--namespace", namespace, "--output=name"]).await.unwrap();
    assert_eq!(roles, "", "the role of the watched namespace is gone");

    uninstall(cluster, namespace).await;
    let label = format!("--selector=app.kubernetes.io/instance={RELEASE}");
    let left =
        cluster.kubectl(["get", "clusterroles,clusterrolebindings", &label, "--output=name"]).await.unwrap();
    assert_eq!(left, "");
    cluster.delete_namespace(other).await.unwrap();
}

#[tokio::test]
async fn the_sidecar_runs_in_the_pod_of_a_proxy() {
    let cluster = Ground::shared().await.cluster();
    let namespace = &cluster.create_namespace("sidecar").await.unwrap();
    let mut values = demo();
    values["agent"] = json!({"mode": "sidecar", "sidecar": {"serviceAccounts": [{"name": "default", "namespace": namespace}]}});
    helm(cluster, &["install", RELEASE], namespace, &values).await;

    let get = ["get", "configmap", "picker-endpoint-picker-sidecar", "--namespace", namespace];
    let config =
        cluster.kubectl(get.iter().chain(&["--output=jsonpath={.data.pod-spec\\.yaml}"])).await.unwrap();
    let service_account =
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "default"}});
    cluster.apply(namespace, &service_account.to_string()).await.unwrap();
    // Any program in place of the proxy.
    let proxy =
        r#"{"name": "proxy", "image": "endpoint-picker-model-server", "args": ["--listen=0.0.0.0:8001"]}"#;
    let pod = format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: proxy}}\nspec:\n  automountServiceAccountToken: false\n  containers: [{proxy}]\n  {}\n",
        config.replace('\n', "\n  ")
    );
    cluster.apply(namespace, &pod).await.unwrap();
    until_refused(cluster, namespace).await;
    uninstall(cluster, namespace).await;
}

#[tokio::test]
async fn the_api_server_takes_all_that_the_chart_renders() {
    let cluster = Ground::shared().await.cluster();
    let namespace = &cluster.create_namespace("render").await.unwrap();
    // The chart's token for the proxies of Envoy Gateway is there.
    let of_proxies =
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "envoy-gateway-system"}});
    cluster.apply("default", &of_proxies.to_string()).await.unwrap();
    let mut gateway = demo();
    gateway["gateway"] = json!({"kind": "envoy-gateway"});
    let mut native = gateway.clone();
    native["gateway"]["form"] = json!("native");
    let mut original_destination = gateway.clone();
    original_destination["gateway"]["endpointOverride"] = json!(false);
    let mut shadow = gateway.clone();
    shadow["pools"][0]["shadow"] = json!({"service": "epp"});
    let mut sidecar = gateway.clone();
    sidecar["agent"] = json!({"mode": "sidecar", "sidecar": {"serviceAccounts": [{"name": "proxy", "namespace": namespace}]}});
    let config = json!({"pickerConfig": {"manifests": {"chat.yaml": "kind: EndpointPickerConfig\n"}}});
    let options = json!({
        "commonLabels": {"team": "serving"},
        "image": {"registry": "registry.example/inference", "tag": "1.2.3", "pullSecrets": ["registry"]},
        "watch": {"namespaces": ["*"], "pool": "models/chat"},
        "agent": {
            "antiAffinity": "required", "priorityClassName": "system-cluster-critical",
            "nodeSelector": {"kubernetes.io/os": "linux"}, "tolerations": [{"operator": "Exists"}],
            "topologySpreadConstraints": [{
                "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway", "labelSelector": {"matchLabels": {"a": "b"}},
            }],
            "podLabels": {"a": "b"}, "podAnnotations": {"c": "d"}, "extraArgs": ["--interval=100ms"],
            "extraEnv": [{"name": "A", "value": "b"}], "extraVolumes": [{"name": "tmp", "emptyDir": {}}],
            "extraVolumeMounts": [{"name": "tmp", "mountPath": "/tmp"}],
            "kvEvents": {"source": "5557,5600", "tokenIds": ["org/model"], "tokenizers": [
                {"model": "org/model", "path": "tokenizer", "volume": {"persistentVolumeClaim": {"claimName": "models"}}},
                {"model": "other", "volume": {"configMap": {"name": "tokenizer"}}},
            ]},
        },
        "networkPolicy": {
            "from": [{"namespaceSelector": {}}], "egress": [{}],
            "kvEvents": [{"namespace": namespace, "podSelector": {"matchLabels": {"app": "vllm"}}, "first": 5557, "last": 5663}],
        },
        "metrics": {"scrape": "none", "dashboard": {"enabled": true}},
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("rendered.yaml");
    for values in [json!({}), demo(), gateway, native, original_destination, shadow, sidecar, config, options]
    {
        let rendered = helm(cluster, &["template", RELEASE, "--skip-tests"], namespace, &values).await;
        std::fs::write(&file, rendered).unwrap();
        let answer = cluster
            .kubectl([OsStr::new("apply"), "--dry-run=server".as_ref(), "--filename".as_ref(), file.as_ref()])
            .await;
        answer.unwrap_or_else(|refused| panic!("{values}: {refused:#}"));
    }
    cluster.delete_namespace(namespace).await.unwrap();
}
