//! An `LLMInferenceService` of KServe, with the pool that KServe makes and with the manifests of
//! docs/install/kserve.md.

use crate::fixture::{CHAT, GROUND};
use anyhow::{Context, Result, ensure};
use endpoint_picker_harness::eventually::within;
use endpoint_picker_harness::{client, tools};
use endpoint_picker_kube::{Extension, KServe};
use endpoint_picker_model_server::SERVED_BY;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::time::{Duration, Instant};

/// Namespace and name of the page's objects.
const NAMESPACE: &str = "inference";
const SERVICE: &str = "llama";
const DEADLINE: Duration = Duration::from_secs(180);

async fn until<T>(what: &str, check: impl AsyncFnMut() -> Result<T>) -> T {
    within(DEADLINE, check)
        .await
        .unwrap_or_else(|reason| panic!("not within {DEADLINE:?}: {what}; last seen: {reason}"))
}

fn page() -> String {
    fs::read_to_string(tools::root().join("docs/install/kserve.md")).unwrap()
}

/// The block of this kind in the page.
fn block(kind: &str) -> String {
    let page = page();
    let (_, block) = page.split_once(&format!("\n```{kind}\n")).unwrap();
    block.split_once("\n```\n").unwrap().0.to_owned()
}

/// The page's service, with KServe's own pool and EPP.
fn service_of_kserve() -> Value {
    let objects: Vec<Value> = serde_saphyr::from_multiple(&block("yaml")).unwrap();
    let [_, mut service] = <[Value; 2]>::try_from(objects).unwrap();
    let pool = service["spec"]["router"]["scheduler"].as_object_mut().unwrap().remove("pool");
    assert!(pool.is_some());
    service
}

/// KServe's Gateway, of the chart's class, and in place of its preset for servers one with the simulated
/// server, which loads no model.
fn surroundings(class: &str) -> [Value; 2] {
    let server = json!({
        "name": "main", "image": "endpoint-picker-model-server", "ports": [{"containerPort": 8000}],
        "readinessProbe": {"httpGet": {"path": "/metrics", "port": 8000}, "periodSeconds": 1},
    });
    [
        json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway",
            "metadata": {"name": "kserve-ingress-gateway", "namespace": "kserve"},
            "spec": {"gatewayClassName": class, "listeners": [{
                "name": "http", "protocol": "HTTP", "port": 80,
                "allowedRoutes": {"namespaces": {"from": "All"}},
            }]},
        }),
        json!({
            "apiVersion": "serving.kserve.io/v1alpha2", "kind": "LLMInferenceServiceConfig",
            "metadata": {"name": "kserve-config-llm-template", "namespace": NAMESPACE},
            "spec": {
                "storageInitializer": {"enabled": false},
                "template": {"terminationGracePeriodSeconds": 10, "containers": [server]},
            },
        }),
    ]
}

async fn get(extension: &Extension, what: &str, name: &str) -> Result<Value> {
    let get = ["get", what, name, "--namespace", NAMESPACE, "--output=json"];
    Ok(serde_json::from_str(&extension.cluster().kubectl(get).await?)?)
}

/// The rows of the page's table, by what KServe has made.
async fn rows(extension: &Extension) -> Result<Vec<String>> {
    let name = format!("{SERVICE}-inference-pool");
    let pool = get(extension, "inferencepools.inference.networking.k8s.io", &name).await?;
    let spec = &pool["spec"];
    let text = |value: &Value| value.as_str().map(str::to_owned).context("no text");
    let labels = spec["selector"]["matchLabels"].as_object().context("no labels")?;
    let labels: Result<Vec<_>> =
        labels.iter().map(|(key, value)| Ok(format!("`{key}: {}`", text(value)?))).collect();
    let epp = &spec["endpointPickerRef"];
    ensure!(epp["kind"] == "Service" && spec["targetPorts"].as_array().is_some_and(|ports| ports.len() == 1));

    let deployments = get(extension, "deployments", &format!("{SERVICE}-kserve-router-scheduler")).await?;
    let containers = deployments["spec"]["template"]["spec"]["containers"].as_array().context("none")?;
    let main = containers.iter().find(|container| container["name"] == "main").context("no EPP")?;
    let arguments = main["args"].as_array().context("no arguments")?;
    let place = arguments.iter().position(|argument| argument == "--config-text");
    let config = text(&arguments[place.context("no configuration")? + 1])?;
    let config: Value = serde_saphyr::from_str(&config)?;
    let mut scorers = String::new();
    for plugin in config["schedulingProfiles"][0]["plugins"].as_array().context("no plugins")? {
        if let Some(weight) = plugin["weight"].as_f64() {
            write!(scorers, ", `{}` {weight}", text(&plugin["pluginRef"])?)?;
        }
    }
    Ok(vec![
        format!("| pool `{name}`, port | {} |", spec["targetPorts"][0]["number"]),
        format!("| its selector | {} |", labels?.join(", ")),
        format!(
            "| its `endpointPickerRef` | Service `{}`, port {}, `failureMode: {}` |",
            text(&epp["name"])?,
            epp["port"]["number"],
            text(&epp["failureMode"])?
        ),
        format!("| {} |", scorers.trim_start_matches(", ")),
    ])
}

