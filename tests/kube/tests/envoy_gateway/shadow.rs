//! A shadow week on a cluster: the endpoint picker of the Gateway API Inference Extension picks in Envoy
//! Gateway's Envoy, and the filter behind it counts how often it agrees. Then the filter picks.

use anyhow::ensure;
use endpoint_picker_e2e::fixture::CHAT;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::{Filter, client, tools};
use endpoint_picker_kube::{GatewayGround, Installation, POOL};
use k8s_openapi::api::core::v1::Pod;
use kube::api::ListParams;
use reqwest::StatusCode;
use serde_json::{Value, json};

/// Configuration for both pickers.
const CONFIG: &str = "
apiVersion: inference.networking.x-k8s.io/v1alpha1
kind: EndpointPickerConfig
plugins:
- type: queue-scorer
- type: prefix-cache-scorer
- type: max-score-picker
- type: single-profile-handler
schedulingProfiles:
- name: default
  plugins:
  - pluginRef: queue-scorer
    weight: 1
  - pluginRef: prefix-cache-scorer
    weight: 2
  - pluginRef: max-score-picker
";

const PROMPTS: usize = 8;
const ROUNDS: usize = 5;

#[tokio::test(flavor = "multi_thread")]
async fn the_wasm_filter_agrees_with_the_epp_before_it() {
    agrees(Filter::Wasm).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_native_filter_agrees_with_the_epp_before_it() {
    agrees(Filter::Native).await;
}

async fn agrees(filter: Filter) {
    let ground = GatewayGround::shared().await;
    let values = json!({"pickerConfig": {"manifests": {"picker.yaml": CONFIG}}});
    let installation = Installation::with_values(ground, filter, 3, &values).await;
    for object in epp(installation.namespace()) {
        installation.apply(&object).await;
    }
    installation
        .kubectl(&["wait", "--for=condition=Available", "deployment/epp", "--timeout=60s"])
        .await
        .unwrap();

    // The way back to the EPP, and then the switch.
    set_shadow(ground, &installation, &json!({"service": "epp", "port": 9002})).await;
    assert_agrees(filter, &installation).await;
    set_shadow(ground, &installation, &Value::Null).await;
    installation.kubectl(&["delete", "deployment/epp"]).await.unwrap();
    installation.until_picked().await;
    installation.remove().await;
}

/// Upgrades the release to this field `shadow` of the pool; null: without.
async fn set_shadow(ground: &GatewayGround, installation: &Installation<'_>, shadow: &Value) {
    let mut pool =
        json!({"name": POOL, "selector": {"app": "model-server"}, "targetPorts": [8000], "create": true});
    if !shadow.is_null() {
        pool["shadow"] = shadow.clone();
    }
    let chart = tools::root().join("deploy/chart").display().to_string();
    let upgrade = ["upgrade", POOL, &chart, "--namespace", installation.namespace(), "--reuse-values"];
    let pools = format!("pools=[{pool}]");
    ground.cluster().helm(upgrade.iter().chain(&["--set-json", &pools])).await.unwrap();
}

async fn assert_agrees(filter: Filter, installation: &Installation<'_>) {
    let first = eventually("the filter compares", async || {
        let status = chat(installation, "a first prompt").await;
        ensure!(status == StatusCode::OK, "{status}");
        let (agreed, disagreed) = decisions(installation).await;
        ensure!(agreed + disagreed > 0, "no comparison");
        Ok(agreed + disagreed)
    })
    .await;
    for _ in 0..ROUNDS {
        for prompt in 0..PROMPTS {
            let prompt = format!("prompt {prompt}: {}", "a long beginning ".repeat(200));
            assert_eq!(chat(installation, &prompt).await, StatusCode::OK);
        }
    }
    let expected = first + u64::try_from(PROMPTS * ROUNDS).unwrap();
    let (agreed, disagreed) = eventually("every request is compared", async || {
        let (agreed, disagreed) = decisions(installation).await;
        if agreed + disagreed >= expected {
            Ok((agreed, disagreed))
        } else {
            Err(format!("{agreed}, {disagreed} of {expected}"))
        }
    })
    .await;
    println!("{filter}: agreed on {agreed}, disagreed on {disagreed}");
    // Both read the servers' queues at other moments.
    assert!(disagreed * 4 <= agreed, "agreed on {agreed}, disagreed on {disagreed}");
}

async fn chat(installation: &Installation<'_>, prompt: &str) -> StatusCode {
    let answer = client::http1().post(installation.url(CHAT)).json(&client::chat(prompt)).send().await;
    answer.unwrap().status()
}

/// Requests on which both agreed, and others, as the proxies report them to the agents.
async fn decisions(installation: &Installation<'_>) -> (u64, u64) {
    let agents = ListParams::default().labels("app.kubernetes.io/component=agent");
    let agents = installation.pods().await.list(&agents).await.unwrap().items;
    let mut counts = (0, 0);
    for address in agents.iter().filter_map(address) {
        let text = client::http1().get(format!("http://{address}:9095/metrics")).send().await.unwrap();
        let text = text.text().await.unwrap();
        let of = |agrees: &str| -> u64 {
            let series =
                text.lines().filter(|line| line.starts_with("endpoint_picker_shadow_decisions_total{"));
            let values = series.filter(|line| line.contains(&format!("agrees=\"{agrees}\"")));
            values.map(|line| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap()).sum()
        };
        counts = (counts.0 + of("true"), counts.1 + of("false"));
    }
    counts
}

fn address(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.pod_ip.as_deref()
}

/// The EPP, as its chart installs it, without TLS and without authentication of its metrics.
fn epp(namespace: &str) -> Vec<Value> {
    let subject =
        |kind: &str, name: &str| json!({"apiVersion": "v1", "kind": kind, "metadata": {"name": name}});
    let mut service = subject("Service", "epp");
    service["spec"] = json!({
        "selector": {"app": "epp"}, "clusterIP": "None",
        "ports": [{"name": "ext-proc", "port": 9002, "appProtocol": "kubernetes.io/h2c"}],
    });
    let rule = |group: &str, resources: &[&str]| json!({"apiGroups": [group], "resources": resources, "verbs": ["get", "list", "watch"]});
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "Role", "metadata": {"name": "epp"},
        "rules": [
            rule("", &["pods"]),
            rule("inference.networking.k8s.io", &["inferencepools"]),
            rule("inference.networking.x-k8s.io", &["inferenceobjectives", "inferencemodelrewrites"]),
        ],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "RoleBinding", "metadata": {"name": "epp"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "epp"},
        "subjects": [{"kind": "ServiceAccount", "name": "epp", "namespace": namespace}],
    });
    let deployment = json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "epp"},
        "spec": {
            "selector": {"matchLabels": {"app": "epp"}},
            "template": {
                "metadata": {"labels": {"app": "epp"}},
                "spec": {
                    "serviceAccountName": "epp",
                    "containers": [{
                        "name": "epp", "image": "epp",
                        "args": [
                            format!("--pool-name={POOL}"), format!("--pool-namespace={namespace}"), "--config-text", CONFIG,
                            "--secure-serving=false", "--metrics-endpoint-auth=false", "--enable-pprof=false", "--tracing=false",
                        ],
                    }],
                },
            },
        },
    });
    vec![subject("ServiceAccount", "epp"), service, role, binding, deployment]
}
