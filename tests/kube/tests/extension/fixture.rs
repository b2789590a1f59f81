//! Pools with their servers, a Gateway and a route, in a namespace of their own.

use anyhow::{Context, Result, ensure};
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_kube::{Extension, model_servers};
use endpoint_picker_model_server::SERVED_BY;
use serde_json::{Value, json};
use std::net::Ipv4Addr;
use std::time::Instant;
use tokio::sync::RwLock;

pub(crate) const GATEWAY: &str = "inference";
pub(crate) const ROUTE: &str = "models";
pub(crate) const CHAT: &str = "/v1/chat/completions";

/// Written by tests that end what all of them share.
pub(crate) static GROUND: RwLock<()> = RwLock::const_new(());

/// The objects of one test. Their methods panic when the cluster does not do what they ask for.
pub(crate) struct Models {
    pub(crate) extension: &'static Extension,
    pub(crate) namespace: String,
    address: Ipv4Addr,
}

/// A pool of the Deployment with its name.
pub(crate) fn pool(name: &str) -> Value {
    json!({
        "apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool", "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": name}}, "targetPorts": [{"number": 8000}]},
    })
}

/// A backend of a rule.
pub(crate) fn backend(pool: &str, weight: u32) -> Value {
    json!({"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": pool, "weight": weight})
}

/// A route with these rules to the Gateway.
pub(crate) fn route(name: &str, rules: &Value) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": name},
        "spec": {"parentRefs": [{"name": GATEWAY}], "rules": rules},
    })
}

/// A rule for requests whose path begins like this. The servers know paths of the API: another beginning is
/// removed.
pub(crate) fn rule(path: &str, backends: &[Value]) -> Value {
    let mut rule =
        json!({"matches": [{"path": {"type": "PathPrefix", "value": path}}], "backendRefs": backends});
    if !["/", "/v1"].contains(&path) {
        let rewrite = json!({"path": {"type": "ReplacePrefixMatch", "replacePrefixMatch": "/"}});
        rule["filters"] = json!([{"type": "URLRewrite", "urlRewrite": rewrite}]);
    }
    rule
}

impl Models {
    /// Makes these pools with their numbers of servers, a Gateway, and a route with these rules, and waits
    /// until requests to `path` are served.
    pub(crate) async fn new(pools: &[(&str, usize)], rules: &Value, path: &str) -> Self {
        let extension = Extension::shared().await;
        let began = Instant::now();
        let namespace = extension.cluster().create_namespace("models").await.unwrap();
        let gateway = json!({
            "apiVersion": "gateway.networking.k8s.io/v1", "kind": "Gateway", "metadata": {"name": GATEWAY},
            "spec": {"gatewayClassName": extension.class(), "listeners": [{"name": "http", "protocol": "HTTP", "port": 80}]},
        });
        let mut models = Self { extension, namespace, address: Ipv4Addr::LOCALHOST };
        models.apply(&gateway).await;
        for (name, replicas) in pools {
            models.apply(&model_servers(name, *replicas)).await;
            models.apply(&pool(name)).await;
        }
        models.apply(&route(ROUTE, rules)).await;
        for (name, replicas) in pools {
            models.until_ready(name, *replicas).await;
        }
        models.address = extension.address(&models.namespace, GATEWAY).await.unwrap();
        eventually("requests are served", async || models.chat(path, "hello").await.map(drop)).await;
        println!("{path}: served {:.0?} after the first object", began.elapsed());
        models
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) async fn apply(&self, object: &Value) {
        self.extension.cluster().apply(&self.namespace, &object.to_string()).await.unwrap();
    }

    pub(crate) async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.extension.cluster().kubectl(["--namespace", &self.namespace].iter().chain(arguments)).await
    }

    /// The pod that responds to a chat request to a path that ends like [`CHAT`].
    pub(crate) async fn chat(&self, path: &str, prompt: &str) -> Result<String> {
        self.served_by(path, &client::chat(prompt), &[]).await
    }

    /// The pod that responds to a chat request with this model, from a client with these headers.
    pub(crate) async fn chat_with(
        &self,
        model: &str,
        prompt: &str,
        headers: &[(&str, &str)],
    ) -> Result<String> {
        let mut body = client::chat(prompt);
        body["model"] = model.into();
        self.served_by(CHAT, &body, headers).await
    }

    async fn served_by(&self, path: &str, body: &Value, headers: &[(&str, &str)]) -> Result<String> {
        let mut request = client::http1().post(self.url(path)).json(body);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let response = request.send().await?;
        let status = response.status();
        let pod = response.headers().get(SERVED_BY).and_then(|pod| pod.to_str().ok()).map(str::to_owned);
        let body = response.text().await?;
        ensure!(status.is_success(), "{status}: {body}");
        pod.context("the response names no pod")
    }

    /// The status of the response to a chat request.
    pub(crate) async fn status(&self, path: &str) -> Result<u16> {
        let request = client::http1().post(self.url(path)).json(&client::chat("hello"));
        Ok(request.send().await?.status().as_u16())
    }

    pub(crate) async fn scale(&self, pool: &str, replicas: usize) {
        let deployment = format!("deployment/{pool}");
        self.kubectl(&["scale", &deployment, &format!("--replicas={replicas}")]).await.unwrap();
    }

    /// Waits until this many servers of a pool are ready, and no others are there; returns their names.
    pub(crate) async fn until_ready(&self, pool: &str, count: usize) -> Vec<String> {
        eventually(&format!("{count} servers of {pool} are ready"), async || {
            let pods = self.ready_pods(&self.namespace, &format!("app={pool}"), count).await?;
            let name = |pod: &Value| Ok(pod["metadata"]["name"].as_str().context("no name")?.to_owned());
            pods.iter().map(name).collect::<Result<Vec<String>>>()
        })
        .await
    }

    /// The pods of a label, such as `app=large`; an error unless they are this many, all of them ready.
    pub(crate) async fn ready_pods(&self, namespace: &str, label: &str, count: usize) -> Result<Vec<Value>> {
        let get = ["get", "pods", "--namespace", namespace, "--selector", label, "--output=json"];
        let mut list: Value = serde_json::from_str(&self.extension.cluster().kubectl(get).await?)?;
        let pods: Vec<Value> = serde_json::from_value(list["items"].take())?;
        let is_ready = |pod: &&Value| {
            let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
            pod["metadata"]["deletionTimestamp"].is_null()
                && conditions.any(|condition| condition["type"] == "Ready" && condition["status"] == "True")
        };
        let ready = pods.iter().filter(is_ready).count();
        ensure!(ready == count && pods.len() == count, "{ready} of {} pods of {label} are ready", pods.len());
        Ok(pods)
    }

    /// Deletes the namespace.
    pub(crate) async fn remove(self) {
        self.extension.cluster().delete_namespace(&self.namespace).await.unwrap();
    }
}
