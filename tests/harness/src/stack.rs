//! Model servers, metrics agent and Envoy: started together, stopped together.

mod builder;

pub use builder::Builder;

use crate::client;
use crate::config::{ACCESS_LOG, EDS_FILE};
use crate::endpoint_files::{replace, write_discovery, write_eds};
use crate::eventually::eventually;
use crate::program::Agent;
use crate::program::Envoy;
use crate::run_dir::RunDir;
use anyhow::{Context, Result, ensure};
use endpoint_picker_model_server::{ModelServer, SERVED_BY};
use reqwest::Response;
use rustix::process::Signal;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tokio::net::TcpSocket;

/// Picks in a row, for each worker, after which every worker counts as picking: with two workers and a fair kernel, the
/// chance that one was never met is below 0.01 %.
const PICKS_PER_WORKER: u32 = 8;

const DISCOVERY_FILE: &str = "endpoints.yaml";
const MANIFESTS_FILE: &str = "manifests.yaml";

/// A running stack; everything in it ends when it is dropped. Its logs stay when the test has failed.
#[derive(Debug)]
pub struct Stack {
    // In the order of their end: Envoy first, so that it sees no server go.
    envoy: Envoy,
    workers: u32,
    agent: Option<Agent>,
    agent_address: SocketAddr,
    /// Holds the agent's port until an agent takes it: until then connections to it are refused.
    agent_port: Option<TcpSocket>,
    servers: Vec<ModelServer>,
    dir: RunDir,
}

impl Stack {
    /// Three model servers, an agent, and Envoy with the shipped `envoy.yaml`, unless told otherwise.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// The model servers the stack was started with.
    pub fn servers(&self) -> &[ModelServer] {
        &self.servers
    }

    /// Envoy.
    pub fn envoy(&self) -> &Envoy {
        &self.envoy
    }

    /// The agent's address, also while there is no agent.
    pub fn agent_address(&self) -> SocketAddr {
        self.agent_address
    }

