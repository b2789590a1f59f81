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
/// In a [`Namespace`] pods reach the API server at 10.200.0.1; otherwise it listens on loopback only. Its
/// ports are free ones.
#[derive(Debug)]
pub struct Cluster {
    // In the order of their end.
    control_plane: Mutex<ControlPlane>,
    _etcd: Process,
    ports: Ports,
    certificates: Certificates,
    logs: PathBuf,
    /// Keys, kubeconfig and etcd's data.
    data: TempDir,
}

#[derive(Debug)]
struct ControlPlane {
    /// `None` between [`Cluster::kill_api_server`] and [`Cluster::start_api_server`].
    running: Option<Running>,
    /// How often it was started; each start has logs of its own.
    starts: usize,
}

#[derive(Debug)]
struct Running {
    // In the order of their end.
    _controllers: Process,
    api_server: Process,
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
        let cluster = Self {
            control_plane: Mutex::new(ControlPlane { running: None, starts: 0 }),
            _etcd: etcd,
            ports,
            certificates,
            logs: logs.to_owned(),
            data,
        };
        cluster.start_api_server().await?;
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

    /// Ends the API server at once, as a crash would. The controllers end with it, as those that cannot renew
    /// their lease do.
    pub fn kill_api_server(&self) {
        if let Some(mut running) = self.control_plane().running.take() {
            running.api_server.kill();
        }
    }

    /// Starts it again, at the same address and with the same objects, and waits until it is ready. The
    /// controllers are new: those that have lost it for long would wait for up to a minute before they try
    /// again.
    pub async fn start_api_server(&self) -> Result<()> {
        {
            let mut plane = self.control_plane();
            ensure!(plane.running.is_none(), "the API server runs");
            let (certificates, logs, starts) = (&self.certificates, &self.logs, plane.starts);
            let api_server = processes::start_api_server(self.ports, certificates, logs, starts)?;
            let controllers = processes::start_controllers(certificates, self.data.path(), logs, starts)?;
            *plane = ControlPlane {
                running: Some(Running { _controllers: controllers, api_server }),
                starts: starts + 1,
            };
        }
        self.wait_until_ready().await
    }

    fn control_plane(&self) -> MutexGuard<'_, ControlPlane> {
        self.control_plane.lock().expect("no holder of this lock panics")
    }

    async fn wait_until_ready(&self) -> Result<()> {
        let client = self.client().await?;
        let ready = within(READY_DEADLINE, async || {
            if let Some(running) = &mut self.control_plane().running
                && let Err(ended) = running.api_server.check_running()
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
