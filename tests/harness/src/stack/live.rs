//! A running stack: model servers, metrics agent and Envoy.

use super::agent::{DISCOVERY_FILE, Eds, MANIFESTS_FILE, start_agent};
use crate::Filter;
use crate::client;
use crate::config::{ACCESS_LOG, Config, EDS_FILE};
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
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use tokio::net::TcpSocket;

/// Picks in a row, for each worker, after which every worker counts as picking: with two workers and a fair
/// kernel, the chance that a worker got none of the connections is below 0.01 %.
const PICKS_PER_WORKER: u32 = 8;

/// A running stack; everything in it ends when it is dropped. Its logs stay when the test has failed.
#[derive(Debug)]
pub struct Stack {
    // In the order of their end: Envoy first, so that it never sees a server end.
    pub(super) envoy: Envoy,
    /// As Envoy has it.
    pub(super) config: Config,
    pub(super) workers: u32,
    pub(super) agent: Option<Agent>,
    pub(super) agent_flags: Vec<String>,
    pub(super) agent_address: SocketAddr,
    /// Holds the agent's port until an agent takes it: until then connections to it are refused.
    pub(super) agent_port: Option<TcpSocket>,
    pub(super) servers: Vec<ModelServer>,
    pub(super) dir: RunDir,
}

impl Stack {
    /// The model servers the stack was started with.
    pub fn servers(&self) -> &[ModelServer] {
        &self.servers
    }

    /// Envoy.
    pub fn envoy(&self) -> &Envoy {
        &self.envoy
    }

    /// The form of the filter.
    pub fn filter(&self) -> Filter {
        self.config.filter()
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
    /// When no response comes.
    pub async fn post(&self, path: &str, body: &Value) -> Response {
        let sent = client::http1().post(self.url(path)).json(body).send().await;
        sent.unwrap_or_else(|reason| panic!("POST {path}: {reason:?}"))
    }

    /// The index of the server in [`Self::servers`] that sent this response.
    ///
    /// # Panics
    ///
    /// When none of them did.
    pub fn served_by(&self, response: &Response) -> usize {
        let name = response.headers().get(SERVED_BY).and_then(|name| name.to_str().ok());
        let position = self.servers.iter().position(|server| Some(server.endpoint().as_str()) == name);
        position.unwrap_or_else(|| panic!("no server of this stack sent the answer {response:?}"))
    }

    /// The access log's entry for a path that the test has used once.
    ///
    /// # Panics
    ///
    /// When there is no such entry within [`SOON`](crate::eventually::SOON).
    pub async fn logged(&self, path: &str) -> Value {
        let log = self.path(ACCESS_LOG);
        eventually(&format!("the access log has a line for {path}"), async || {
            let text = fs::read_to_string(&log)?;
            let mut entries = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            entries.find(|entry| entry["path"] == path).context("no such line")
        })
        .await
    }

    /// Starts the agent at the address that Envoy is configured with, with the stack's flags and the
    /// endpoints last set.
    ///
    /// # Panics
    ///
    /// When there is one already, or it does not become ready.
    pub async fn start_agent(&mut self) {
        assert!(self.agent.is_none(), "the stack has an agent");
        self.agent_port = None;
        let (address, folder) = (self.agent_address, self.dir.path());
        let started = start_agent(address, folder, Some(Eds::ONE_POOL), &self.agent_flags).await;
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

    /// Replaces the agent as an upgrade does: it ends by SIGTERM, and another one starts.
    ///
    /// # Panics
    ///
    /// When there is none, or the next one does not become ready.
    pub async fn replace_agent(&mut self) {
        drop(self.agent.take().expect("the stack has an agent"));
        self.start_agent().await;
    }

    /// The agent, if there is one.
    pub fn agent(&self) -> Option<&Agent> {
        self.agent.as_ref()
    }

    /// Pauses the agent (SIGSTOP), as a hanging host would, until [`Self::resume_agent`].
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn pause_agent(&mut self) {
        self.agent.as_mut().expect("the stack has an agent").signal(Signal::STOP);
    }

    /// Resumes it (SIGCONT).
    ///
    /// # Panics
    ///
    /// When there is none.
    pub fn resume_agent(&mut self) {
        self.agent.as_mut().expect("the stack has an agent").signal(Signal::CONT);
    }

    /// Starts another Envoy that takes over from the running one, which must have been built for it.
    pub async fn hot_restart(&mut self) -> Result<()> {
        self.envoy.hot_restart().await
    }

    /// Ends Envoy at once, as a crash would.
    pub fn kill_envoy(&mut self) {
        self.envoy.kill();
    }

    /// Starts another one after [`Self::kill_envoy`], which must have been built for a hot restart. Every
    /// worker is picking when this returns.
    pub async fn restart_envoy(&mut self) -> Result<()> {
        self.envoy.restart().await?;
        self.wait_until_picking().await;
        Ok(())
    }

    /// Replaces the agent's endpoints file by any text.
    pub fn set_endpoints_text(&self, text: &str) -> Result<()> {
        replace(&self.path(DISCOVERY_FILE), text)
    }

    /// Changes the listeners of an Envoy that has them from a file, and waits until they are in force.
    ///
    /// # Panics
    ///
    /// When that does not happen.
    pub async fn change_listeners(&mut self, change: impl FnOnce(&mut Config) -> Result<()>) {
        const UPDATES: &str = "listener_manager.lds.update_success";
        let before = self.envoy.stat(UPDATES).await.unwrap_or_else(|reason| panic!("{reason:?}"));
        let changed = change(&mut self.config).and_then(|()| self.config.write_listeners(self.dir.path()));
        changed.unwrap_or_else(|reason| panic!("{reason:?}"));
        eventually("the listeners are in force", async || {
            let updates = self.envoy.stat(UPDATES).await?;
            let warming = self.envoy.stat("listener_manager.total_listeners_warming").await?;
            ensure!(updates > before && warming == 0, "{updates} updates after {before}, {warming} to come");
            anyhow::Ok(())
        })
        .await;
    }

    /// Keeps the logs when the stack is dropped; returns their folder.
    pub fn keep_logs(&mut self) -> &Path {
        self.dir.keep();
        self.dir.path()
    }

    /// Replaces the pool's endpoints: in the agent's file, or in Envoy's while there is no agent.
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

    /// Replaces the manifests that `Builder::manifests` gave to the agent.
    ///
    /// # Panics
    ///
    /// When the file cannot be written.
    pub fn set_manifests(&self, yaml: &str) {
        replace(&self.path(MANIFESTS_FILE), yaml).unwrap_or_else(|reason| panic!("{reason:?}"));
    }

    /// Waits until every worker of Envoy picks. Its requests are `GET /picking`, which the servers record as
    /// well.
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
                ensure!(header.is_string(), "a request reached a model server without a pick");
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
