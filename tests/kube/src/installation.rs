//! The chart, installed by helm as a user installs it, with model servers, a Gateway and one form of the
//! filter.

#![expect(clippy::unwrap_used, clippy::missing_panics_doc, reason = "a test fails by panicking")]

use crate::gateway::EnvoyGateway;
use crate::ground::GatewayGround;
use crate::token::ProxyToken;
use anyhow::{Context, Result, bail, ensure};
use endpoint_picker_harness::eventually::{eventually, within};
use endpoint_picker_harness::{Filter, client, tools};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, ListParams, Patch, PatchParams};
use reqwest::StatusCode;
use serde_json::{Value, json};
use std::net::SocketAddr;
use std::time::Duration;
use tokio::process::Command;

/// The name of the pool, and of the release.
pub const POOL: &str = "chat";
/// The label of the model servers' pods, which the pool selects.
const SERVERS: &str = "app=model-server";

/// From the installation to the first pick. An Envoy that could not fetch the wasm module from Envoy Gateway
/// tries again after up to 30 s.
const FIRST_PICK: Duration = Duration::from_secs(180);

/// The readiness gate of the model servers' pods: tests make them unready by it, without an effect on the
/// programs.
const GATE: &str = "test/serves";

/// An installed chart, in a Kubernetes namespace of its own. Its methods panic when the cluster does not do
/// what they ask for.
#[derive(Debug)]
pub struct Installation<'a> {
    ground: &'a GatewayGround,
    namespace: String,
    port: u16,
    token: ProxyToken,
}

impl<'a> Installation<'a> {
    /// Installs the chart with this many model servers and waits until the filter picks.
    pub async fn new(ground: &'a GatewayGround, filter: Filter, servers: usize) -> Self {
        Self::with_values(ground, filter, servers, &json!({})).await
    }

    /// The same with further values of the chart.
    pub async fn with_values(
        ground: &'a GatewayGround,
        filter: Filter,
        servers: usize,
        values: &Value,
    ) -> Self {
        let namespace = ground.cluster().create_namespace(&filter.to_string()).await.unwrap();
        let token = ProxyToken::create(ground.cluster(), &namespace).await.unwrap();
        let installation = Self { ground, namespace, port: ground.free_port(), token };
        installation.apply(&model_servers(servers)).await;
        installation.install(filter, values).await;
        installation.until_ready(servers).await;
        installation.until_picked().await;
        installation
    }

    async fn install(&self, filter: Filter, more: &Value) {
        let module = match filter {
            Filter::Wasm => {
                let modules = self.ground.modules();
                json!({"url": modules.url(), "sha256": modules.sha256().await.unwrap()})
            }
            Filter::Native => json!({"path": filter.module().unwrap()}),
        };
        let values = json!({
            "gateway": {
                "kind": "envoy-gateway",
                "form": filter.to_string(),
                "port": self.port,
                "module": module,
                "proxy": EnvoyGateway::proxy_settings(),
                "tokenFolder": self.token.folder(),
            },
            "agent": {"token": {"secret": ProxyToken::SECRET}},
            "pools": [{
                "name": POOL,
                "selector": {"app": "model-server"},
                "targetPorts": [8000],
                "create": true,
            }],
        });
        let folder = tempfile::tempdir().unwrap();
        let [values, more] = [("values.json", &values), ("more.json", more)].map(|(name, values)| {
            let path = folder.path().join(name);
            std::fs::write(&path, values.to_string()).unwrap();
            format!("--values={}", path.display())
        });
        let chart = tools::root().join("deploy/chart").display().to_string();
        let arguments = [
            "install",
            POOL,
            &chart,
            "--namespace",
            &self.namespace,
            &values,
            &more,
            "--wait",
            "--timeout=60s",
        ];
        self.ground.cluster().helm(arguments).await.unwrap();
    }

    /// Uninstalls the chart; the model servers stay.
    pub async fn uninstall(&self) {
        self.ground
            .cluster()
            .helm(["uninstall", POOL, "--namespace", &self.namespace, "--wait"])
            .await
            .unwrap();
    }

    /// Uninstalls the chart and deletes the namespace.
    pub async fn remove(self) {
        self.uninstall().await;
        self.ground.cluster().delete_namespace(&self.namespace).await.unwrap();
    }

    /// The Kubernetes namespace.
    pub fn namespace(&self) -> &str {
        &self.namespace
    }

    /// The Gateway's URL for this path.
    pub fn url(&self, path: &str) -> String {
        self.ground.url(self.port, path)
    }

