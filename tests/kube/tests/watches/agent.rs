//! An agent that watches the cluster.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::program::{Process, process_tree};
use endpoint_picker_harness::{client, tools};
use endpoint_picker_wire::{decode, v1};
use reqwest::{Client, StatusCode};

/// A running agent; it ends when dropped.
pub(crate) struct Agent {
    process: Process,
    address: SocketAddr,
    http: Client,
}

/// A pool as filters get it.
pub(crate) struct Pool {
    pub(crate) snapshot: v1::Snapshot,
    /// Whether each endpoint is ready, by its name.
    pub(crate) endpoints: BTreeMap<String, bool>,
}

impl Agent {
    /// Starts it with this kubeconfig and these further flags, and waits for its address.
    pub(crate) async fn start(
        kubeconfig: &Path,
        flags: impl IntoIterator<Item = impl AsRef<OsStr>>,
        log: &Path,
    ) -> Self {
        let mut command = Command::new(tools::metrics_agent().unwrap());
        command.env("KUBECONFIG", kubeconfig).args(["--kubernetes", "--listen=127.0.0.1:0"]);
        // The servers do not exist; their scrapes are no part of these tests.
        command.args(["--interval=10s"]).args(flags);
        let mut process = Process::start("metrics-agent", command, log).unwrap();
        let address = eventually("the agent listens", async || {
            process.check_running()?;
            let output = process.output()?;
            let address = output.lines().find_map(|line| line.strip_prefix("listening on "));
            anyhow::Ok(address.context("no address yet")?.trim().parse()?)
        })
        .await;
        Self { process, address, http: client::http1_keep_alive() }
    }

    /// Its memory in bytes: its own, and with the pages of the program itself, of which a build for tests has
    /// many times those of a release.
    pub(crate) fn memory(&self) -> (u64, u64) {
        let [own, all] =
            ["RssAnon", "VmRSS"].map(|name| process_tree::bytes(self.process.id(), name).unwrap());
        (own, all)
    }

    /// Its log so far.
    pub(crate) fn log(&self) -> String {
        self.process.output().unwrap()
    }

    /// The response of `/readyz`.
    pub(crate) async fn readiness(&self) -> Result<(StatusCode, String)> {
        let answer = self.http.get(format!("http://{}/readyz", self.address)).send().await?;
        Ok((answer.status(), answer.text().await?))
    }

    /// The value of a series of `/metrics`, 0 while there is none.
    pub(crate) async fn count(&self, series: &str) -> Result<u64> {
        let answer = self.http.get(format!("http://{}/metrics", self.address)).send().await?;
        let text = answer.error_for_status()?.text().await?;
        let value = text.lines().find_map(|line| line.strip_prefix(series)?.strip_prefix(' '));
        value.map_or(Ok(0), |value| Ok(value.parse()?))
    }

    /// The pool's newest version.
    pub(crate) async fn pool(&self, namespace: &str, name: &str) -> Result<Pool> {
        let newest = self.poll(namespace, name, (0, 0), Duration::ZERO).await?;
        Pool::of(newest.context("no version")?)
    }

    /// The first version after `last` with other endpoints or another policy.
    pub(crate) async fn next(&self, namespace: &str, name: &str, last: &Pool) -> Result<Pool> {
        let (topology, mut readings) = (last.snapshot.topology_version, last.snapshot.readings_version);
        loop {
            let wait = Duration::from_secs(20);
            let newer = self.poll(namespace, name, (topology, readings), wait).await?;
            let newer = newer.context("no newer version")?;
            if newer.topology.is_some() {
                return Pool::of(newer);
            }
            readings = newer.readings_version;
        }
    }

    /// Polls for other versions than these of topology and readings. The response has endpoints and policy if
    /// they are others.
    async fn poll(
        &self,
        namespace: &str,
        name: &str,
        (topology, readings): (u64, u64),
        wait: Duration,
    ) -> Result<Option<v1::Snapshot>> {
        let path = format!("/v1/pools/{namespace}%2F{name}/snapshot");
        let query = format!("topology={topology}&readings={readings}&wait_ms={}", wait.as_millis());
        let answer = self.http.get(format!("http://{}{path}?{query}", self.address)).send().await?;
        match answer.status() {
            StatusCode::OK => Ok(Some(decode(&answer.bytes().await?)?)),
            StatusCode::NO_CONTENT => Ok(None),
            status => bail!("{status}: {}", answer.text().await?),
        }
    }
}

impl Pool {
    fn of(snapshot: v1::Snapshot) -> Result<Self> {
        let topology = snapshot.topology.as_ref().context("no topology")?;
        ensure!(topology.endpoints.len() == snapshot.readings.len(), "as many readings as endpoints");
        let ready = snapshot.readings.iter().map(|reading| reading.ready);
        let endpoints = topology.endpoints.iter().map(|endpoint| endpoint.name.clone()).zip(ready).collect();
        Ok(Self { snapshot, endpoints })
    }

    /// The names of its endpoints.
    pub(crate) fn names(&self) -> Vec<&str> {
        self.endpoints.keys().map(String::as_str).collect()
    }

    /// Its policy.
    pub(crate) fn policy(&self) -> &v1::Policy {
        self.snapshot.topology.as_ref().and_then(|topology| topology.policy.as_ref()).unwrap()
    }

    /// When the caches of an endpoint were last empty, in milliseconds since the Unix epoch.
    pub(crate) fn cached_since(&self, endpoint: &str) -> Option<u64> {
        let topology = self.snapshot.topology.as_ref()?;
        let index = topology.endpoints.iter().position(|it| it.name == endpoint)?;
        self.snapshot.readings.get(index)?.cached_since_ms
    }
}
