//! The chart in a Kubernetes namespace, for a Gateway of Istio.

use anyhow::{Context, Result, ensure};
use endpoint_picker_harness::eventually::{eventually, within};
use endpoint_picker_harness::{client, tools};
use endpoint_picker_kube::{Istio, accepted_reports, doctor_finds_nothing, model_servers};
use endpoint_picker_model_server::SERVED_BY;
use serde_json::{Value, json};
use std::fs;
use std::time::{Duration, Instant};

const RELEASE: &str = "endpoint-picker";
const CHAT: &str = "/v1/chat/completions";
/// The header with the picked endpoint.
const DESTINATION: &str = "x-gateway-destination-endpoint";
/// The chart in the page's command, of which a folder takes the place here. Programs of the build stand for
/// the images.
const PUBLISHED: &str =
    concat!("oci://registry.example/inference/charts/endpoint-picker --version ", env!("CARGO_PKG_VERSION"));
/// From the chart to the first pick: Istio makes a pod, whose Envoy compiles the wasm module.
const FIRST_PICK: Duration = Duration::from_secs(180);

/// A namespace of one test. Its methods panic when the cluster does not do what they ask for.
pub(crate) struct Installed {
    istio: &'static Istio,
    namespace: String,
}

/// A pool of the Deployment with this name, whose EPP is away.
pub(crate) fn pool(name: &str, servers: &str) -> Value {
    json!({
        "apiVersion": "inference.networking.k8s.io/v1", "kind": "InferencePool", "metadata": {"name": name},
        "spec": {
            "selector": {"matchLabels": {"app": servers}}, "targetPorts": [{"number": 8000}],
            "endpointPickerRef": {
                "name": format!("{name}-epp"), "port": {"number": 9002}, "failureMode": "FailClose",
            },
        },
    })
}

/// A route of the Gateway `inference` to the pool of its name.
pub(crate) fn route(name: &str, path: &str) -> Value {
    json!({
        "apiVersion": "gateway.networking.k8s.io/v1", "kind": "HTTPRoute", "metadata": {"name": name},
        "spec": {"parentRefs": [{"name": "inference"}], "rules": [{
            "matches": [{"path": {"type": "PathPrefix", "value": path}}],
            "backendRefs": [{"group": "inference.networking.k8s.io", "kind": "InferencePool", "name": name}],
        }]},
    })
}

/// The block of this kind in docs/install/istio.md.
pub(crate) fn block_of_the_page(kind: &str) -> Result<String> {
    let text = fs::read_to_string(tools::root().join("docs/install/istio.md"))?;
    let (_, block) = text.split_once(&format!("\n```{kind}\n")).context("no block")?;
    let (block, _) = block.split_once("\n```\n").context("no end of the block")?;
    Ok(block.to_owned())
}

impl Installed {
    pub(crate) async fn new(prefix: &str) -> Self {
        let istio = Istio::shared().await;
        let namespace = istio.cluster().create_namespace(prefix).await.unwrap();
        Self { istio, namespace }
    }

    pub(crate) async fn apply(&self, object: &Value) {
        self.istio.cluster().apply(&self.namespace, &object.to_string()).await.unwrap();
    }

    pub(crate) async fn model_servers(&self, name: &str, replicas: usize) {
        self.apply(&model_servers(name, replicas)).await;
    }