    /// Applies manifests to its namespace.
    pub async fn apply(&self, manifests: &Value) {
        self.ground.cluster().apply(&self.namespace, &manifests.to_string()).await.unwrap();
    }

    /// Runs kubectl in its namespace.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String> {
        self.ground.cluster().kubectl(["--namespace", &self.namespace].iter().chain(arguments)).await
    }

    /// Its pods.
    pub async fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.ground.cluster().client().await.unwrap(), &self.namespace)
    }

    /// The pods that the pool selects and that are not terminating.
    pub async fn servers(&self) -> Vec<Pod> {
        let pods = self.pods().await.list(&ListParams::default().labels(SERVERS)).await.unwrap().items;
        pods.into_iter().filter(|pod| pod.metadata.deletion_timestamp.is_none()).collect()
    }

    /// Sets the number of model servers.
    pub async fn scale(&self, servers: usize) {
        self.kubectl(&["scale", "deployment/servers", &format!("--replicas={servers}")]).await.unwrap();
    }

    /// Makes a pod ready, or unready.
    pub async fn set_gate(&self, pod: &str, holds: bool) {
        let status = if holds { "True" } else { "False" };
        let patch = json!({"status": {"conditions": [{"type": GATE, "status": status}]}});
        self.pods().await.patch_status(pod, &PatchParams::default(), &Patch::Strategic(patch)).await.unwrap();
    }

    /// Opens the gates of new pods until this many are ready; returns their names.
    pub async fn until_ready(&self, count: usize) -> Vec<String> {
        eventually(&format!("{count} model servers are ready"), async || {
            let servers = self.servers().await;
            for server in servers.iter().filter(|server| condition(server, GATE).is_none()) {
                self.set_gate(name(server), true).await;
            }
            let ready: Vec<_> =
                servers.iter().filter(|server| is_ready(server)).map(name).map(str::to_owned).collect();
            if ready.len() == count && servers.len() == count {
                Ok(ready)
            } else {
                Err(format!("{servers:?}"))
            }
        })
        .await
    }

    /// Waits until the filter has picked the server of twenty requests in a row.
    pub async fn until_picked(&self) {
        let picked = async || -> Result<()> {
            for _ in 0..20 {
                let answer = client::http1().get(self.url("/")).send().await?.error_for_status()?;
                let echo: Value = answer.json().await?;
                let header = &echo["headers"]["x-gateway-destination-endpoint"];
                let endpoint = header.as_str().context("a request was not picked")?;
                ensure!(endpoint.parse::<SocketAddr>().is_ok(), "picked {endpoint}");
            }
            Ok(())
        };
        if let Err(reason) = within(FIRST_PICK, picked).await {
            let refused = self.refused().await.unwrap_or_else(|reason| format!("{reason:#}"));
            let logs = self.ground.cluster().logs().display();
            let log = self.ground.gateway().log().unwrap_or_else(|reason| format!("{reason:#}"));
            let lines: Vec<_> = log.lines().collect();
            let last = lines[lines.len().saturating_sub(60)..].join("\n");
            panic!(
                "the filter does not pick within {FIRST_PICK:?}: {reason}; logs are in {logs}; conditions that do not hold:\n{refused}\n\
                 the end of Envoy Gateway's log:\n{last}"
            );
        }
    }

    /// Waits until no agent has the pod for a candidate.
    pub async fn until_no_candidate(&self, pod: &str) {
        let urls = self.agents().await;
        let name = format!("{}/{pod}", self.namespace);
        eventually(&format!("no agent has {name} for a candidate"), async || -> Result<()> {
            for url in &urls {
                let status = client::http1().get(format!("{url}/v1/pools/{}%2F{POOL}", self.namespace));
                let status: Value = status.send().await?.error_for_status()?.json().await?;
                let endpoints = status["endpoints"].as_array().context("no endpoints")?;
                let is_of_pod =
                    |endpoint: &&Value| endpoint["name"].as_str().is_some_and(|it| it.starts_with(&name));
                for endpoint in endpoints.iter().filter(is_of_pod) {
                    ensure!(endpoint["state"] == "not_ready", "{url}: {endpoint}");
                }
            }
            Ok(())
        })
        .await;
    }

    /// Waits until an agent has taken a report of the proxy, which only the token allows, and checks that it
    /// takes none without.
    pub async fn until_reported(&self) {
        let urls = self.agents().await;
        eventually("an agent takes the proxy's reports", async || -> Result<()> {
            ensure!(accepted_reports(&urls).await? > 0, "no agent has taken a report");
            Ok(())
        })
        .await;
        for url in &urls {
            let pool = format!("{}%2F{POOL}", self.namespace);
            let report = client::http1().post(format!("{url}/v1/pools/{pool}/report")).send().await.unwrap();
            assert_eq!(report.status(), StatusCode::UNAUTHORIZED, "{url}");
        }
    }

    /// The URLs of the agents.
    async fn agents(&self) -> Vec<String> {
        let agents = ListParams::default().labels("app.kubernetes.io/component=agent");
        let agents = self.pods().await.list(&agents).await.unwrap().items;
        let addresses = agents.iter().filter_map(|pod| pod.status.as_ref()?.pod_ip.as_deref());
        addresses.map(|ip| format!("http://{ip}:9095")).collect()
    }

    /// Waits until `metrics-agent doctor` finds no mistake in the gateway's Envoy, with any of the agents.
    pub async fn until_doctor_finds_nothing(&self) {
        for agent in self.agents().await {
            eventually("doctor finds nothing", async || -> Result<()> {
                let admin = self.admin().await?.to_string();
                doctor_finds_nothing(&admin, &agent).await
            })
            .await;
        }
    }

    /// The admin interface of the Envoy that listens on its port.
    async fn admin(&self) -> Result<SocketAddr> {
        for admin in self.ground.gateway().admins()? {
            let Ok(response) = client::http1().get(format!("http://{admin}/listeners")).send().await else {
                continue;
            };
            let listeners = response.error_for_status()?.text().await?;
            if listeners.lines().any(|line| line.ends_with(&format!(":{}", self.port))) {
                return Ok(admin);
            }
        }
        bail!("no Envoy listens on {}", self.port)
    }

    /// The conditions of the gateway's objects that do not hold, one a line.
    async fn refused(&self) -> Result<String> {
        let kinds = "gateways,httproutes,envoyextensionpolicies,envoypatchpolicies,backendtrafficpolicies,clienttrafficpolicies";
        let objects: Value = serde_json::from_str(&self.kubectl(&["get", kinds, "--output=json"]).await?)?;
        let mut lines = Vec::new();
        for object in objects["items"].as_array().context("no list")? {
            let parents = ["parents", "ancestors"].map(|field| object["status"][field].as_array());
            let parents = parents.into_iter().flatten().flatten().chain([&object["status"]]);
            for condition in parents.filter_map(|parent| parent["conditions"].as_array()).flatten() {
                if condition["status"] != "True" {
                    lines.push(format!("{} {}: {condition}", object["kind"], object["metadata"]["name"]));
                }
            }
        }
        Ok(lines.join("\n"))
    }
}

