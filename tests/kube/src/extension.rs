//! Envoy Gateway with the agents of a release as its extension server, installed as
//! docs/install/envoy-gateway.md has it: routes lead to `InferencePool`s, and proxies are pods.

use crate::cluster::{Cluster, Crds};
use crate::gateway::{EnvoyGateway, SYSTEM};
use crate::ground::{AGENT_PATH, images, logs, share, start_cluster};
use crate::next_version::NextVersion;
use crate::node::{Image, Node};
use crate::programs::{ai_gateway, conformance, program};
use crate::registry::PublishedChart;
use anyhow::{Context, Result, bail};
use endpoint_picker_harness::eventually::within;
use endpoint_picker_harness::{Filter, tools};
use serde_json::{Value, json};
use std::fs;
use std::net::Ipv4Addr;
use std::path::Path;
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio::sync::{Mutex, MutexGuard, OnceCell};

/// The namespace of the proxies' pods.
pub const PROXIES: &str = SYSTEM;
/// Release and namespace, as the page has them.
const RELEASE: &str = "endpoint-picker";
const NAMESPACE: &str = "inference";
/// The Deployment of the agents.
const AGENTS: &str = "deployment/endpoint-picker";
/// The module's path in its image.
const NATIVE_PATH: &str = "/libendpoint_picker.so";
/// From a Gateway to the readiness of its Envoy.
const PROGRAMMED: Duration = Duration::from_secs(120);

static SHARED: OnceCell<Result<Extension, String>> = OnceCell::const_new();

/// A cluster with a node, the chart and Envoy Gateway.
#[derive(Debug)]
pub struct Extension {
    gateway: Mutex<EnvoyGateway>,
    _node: Node,
    cluster: Cluster,
}

impl Extension {
    /// The one that all tests of this program share; see [`Ground::shared`](crate::Ground::shared).
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub async fn shared() -> &'static Self {
        share(&SHARED, async || Self::start(&logs()).await).await
    }

    /// Starts one; logs replace those in the folder `logs`.
    pub async fn start(logs: &Path) -> Result<Self> {
        let mut all = images()?;
        all.extend(further_images()?);
        let cluster = start_cluster(logs).await?;
        let (prepared, node, installed) = tokio::join!(
            EnvoyGateway::prepare(&cluster),
            Node::start(&cluster, all),
            cluster.install(&[Crds::InferenceExtension, Crds::LlmD]),
        );
        prepared?;
        installed?;
        let node = node?;
        cluster.upgrade_pools().await?;
        let began = Instant::now();
        helm(&cluster, "install", &shipped_chart(), &json!({})).await?;
        let get = ["get", "configmap", "endpoint-picker-envoy-gateway", "--namespace", NAMESPACE];
        let values =
            cluster.kubectl(get.into_iter().chain(["--output=jsonpath={.data.values\\.yaml}"])).await?;
        let values: Value =
            serde_saphyr::from_str(&values).context("the values for Envoy Gateway's chart")?;
        let gateway = EnvoyGateway::start_with_values(&cluster, &values).await?;
        eprintln!("the chart and Envoy Gateway are ready {:.0?} after the first command", began.elapsed());
        Ok(Self { gateway: Mutex::new(gateway), _node: node, cluster })
    }

    /// The cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// Envoy Gateway.
    pub async fn gateway(&self) -> MutexGuard<'_, EnvoyGateway> {
        self.gateway.lock().await
    }

    /// The name of the `GatewayClass` whose Envoys have the module.
    pub fn class(&self) -> String {
        format!("{NAMESPACE}-{RELEASE}")
    }

    /// Upgrades the release to these further values.
    pub async fn upgrade(&self, values: &Value) -> Result<()> {
        helm(&self.cluster, "upgrade", &shipped_chart(), values).await
    }

    /// Upgrades the release to a chart of a registry, and waits until the agents are its.
    pub async fn upgrade_to(&self, chart: &PublishedChart) -> Result<()> {
        helm(&self.cluster, "upgrade", &chart.arguments(), &json!({})).await
    }

    /// Rolls the release back to the state before the last upgrade, and waits until the agents have it.
    pub async fn roll_back(&self) -> Result<()> {
        let rollback = ["rollback", RELEASE, "--namespace", NAMESPACE, "--wait", "--timeout=90s"];
        self.cluster.helm(rollback).await.map(drop)
    }

    /// Gives the agents a further flag, which no value of the chart can set, and waits until all have it.
    pub async fn add_flag(&self, flag: &str) -> Result<()> {
        let patch = json!([{"op": "add", "path": "/spec/template/spec/containers/0/args/-", "value": flag}])
            .to_string();
        let of_agents = ["--namespace", NAMESPACE];
        let change = ["patch", AGENTS, "--type=json", "--patch", &patch];
        self.cluster.kubectl(change.iter().chain(&of_agents)).await?;
        let wait = ["rollout", "status", AGENTS, "--timeout=90s"];
        self.cluster.kubectl(wait.iter().chain(&of_agents)).await?;
        Ok(())
    }

    /// Sets the number of agents, and waits until they are ready or gone.
    pub async fn scale_agents(&self, count: usize) -> Result<()> {
        let scale = ["scale", AGENTS, &format!("--replicas={count}"), "--namespace", NAMESPACE];
        self.cluster.kubectl(scale).await?;
        let agents = ["--namespace", NAMESPACE, "--selector=app.kubernetes.io/component=agent"];
        let wait: &[&str] = match count {
            0 => &["wait", "pods", "--for=delete", "--timeout=60s"],
            _ => &["wait", "pods", "--for=condition=Ready", "--timeout=60s"],
        };
        let ready = within(PROGRAMMED, async || self.cluster.kubectl(wait.iter().chain(&agents)).await);
        ready.await.map_err(anyhow::Error::msg)?;
        Ok(())
    }

    /// The address of a Gateway's Envoy, once it is there.
    pub async fn address(&self, namespace: &str, gateway: &str) -> Result<Ipv4Addr> {
        let get = ["get", "gateway", gateway, "--namespace", namespace, "--output=json"];
        let address = within(PROGRAMMED, async || {
            let object: Value = serde_json::from_str(&self.cluster.kubectl(get).await?)?;
            let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
            let mut programmed = conditions.filter(|condition| condition["type"] == "Programmed");
            if !programmed.any(|condition| condition["status"] == "True") {
                bail!("{}", object["status"]);
            }
            object["status"]["addresses"][0]["value"]
                .as_str()
                .context("no address")?
                .parse()
                .context("an address")
        });
        address
            .await
            .map_err(anyhow::Error::msg)
            .with_context(|| format!("Gateway {gateway} is not programmed"))
    }
}