    /// Envoy's URL for this path.
    pub fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.envoy.listener())
    }

    /// Posts JSON on a new HTTP/1.1 connection.
    ///
    /// # Panics
    ///
    /// When no answer comes.
    pub async fn post(&self, path: &str, body: &Value) -> Response {
        let sent = client::http1().post(self.url(path)).json(body).send().await;
        sent.unwrap_or_else(|reason| panic!("POST {path}: {reason:?}"))
    }

    /// Which of [`Self::servers`] gave this answer.
    ///
    /// # Panics
    ///
    /// When none of them did.
    pub fn served_by(&self, response: &Response) -> usize {
        let name = response.headers().get(SERVED_BY).and_then(|name| name.to_str().ok());
        let position = self.servers.iter().position(|server| Some(server.endpoint().as_str()) == name);
        position.unwrap_or_else(|| panic!("no server of this stack gave the answer {response:?}"))
    }

    /// The access log's entry for a path, which the test has used once.
    ///
    /// # Panics
    ///
    /// When there is no such entry soon.
    pub async fn logged(&self, path: &str) -> Value {
        let log = self.path(ACCESS_LOG);
        eventually(&format!("the access log has a line for {path}"), async || {
            let text = fs::read_to_string(&log)?;
            let mut entries = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            entries.find(|entry| entry["path"] == path).context("no such line")
        })
        .await
    }

    /// Starts the agent at the address Envoy knows, with the endpoints last set.
    ///
    /// # Panics
    ///
    /// When there is one already, or it does not become ready.
    pub async fn start_agent(&mut self) {
        assert!(self.agent.is_none(), "the stack has an agent");
        self.agent_port = None;
        let started = start_agent(self.agent_address, self.dir.path(), Some(Eds::ONE_POOL), &[]).await;
        self.agent = Some(started.unwrap_or_else(|reason| panic!("{reason:?}")));
    }

    /// Ends the agent at once, as a crash would.
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn kill_agent(&mut self) {
        self.agent.take().expect("the stack has an agent").kill();
    }

    /// The agent, if there is one.
    pub fn agent(&self) -> Option<&Agent> {
        self.agent.as_ref()
    }

    /// Stops the agent in its tracks, as a host that hangs would, until [`Self::resume_agent`].
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn pause_agent(&mut self) {
        self.agent.as_mut().expect("the stack has an agent").signal(Signal::STOP);
    }

    /// Lets it go on.
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn resume_agent(&mut self) {
        self.agent.as_mut().expect("the stack has an agent").signal(Signal::CONT);
    }

    /// Lets another Envoy take over from the one that runs, which must have been built for it.
    pub async fn hot_restart(&mut self) -> Result<()> {
        self.envoy.hot_restart().await
    }

    /// Puts any text in the place of the agent's endpoints.
    pub fn set_endpoints_text(&self, text: &str) -> Result<()> {
        replace(&self.path(DISCOVERY_FILE), text)
    }

    /// Keeps the logs when the stack is dropped; gives their place.
    pub fn keep_logs(&mut self) -> &Path {
        self.dir.keep();
        self.dir.path()
    }

    /// Replaces the pool's endpoints: in the agent's file, or in Envoy's where there is no agent to hand them on.
    ///
    /// # Panics
    ///
    /// When a file cannot be written.
    pub fn set_endpoints(&self, endpoints: &[SocketAddr]) {
        let discovery = write_discovery(&self.path(DISCOVERY_FILE), endpoints);
        discovery.unwrap_or_else(|reason| panic!("{reason:?}"));
        if self.agent.is_none() {
            write_eds(&self.path(EDS_FILE), endpoints).unwrap_or_else(|reason| panic!("{reason:?}"));
        }
    }

    /// Replaces the manifests that [`Builder::manifests`] gave to the agent.
    ///
    /// # Panics
    ///
    /// When the file cannot be written.
    pub fn set_manifests(&self, yaml: &str) {
        replace(&self.path(MANIFESTS_FILE), yaml).unwrap_or_else(|reason| panic!("{reason:?}"));
    }

    /// Waits until every worker of Envoy picks. Its own requests are `GET /picking`, which the servers record as well.
    ///
    /// # Panics
    ///
    /// When that does not happen.
    pub async fn wait_until_picking(&self) {
        let client = client::http1();
        eventually("every worker picks", async || {
            for _ in 0..self.workers * PICKS_PER_WORKER {
                let response = client.get(self.url("/picking")).send().await?;
                let status = response.status();
                let echo: Value =
                    response.json().await.with_context(|| format!("an answer {status} of Envoy"))?;
                let header = &echo["headers"]["x-gateway-destination-endpoint"];
                ensure!(header.is_string(), "a request reached a model server without having been picked");
            }
            anyhow::Ok(())
        })
        .await;
    }

    /// A file of this stack by its name, kept with the logs when the test fails.
    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

/// What the agent writes for Envoy.
#[derive(Clone, Copy, Debug)]
struct Eds {
    file: &'static str,
    cluster: &'static str,
}

impl Eds {
    const ONE_POOL: Self = Self { file: EDS_FILE, cluster: "model-servers" };
    const EACH_POOL: Self = Self { file: "eds/{pool}.yaml", cluster: "{pool}" };
}

/// Starts the agent, with these flags beside its own; with `eds` Envoy has its endpoints from it.
async fn start_agent(listen: SocketAddr, dir: &Path, eds: Option<Eds>, more: &[&str]) -> Result<Agent> {
    let discovery = dir.join(DISCOVERY_FILE);
    let eds = eds.map(|eds| (dir.join(eds.file), eds.cluster));
    let mut flags: Vec<&OsStr> = vec!["--endpoints-file".as_ref(), discovery.as_os_str()];
    if let Some((file, cluster)) = &eds {
        flags.extend(["--eds-file".as_ref(), file.as_os_str(), "--eds-cluster".as_ref(), cluster.as_ref()]);
    }
    let manifests = dir.join(MANIFESTS_FILE);
    if manifests.exists() {
        flags.extend(["--manifests".as_ref(), manifests.as_os_str()]);
    }
    flags.extend(more.iter().map(OsStr::new));
    Agent::start(listen, flags, &dir.join("agent.log")).await
}