/// Fails unless `metrics-agent doctor` finds no mistake with the admin interface of an Envoy and this agent.
pub async fn doctor_finds_nothing(admin: &str, agent: &str) -> Result<()> {
    let mut command = Command::new(tools::metrics_agent()?);
    command.args(["doctor", "--envoy-admin", admin, "--agent", agent]);
    let output = command.kill_on_drop(true).output().await?;
    let [text, errors] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
    ensure!(output.status.success() && text.ends_with("\nno mistakes found\n"), "{text}{errors}");
    Ok(())
}

/// How many reports agents have taken, by their metrics at addresses such as `http://10.200.1.2:9095`.
pub async fn accepted_reports(agents: &[String]) -> Result<u64> {
    let mut metrics = String::new();
    for agent in agents {
        metrics += &client::http1().get(format!("{agent}/metrics")).send().await?.text().await?;
    }
    let accepted = metrics.lines().filter_map(|line| {
        line.strip_prefix("metrics_agent_reports_total{outcome=\"accepted\"} ")?.parse::<u64>().ok()
    });
    Ok(accepted.sum())
}

fn name(pod: &Pod) -> &str {
    pod.metadata.name.as_deref().unwrap_or_default()
}

fn condition<'a>(pod: &'a Pod, name: &str) -> Option<&'a str> {
    let mut conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.find(|condition| condition.type_ == name).map(|condition| condition.status.as_str())
}

fn is_ready(pod: &Pod) -> bool {
    condition(pod, "Ready") == Some("True")
}

fn model_servers(replicas: usize) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "servers"},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"set": "servers"}},
            "template": {
                "metadata": {"labels": {"set": "servers", "app": "model-server"}},
                "spec": {
                    "terminationGracePeriodSeconds": 10,
                    "readinessGates": [{"conditionType": GATE}],
                    "containers": [{
                        "name": "server", "image": "endpoint-picker-model-server",
                        "ports": [{"name": "http", "containerPort": 8000}],
                        "readinessProbe": {"httpGet": {"path": "/metrics", "port": "http"}, "periodSeconds": 1},
                    }],
                },
            },
        },
    })
}