/// The chart of this checkout, for helm.
fn shipped_chart() -> Vec<String> {
    vec![tools::root().join("deploy/chart").display().to_string()]
}

/// Installs or upgrades the release, by the arguments that name the chart.
async fn helm(cluster: &Cluster, command: &str, chart: &[String], values: &Value) -> Result<()> {
    let own = json!({
        "gateway": {
            "kind": "envoy-gateway", "form": "native", "extension": true, "create": false,
            // Several Envoys share the memory of this machine, which hot restarts use.
            "proxy": {"extraArgs": ["--disable-hot-restart"]},
        },
        "watch": {"namespaces": ["*"]},
    });
    let folder = TempDir::new()?;
    let mut arguments: Vec<String> = [command, RELEASE].map(str::to_owned).into();
    arguments.extend_from_slice(chart);
    arguments.extend(
        ["--namespace", NAMESPACE, "--create-namespace", "--wait", "--timeout=90s"].map(str::to_owned),
    );
    for (name, values) in [("own.json", &own), ("more.json", values)] {
        let file = folder.path().join(name);
        fs::write(&file, values.to_string())?;
        arguments.push(format!("--values={}", file.display()));
    }
    cluster.helm(arguments).await?;
    Ok(())
}

/// The images of proxies, of the conformance suite, of Envoy AI Gateway, and of the next version, as far as
/// they are built.
fn further_images() -> Result<Vec<Image>> {
    let mut images = vec![
        Image::new("envoy", tools::envoy()?, "/usr/local/bin/envoy"),
        Image::new("gateway", program("envoy-gateway")?, "/usr/local/bin/envoy-gateway"),
        Image::new("endpoint-picker-native", Filter::Native.module()?, NATIVE_PATH),
    ];
    if let (Ok(echo), Ok(epp)) = (conformance("bin/echo-basic"), conformance("bin/lwepp")) {
        images.push(Image::new("echo-basic", echo, "/echo-basic"));
        images.push(Image::new("lwepp", epp, "/lwepp"));
    }
    if let (Ok(controller), Ok(processor)) = (ai_gateway("bin/controller"), ai_gateway("bin/extproc")) {
        images.push(Image::new("ai-gateway-controller", controller, "/app"));
        images.push(Image::new("ai-gateway-extproc", processor, "/app"));
    }
    if let Ok(next) = NextVersion::built() {
        let image = |name| format!("{name}:{}", next.version());
        images.push(Image::new(image("metrics-agent"), next.agent(), AGENT_PATH));
        images.push(Image::new(image("endpoint-picker-native"), next.native_module(), NATIVE_PATH));
    }
    Ok(images)
}
