//! One cluster with a node, and with a gateway, for all tests of a run, each in Kubernetes namespaces of its
//! own.

use crate::cluster::{Cluster, Crds};
use crate::gateway::EnvoyGateway;
use crate::modules::Modules;
use crate::namespace::Namespace;
use crate::node::{Image, Node};
use crate::programs::program;
use anyhow::{Context, Result};
use endpoint_picker_harness::tools;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU16, Ordering};
use tokio::runtime::Runtime;
use tokio::sync::OnceCell;

/// The agent's path in its image.
pub(crate) const AGENT_PATH: &str = "/usr/local/bin/metrics-agent";

/// The tests' own runtimes end with each of them.
static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Runtime::new().expect("the system has threads for a runtime"));
static SHARED: OnceCell<Result<Ground, String>> = OnceCell::const_new();
static SHARED_WITH_GATEWAY: OnceCell<Result<GatewayGround, String>> = OnceCell::const_new();

/// A cluster with a node.
#[derive(Debug)]
pub struct Ground {
    node: Node,
    cluster: Cluster,
}

/// The same with Envoy Gateway, and all custom resources except Istio's.
#[derive(Debug)]
pub struct GatewayGround {
    gateway: EnvoyGateway,
    modules: Modules,
    ground: Ground,
    next_port: AtomicU16,
}

impl Ground {
    /// The one that all tests of this program share, with all custom resources. It ends with the program's
    /// namespace, not before.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub async fn shared() -> &'static Self {
        let crds = [Crds::EnvoyGateway, Crds::InferenceExtension, Crds::LlmD, Crds::Istio];
        share(&SHARED, async move || Self::start(&logs(), images()?, &crds).await).await
    }

    async fn start(logs: &Path, images: Vec<Image>, crds: &[Crds]) -> Result<Self> {
        let cluster = start_cluster(logs).await?;
        let (node, installed) = tokio::join!(Node::start(&cluster, images), cluster.install(crds));
        installed?;
        Ok(Self { node: node?, cluster })
    }

    /// The cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.cluster
    }

    /// The node.
    pub fn node(&self) -> &Node {
        &self.node
    }
}

impl GatewayGround {
    /// The one that all tests of this program share. It ends with the program's namespace, not before.
    ///
    /// # Panics
    ///
    /// When it does not start.
    pub async fn shared() -> &'static Self {
        share(&SHARED_WITH_GATEWAY, async || Self::start(&logs()).await).await
    }

    /// Starts one; logs replace those in the folder `logs`.
    pub async fn start(logs: &Path) -> Result<Self> {
        let mut images = images()?;
        images.push(Image::new("epp", program("epp")?, "/epp"));
        let ground = Ground::start(logs, images, &[Crds::InferenceExtension, Crds::LlmD]).await?;
        let (gateway, modules) = tokio::join!(EnvoyGateway::start(&ground.cluster), Modules::serve());
        Ok(Self { gateway: gateway?, modules: modules?, ground, next_port: AtomicU16::new(20_000) })
    }

    /// The cluster.
    pub fn cluster(&self) -> &Cluster {
        &self.ground.cluster
    }

    /// The node.
    pub fn node(&self) -> &Node {
        &self.ground.node
    }

    /// Envoy Gateway.
    pub fn gateway(&self) -> &EnvoyGateway {
        &self.gateway
    }

    /// The server of the wasm module.
    pub fn modules(&self) -> &Modules {
        &self.modules
    }

    /// A port for a listener of a Gateway; Envoys listen on it at every address of the namespace.
    pub fn free_port(&self) -> u16 {
        self.next_port.fetch_add(1, Ordering::Relaxed)
    }

    /// The URL of a listener with this port.
    pub fn url(&self, port: u16, path: &str) -> String {
        format!("http://{}:{port}{path}", Ipv4Addr::LOCALHOST)
    }
}

/// Starts what all tests of this program share, at the first call, in a runtime that no test ends.
pub(crate) async fn share<T: Send + Sync + 'static>(
    shared: &'static OnceCell<Result<T, String>>,
    start: impl AsyncFnOnce() -> Result<T> + Send + 'static,
) -> &'static T {
    let start = || {
        RUNTIME.block_on(shared.get_or_init(async || start().await.map_err(|reason| format!("{reason:?}"))))
    };
    let started = tokio::task::spawn_blocking(start).await.expect("the start does not panic");
    started.as_ref().unwrap_or_else(|reason| panic!("the test ground did not start: {reason}"))
}

/// The folder of the logs. Its name has the program's, since programs follow each other.
pub(crate) fn logs() -> PathBuf {
    let program = std::env::current_exe().ok();
    let program = program.as_deref().and_then(Path::file_stem).unwrap_or_default();
    tools::root().join("tests/logs/kube").join(program)
}

/// Starts a cluster; its logs replace those in the folder `logs`.
pub(crate) async fn start_cluster(logs: &Path) -> Result<Cluster> {
    Namespace::required()?;
    if logs.exists() {
        fs::remove_dir_all(logs).with_context(|| format!("remove {}", logs.display()))?;
    }
    Cluster::start(logs).await
}

/// The images of the project, with the paths that its Dockerfile gives them.
pub(crate) fn images() -> Result<Vec<Image>> {
    let image =
        |name, package, path| -> Result<Image> { Ok(Image::new(name, tools::built(name, package)?, path)) };
    Ok(vec![
        image("metrics-agent", "metrics-agent", AGENT_PATH)?,
        image(
            "endpoint-picker-model-server",
            "endpoint-picker-model-server",
            "/usr/local/bin/endpoint-picker-model-server",
        )?,
    ])
}
