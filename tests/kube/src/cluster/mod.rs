//! etcd, the API server and controllers, and clients of them.

mod certificates;
mod command_line;
mod crds;
mod processes;

pub use crds::Crds;

use crate::namespace::{HOST_ADDRESS, Namespace};
use anyhow::{Context, Result, ensure};
use certificates::Certificates;
use endpoint_picker_harness::eventually::within;
use endpoint_picker_harness::program::Process;
use http::Request;
use k8s_openapi::api::core::v1::Namespace as KubeNamespace;
use kube::api::{Api, DeleteParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use processes::Ports;
use serde_json::json;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tempfile::TempDir;

/// On a busy machine with two cores the API server has taken 15 s.
const READY_DEADLINE: Duration = Duration::from_secs(90);

/// A running cluster without nodes; it ends when dropped.
///
/// In a [`Namespace`] pods reach the API server at 10.200.0.1; otherwise it listens on loopback only. Its ports are free ones.
#[derive(Debug)]
pub struct Cluster {
    // In the order of their end.
    _controllers: Process,
    api_server: Mutex<ApiServer>,
    _etcd: Process,
    ports: Ports,
    certificates: Certificates,
    logs: PathBuf,
    /// Keys, kubeconfig and etcd's data.
    data: TempDir,
}

#[derive(Debug)]
struct ApiServer {
    /// `None` between [`Cluster::kill_api_server`] and [`Cluster::start_api_server`].
    process: Option<Process>,
    /// How often it was started; each start has a log of its own.
    starts: usize,
}

impl Cluster {
    /// Starts it and waits until it is ready; the programs write their logs into `logs`.
    pub async fn start(logs: &Path) -> Result<Self> {
        fs::create_dir_all(logs).with_context(|| format!("create {}", logs.display()))?;
        let data = match Namespace::current() {
            Some(namespace) => TempDir::new_in(namespace.folder()),
            None => TempDir::new(),
        };
        let data = data.context("a folder for etcd")?;
        let ports = Ports::free()?;
        let certificates = Certificates::write(data.path())?;
        write_kubeconfig(data.path(), ports.api_server, &certificates)?;
        let etcd = processes::start_etcd(ports, data.path(), logs)?;
        let api_server = processes::start_api_server(ports, &certificates, logs, 0)?;
        let controllers = processes::start_controllers(&certificates, data.path(), logs)?;
        let cluster = Self {
            _controllers: controllers,
            api_server: Mutex::new(ApiServer { process: Some(api_server), starts: 1 }),
            _etcd: etcd,
            ports,
            certificates,
            logs: logs.to_owned(),
            data,
        };
        cluster.wait_until_ready().await?;
        Ok(cluster)
    }

    /// A client with all rights, for use in the current runtime.
    pub async fn client(&self) -> Result<Client> {
        let kubeconfig = Kubeconfig::read_from(self.kubeconfig())?;
        let config = Config::from_custom_kubeconfig(kubeconfig, &KubeConfigOptions::default()).await?;
        Ok(Client::try_from(config)?)
    }

    /// The kubeconfig of a user with all rights.
    pub fn kubeconfig(&self) -> PathBuf {
        self.data.path().join("kubeconfig")
    }

    /// The certificate of the authority that signed the API server's.
    pub fn authority(&self) -> &Path {
        &self.certificates.authority
    }

    /// Where pods reach the API server.
    pub fn api_server(&self) -> SocketAddr {
        let ip = if Namespace::current().is_some() { HOST_ADDRESS } else { Ipv4Addr::LOCALHOST };
        SocketAddr::from((ip, self.ports.api_server))
    }

    /// The folder of the programs' logs.
    pub fn logs(&self) -> &Path {
        &self.logs
    }

    /// Creates a namespace with a free name that begins like this.
    pub async fn create_namespace(&self, prefix: &str) -> Result<String> {
        let namespace = json!({"metadata": {"generateName": format!("{prefix}-")}});
        let namespace: KubeNamespace = serde_json::from_value(namespace)?;
        let namespaces: Api<KubeNamespace> = Api::all(self.client().await?);
        let created = namespaces.create(&PostParams::default(), &namespace).await?;
        created.metadata.name.context("a namespace without a name")
    }

    /// Deletes a namespace; its objects go in the background.
    pub async fn delete_namespace(&self, name: &str) -> Result<()> {
        let namespaces: Api<KubeNamespace> = Api::all(self.client().await?);
        namespaces.delete(name, &DeleteParams::default()).await?;
        Ok(())
    }

    /// Ends the API server at once, as a crash would.
    pub fn kill_api_server(&self) {
        if let Some(mut process) = self.current_api_server().process.take() {
            process.kill();
        }
    }

    /// Starts it again, at the same address and with the same objects, and waits until it is ready.
    pub async fn start_api_server(&self) -> Result<()> {
        {
            let mut server = self.current_api_server();
            ensure!(server.process.is_none(), "the API server runs");
            let process =
                processes::start_api_server(self.ports, &self.certificates, &self.logs, server.starts)?;
            *server = ApiServer { process: Some(process), starts: server.starts + 1 };
        }
        self.wait_until_ready().await
    }

    fn current_api_server(&self) -> MutexGuard<'_, ApiServer> {
        self.api_server.lock().expect("no holder of this lock panics")
    }

    async fn wait_until_ready(&self) -> Result<()> {
        let client = self.client().await?;
        let ready = within(READY_DEADLINE, async || {
            if let Some(process) = &mut self.current_api_server().process
                && let Err(ended) = process.check_running()
            {
                return Ok(Err(ended));
            }
            let request = Request::get("/readyz").body(Vec::new())?;
            client.request_text(request).await?;
            anyhow::Ok(Ok(()))
        });
        ready
            .await
            .map_err(anyhow::Error::msg)
            .with_context(|| format!("the API server is not ready; its log is in {}", self.logs.display()))?
    }
}

fn write_kubeconfig(folder: &Path, port: u16, certificates: &Certificates) -> Result<()> {
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": {
            "server": format!("https://127.0.0.1:{port}"),
            "certificate-authority": certificates.authority,
        }}],
        "users": [{"name": "admin", "user": {"token": certificates.admin_token}}],
        "contexts": [{"name": "test", "context": {"cluster": "test", "user": "admin", "namespace": "default"}}],
        "current-context": "test",
    });
    Ok(fs::write(folder.join("kubeconfig"), serde_json::to_vec_pretty(&config)?)?)
}
