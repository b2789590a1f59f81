//! Envoy Gateway: it reads the API server, writes its status there, and runs an Envoy for each Gateway: as
//! its child, or as a pod.

use crate::cluster::{Cluster, Crds};
use crate::namespace::Namespace;
use crate::programs::program;
use anyhow::{Context, Result, ensure};
use endpoint_picker_harness::eventually::within;
use endpoint_picker_harness::program::Process;
use endpoint_picker_harness::{client, tools};
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use serde_json::{Value, json};
use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// The namespace of Envoy Gateway, which its certificates are made for. Pods of Envoys are there too.
pub(crate) const SYSTEM: &str = "envoy-gateway-system";
/// Its default port of health checks.
const READY: &str = "http://127.0.0.1:8081/readyz";
const READY_DEADLINE: Duration = Duration::from_secs(60);

/// The version of Envoy that proxies ask for. It names a folder: what is in it is the Envoy of `make tools`.
const ENVOY_VERSION: &str = "1.40.0";

/// A running Envoy Gateway; it ends when dropped, and Envoys that are its children with it. Those need
/// [`EnvoyGateway::proxy_settings`].
///
/// Its ports and the folder of its certificates are fixed, so there is one in each [`Namespace`].
#[derive(Debug)]
pub struct EnvoyGateway {
    process: Process,
    folder: PathBuf,
    kubeconfig: PathBuf,
    logs: PathBuf,
    starts: usize,
}

impl EnvoyGateway {
    /// Fields of `spec` that an `EnvoyProxy` needs where Envoy is a process of this machine: several of them
    /// share no memory for hot restarts.
    pub fn proxy_settings() -> Value {
        json!({
            "provider": {"type": "Host", "host": {"envoyVersion": ENVOY_VERSION}},
            "extraArgs": ["--disable-hot-restart"],
        })
    }

    /// Installs its custom resources and starts it on this cluster, with Envoys as its children.
    pub async fn start(cluster: &Cluster) -> Result<Self> {
        let folder = prepare(cluster).await?;
        let programs = folder.join("data/envoy-versions").join(ENVOY_VERSION).join("bin");
        fs::create_dir_all(&programs)?;
        // A version that is there is not downloaded.
        symlink(tools::envoy()?, programs.join("envoy"))?;
        let provider = json!({"type": "Custom", "custom": {
            "resource": {"type": "Kubernetes", "kubernetes": {"leaderElection": {"disable": true}}},
            "infrastructure": {"type": "Host", "host": {
                "configHome": folder.join("config"),
                "dataHome": folder.join("data"),
                "stateHome": folder.join("state"),
                "runtimeDir": folder.join("run"),
            }},
        }});
        Self::run(cluster, folder, &json!({"provider": provider})).await
    }

    /// Starts it with Envoys as pods, and with these values of its own chart. [`EnvoyGateway::prepare`] comes
    /// before.
    pub async fn start_with_values(cluster: &Cluster, values: &Value) -> Result<Self> {
        let values = values.as_object().into_iter().flatten();
        let mut config = json!({"provider": {
            "type": "Kubernetes", "kubernetes": {
                "leaderElection": {"disable": true},
                // As in its chart.
                "shutdownManager": {"image": "docker.io/envoyproxy/gateway:v1.9.1"},
            },
        }});
        for (name, value) in values {
            ensure!(name == "config", "value {name:?} has no meaning without its chart");
            for (name, value) in value["envoyGateway"].as_object().into_iter().flatten() {
                config[name] = value.clone();
            }
        }
        let folder = Namespace::required()?.folder().join("envoy-gateway");
        Self::run(cluster, folder, &config).await
    }

    /// Installs its custom resources and makes its certificates.
    pub async fn prepare(cluster: &Cluster) -> Result<()> {
        prepare(cluster).await.map(drop)
    }

    async fn run(cluster: &Cluster, folder: PathBuf, config: &Value) -> Result<Self> {
        let mut settings = json!({
            "apiVersion": "gateway.envoyproxy.io/v1alpha1",
            "kind": "EnvoyGateway",
            "gateway": {"controllerName": "gateway.envoyproxy.io/gatewayclass-controller"},
            "logging": {"level": {"default": "info"}},
            "extensionApis": {"enableBackend": true, "enableEnvoyPatchPolicy": true},
        });
        for (name, value) in config.as_object().into_iter().flatten() {
            settings[name] = value.clone();
        }
        fs::write(folder.join("envoy-gateway.yaml"), serde_json::to_vec_pretty(&settings)?)?;
        let (kubeconfig, logs) = (cluster.kubeconfig(), cluster.logs().to_owned());
        let process = spawn(&folder, &kubeconfig, &logs, 0)?;
        let mut gateway = Self { process, folder, kubeconfig, logs, starts: 1 };
        gateway.until_ready().await?;
        Ok(gateway)
    }