/// The pools of the route that KServe has made, each by its API group and name.
async fn pools_of_the_route(extension: &Extension) -> Result<BTreeSet<(String, String)>> {
    let route = get(extension, "httproute", &format!("{SERVICE}-kserve-route")).await?;
    let rules = route["spec"]["rules"].as_array().context("no rules")?;
    let backends = rules.iter().flat_map(|rule| rule["backendRefs"].as_array().into_iter().flatten());
    let pools = backends.filter(|backend| backend["kind"] == "InferencePool");
    let text = |value: &Value| value.as_str().map(str::to_owned).context("no text");
    pools.map(|pool| Ok((text(&pool["group"])?, text(&pool["name"])?))).collect()
}

/// Waits until the rules of KServe's route for requests of the API lead to this pool, and to no other.
async fn until_routed_to(extension: &Extension, pool: &str) {
    until(&format!("the route leads to the pool {pool}"), async || {
        let pools = pools_of_the_route(extension).await?;
        let expected = BTreeSet::from([("inference.networking.k8s.io".to_owned(), pool.to_owned())]);
        ensure!(pools == expected, "{pools:?}");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_manifests_of_the_page_take_the_place_of_the_pool_and_the_epp_that_kserve_makes() {
    let _ground = GROUND.read().await;
    let extension = Extension::shared().await;
    let cluster = extension.cluster();
    let _kserve = KServe::start(cluster).await.unwrap();
    for object in surroundings(&extension.class()) {
        let namespace = object["metadata"]["namespace"].as_str().unwrap();
        cluster.apply(namespace, &object.to_string()).await.unwrap();
    }
    let own = service_of_kserve();
    cluster.apply(NAMESPACE, &own.to_string()).await.unwrap();

    let rows = until("KServe makes pool and EPP", async || rows(extension).await).await;
    println!("{}", rows.join("\n"));
    for row in rows {
        assert!(page().contains(&row), "the page does not have {row}");
    }
    // KServe tries the older API group first, which Envoy Gateway refuses.
    until_routed_to(extension, "llama-inference-pool").await;
    until("KServe's servers are ready", async || {
        let service = get(extension, "deployment", &format!("{SERVICE}-kserve")).await?;
        ensure!(service["status"]["readyReplicas"] == 3, "{}", service["status"]);
        Ok(())
    })
    .await;
    let address = extension.address("kserve", "kserve-ingress-gateway").await.unwrap();
    let url = format!("http://{address}/{NAMESPACE}/{SERVICE}{CHAT}");
    let chat = async || -> Result<String> {
        let body = client::chat(&"the same beginning ".repeat(200));
        let response = client::http1().post(&url).json(&body).send().await?.error_for_status()?;
        let pod = response.headers().get(SERVED_BY).context("the response names no pod")?;
        Ok(pod.to_str()?.to_owned())
    };
    assert!(chat().await.is_err(), "the EPP of KServe's pool is away");

    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("llama.yaml"), block("yaml")).unwrap();
    let began = Instant::now();
    cluster.shell(&format!("cd {}\n{}", folder.path().display(), block("sh"))).await.unwrap();
    until("a request is picked", chat).await;
    println!("KServe: picked {:.0?} after the command began", began.elapsed());
    until_routed_to(extension, SERVICE).await;
    // Nothing else in Envoy can send a request to a server of the pool. The prompt is always the same, so the
    // pool picks a server by what it has cached.
    let mut served = BTreeSet::new();
    for _ in 0..30 {
        served.insert(chat().await.unwrap());
    }
    assert_eq!(served.len(), 1, "{served:?}");
    assert!(served.iter().all(|pod| pod.starts_with("llama-kserve-")), "{served:?}");
    until("KServe has removed its pool and its EPP, and takes the service as ready", async || {
        for (kind, name) in [
            ("inferencepools.inference.networking.k8s.io", "llama-inference-pool"),
            ("deployment", "llama-kserve-router-scheduler"),
        ] {
            ensure!(get(extension, kind, name).await.is_err(), "{name} is there");
        }
        let service = get(extension, "llminferenceservice", SERVICE).await?;
        let mut conditions = service["status"]["conditions"].as_array().into_iter().flatten();
        let ready = conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True");
        ensure!(ready, "{}", service["status"]["conditions"]);
        Ok(())
    })
    .await;

    cluster.apply(NAMESPACE, &own.to_string()).await.unwrap();
    until_routed_to(extension, "llama-inference-pool").await;
    // While the controller runs, which removes the finalizer.
    let delete = ["delete", "llminferenceservice", SERVICE, "--namespace", NAMESPACE, "--timeout=60s"];
    cluster.kubectl(delete).await.unwrap();
    for (kind, name, namespace) in [
        ("inferencepools.inference.networking.k8s.io", SERVICE, NAMESPACE),
        ("gateway", "kserve-ingress-gateway", "kserve"),
    ] {
        cluster.kubectl(["delete", kind, name, "--namespace", namespace]).await.unwrap();
    }
}