    /// Installs the chart by the page's command with these values, in YAML, and waits until it picks for the
    /// Gateway.
    pub(crate) async fn install(&self, values: &str, gateway: &str) {
        let mut command = block_of_the_page("sh").unwrap();
        let chart = tools::root().join("deploy/chart").display().to_string();
        let namespace = format!("--namespace {}", self.namespace);
        for (text, here) in [(PUBLISHED, &chart), ("--namespace inference", &namespace)] {
            assert!(command.contains(text), "no {text} in {command}");
            command = command.replace(text, here);
        }
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("values.yaml"), values).unwrap();
        let began = Instant::now();
        self.istio.cluster().shell(&format!("cd {}\n{command}", folder.path().display())).await.unwrap();
        self.until_picked(gateway).await;
        println!("{gateway}: picked {:.0?} after the command began", began.elapsed());
    }

    pub(crate) async fn uninstall(&self) {
        let arguments = ["uninstall", RELEASE, "--namespace", &self.namespace, "--wait"];
        self.istio.cluster().helm(arguments).await.unwrap();
    }

    pub(crate) async fn remove(self) {
        self.istio.cluster().delete_namespace(&self.namespace).await.unwrap();
    }

    async fn get(&self, what: &[&str]) -> Result<Value> {
        let get = ["get", "--namespace", &self.namespace, "--output=json"];
        Ok(serde_json::from_str(&self.istio.cluster().kubectl(get.iter().chain(what)).await?)?)
    }

    /// The URL of a path, at the address that the Gateway's status names.
    async fn url(&self, gateway: &str, path: &str) -> Result<String> {
        let object = self.get(&["gateway", gateway]).await?;
        let address = object["status"]["addresses"][0]["value"].as_str();
        Ok(format!("http://{}{path}", address.with_context(|| object["status"].to_string())?))
    }

    /// Waits until the picker has chosen the server of twenty requests in a row, and checks that no client
    /// has.
    async fn until_picked(&self, gateway: &str) {
        let picked = async || -> Result<()> {
            let url = self.url(gateway, "/").await?;
            for _ in 0..20 {
                let request = client::http1().get(&url).header(DESTINATION, "127.0.0.1:1");
                let response = request.send().await?.error_for_status()?;
                let echo: Value = response.json().await?;
                let header = &echo["headers"][DESTINATION];
                let endpoint = header.as_str().context("a request was not picked")?;
                ensure!(endpoint.ends_with(":8000"), "picked {endpoint}");
            }
            Ok(())
        };
        if let Err(reason) = within(FIRST_PICK, picked).await {
            let logs = self.istio.cluster().logs().display();
            panic!("nothing is picked within {FIRST_PICK:?}: {reason}; logs are in {logs}");
        }
    }

    /// The pod that responds to a chat request, which is always the same.
    pub(crate) async fn chat(&self, gateway: &str) -> Result<String> {
        let request = client::http1().post(self.url(gateway, CHAT).await?);
        let body = client::chat(&"the same beginning ".repeat(200));
        let response = request.json(&body).send().await?.error_for_status()?;
        let pod = response.headers().get(SERVED_BY).context("the response names no pod")?;
        Ok(pod.to_str()?.to_owned())
    }

    /// The status of the response to a request without a body.
    pub(crate) async fn status(&self, gateway: &str, path: &str) -> Result<u16> {
        Ok(client::http1().get(self.url(gateway, path).await?).send().await?.status().as_u16())
    }

    /// The addresses of the pods with this label, with a port: `http://10.200.0.2:9095`.
    async fn pods(&self, label: &str, port: u16) -> Result<Vec<String>> {
        let pods = self.get(&["pods", "--selector", label]).await?;
        let pods = pods["items"].as_array().context("no list")?;
        let url = |pod: &Value| {
            Ok(format!("http://{}:{port}", pod["status"]["podIP"].as_str().context("no address")?))
        };
        pods.iter().map(url).collect()
    }

    async fn agents(&self) -> Result<Vec<String>> {
        self.pods("app.kubernetes.io/component=agent", 9095).await
    }

    async fn admin_url(&self, gateway: &str) -> Result<String> {
        let label = format!("gateway.networking.k8s.io/gateway-name={gateway}");
        let proxies = self.pods(&label, 15000).await?;
        let [proxy] = &proxies[..] else { anyhow::bail!("proxies {proxies:?}") };
        Ok(proxy.clone())
    }

    /// The text behind a path of the admin interface of the Gateway's Envoy.
    pub(crate) async fn admin(&self, gateway: &str, path: &str) -> Result<String> {
        let url = format!("{}{path}", self.admin_url(gateway).await?);
        Ok(client::http1().get(url).send().await?.error_for_status()?.text().await?)
    }

    /// Istio's cluster of the pool `chat`, as Envoy has it.
    pub(crate) async fn cluster_of_the_pool(&self, gateway: &str) -> Result<Value> {
        let dump = self.admin(gateway, "/config_dump?resource=dynamic_active_clusters").await?;
        let dump: Value = serde_json::from_str(&dump)?;
        let clusters = dump["configs"].as_array().into_iter().flatten().map(|entry| &entry["cluster"]);
        let mut of_the_pool = clusters.filter(|cluster| {
            cluster["name"].as_str().is_some_and(|name| name.starts_with("outbound|54321||chat-ip-"))
        });
        of_the_pool.next().cloned().with_context(|| format!("no cluster of the pool in {dump}"))
    }

    /// Waits until an agent has taken a report of the proxy, which only the chart's token allows.
    pub(crate) async fn until_reported(&self) {
        eventually("an agent takes the proxy's reports", async || -> Result<()> {
            ensure!(accepted_reports(&self.agents().await?).await? > 0, "no agent has taken a report");
            Ok(())
        })
        .await;
    }

    /// Waits until `metrics-agent doctor` finds no mistake in the gateway's Envoy, with any of the agents.
    pub(crate) async fn until_doctor_finds_nothing(&self, gateway: &str) {
        for agent in self.agents().await.unwrap() {
            eventually("doctor finds nothing", async || -> Result<()> {
                let admin = self.admin_url(gateway).await?;
                doctor_finds_nothing(&admin, &agent).await
            })
            .await;
        }
    }
}