    /// Ends it at once, as a crash would. Envoys that are pods stay.
    pub fn kill(&mut self) {
        self.process.kill();
    }

    /// Starts it again.
    pub async fn start_again(&mut self) -> Result<()> {
        self.process = spawn(&self.folder, &self.kubeconfig, &self.logs, self.starts)?;
        self.starts += 1;
        self.until_ready().await
    }

    /// Starts it again with a changed configuration.
    pub async fn start_again_with(&mut self, change: impl FnOnce(&mut Value)) -> Result<()> {
        self.kill();
        let file = self.folder.join("envoy-gateway.yaml");
        let mut settings: Value = serde_json::from_slice(&fs::read(&file)?)?;
        change(&mut settings);
        fs::write(&file, serde_json::to_vec_pretty(&settings)?)?;
        self.start_again().await
    }

    async fn until_ready(&mut self) -> Result<()> {
        let ready = within(READY_DEADLINE, async || {
            if let Err(ended) = self.process.check_running() {
                return Ok(Err(ended));
            }
            client::http1().get(READY).send().await?.error_for_status()?;
            anyhow::Ok(Ok(()))
        });
        ready.await.map_err(anyhow::Error::msg).context("Envoy Gateway is not ready")?
    }

    /// Its log and those of its children.
    pub fn log(&self) -> Result<String> {
        self.process.output()
    }

    /// The admin interfaces of the Envoys that are its children, also of those that have ended.
    pub fn admins(&self) -> Result<Vec<SocketAddr>> {
        let mut admins = Vec::new();
        for entry in fs::read_dir(self.folder.join("run"))? {
            let file = entry?.path().join("admin-address.txt");
            admins.extend(
                fs::read_to_string(file).ok().and_then(|text| text.trim().parse::<SocketAddr>().ok()),
            );
        }
        Ok(admins)
    }

    /// The id of its process; Envoys that are its children are below it.
    pub fn process_id(&self) -> u32 {
        self.process.id()
    }
}

/// Installs what it needs before its start; returns its folder.
async fn prepare(cluster: &Cluster) -> Result<PathBuf> {
    let namespace = Namespace::required()?;
    let folder = namespace.folder().join("envoy-gateway");
    cluster.install(&[Crds::EnvoyGateway]).await?;
    cluster.kubectl(["create", "namespace", SYSTEM]).await?;
    make_certificates(cluster, &namespace, &folder).await?;
    Ok(folder)
}

fn spawn(folder: &Path, kubeconfig: &Path, logs: &Path, attempt: usize) -> Result<Process> {
    let mut command = Command::new(program("envoy-gateway")?);
    command.arg("server").arg("--config-path").arg(folder.join("envoy-gateway.yaml"));
    // It keeps wasm modules in a folder of its home.
    command.env("KUBECONFIG", kubeconfig).env("HOME", folder);
    // Where Envoys that are its children find the native module.
    command.env("ENVOY_DYNAMIC_MODULES_SEARCH_PATH", tools::root().join("target"));
    Process::start("envoy-gateway", command, &logs.join(format!("envoy-gateway-{attempt}.log")))
}

/// Lets it make its certificates and puts them where it and its Envoys read them.
async fn make_certificates(cluster: &Cluster, namespace: &Namespace, folder: &Path) -> Result<()> {
    let mut command = tokio::process::Command::new(program("envoy-gateway")?);
    command.args(["certgen", "--disable-topology-injector"]).env("KUBECONFIG", cluster.kubeconfig());
    let output = command.kill_on_drop(true).output().await?;
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "envoy-gateway certgen: {errors}");
    let secrets: Api<Secret> = Api::namespaced(cluster.client().await?, SYSTEM);
    let of_envoy = folder.join("config/certs/envoy");
    fs::create_dir_all(&of_envoy)?;
    for (name, target) in [("envoy-gateway", namespace.certificates()), ("envoy", of_envoy)] {
        let secret = secrets.get(name).await.with_context(|| format!("Secret {name}"))?;
        for (file, content) in secret.data.into_iter().flatten() {
            fs::write(target.join(file), content.0)?;
        }
    }
    Ok(())
}
