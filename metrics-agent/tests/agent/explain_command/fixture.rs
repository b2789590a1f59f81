//! An agent to explain, and what `explain` prints.

use std::net::SocketAddr;
use std::process::{Output, Stdio};
use std::time::Duration;

use endpoint_picker_wire::Message;
use endpoint_picker_wire::v1::Snapshot;
use metrics_agent::agent::Settings;
use metrics_agent_catalogue::watch;
use tempfile::TempDir;
use tokio::process::Command;

use crate::harness::{Agent, options_for, scraping};
use crate::scripted::{Behaviour, ScriptedServer, load};

pub(super) const BODY: &str = r#"{"model":"m","messages":[{"role":"user","content":"hello"}]}"#;

pub(super) async fn run(flags: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_metrics-agent"));
    command.args(flags).env_remove("RUST_LOG").stdin(Stdio::null()).output().await.unwrap()
}

/// Runs `explain`; returns its output and its exit code.
pub(super) async fn explain(flags: &[&str]) -> (String, i32) {
    let output = run(&[&["explain"], flags].concat()).await;
    assert!(output.stderr.is_empty(), "{output:?}");
    (String::from_utf8(output.stdout).unwrap(), output.status.code().unwrap())
}

/// A running agent whose servers have been scraped, and a folder with its snapshot and [`BODY`].
pub(super) struct Fixture {
    pub(super) agent: Agent,
    pub(super) servers: Vec<ScriptedServer>,
    folder: TempDir,
}

impl Fixture {
    pub(super) async fn with(loads: &[u64], manifests: Option<&str>) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut servers = Vec::new();
        for &waiting in loads {
            servers.push(ScriptedServer::start(Behaviour::Text(load(waiting, 0))).await);
        }
        let addresses: Vec<_> = servers.iter().map(ScriptedServer::address).collect();
        let mut settings = scraping(&addresses);
        if let Some(manifests) = manifests {
            let path = folder.path().join("manifests.yaml");
            std::fs::write(&path, manifests).unwrap();
            settings.manifests = Some(watch::ManifestSettings { path, options: options_for("default") });
        }
        let agent = Agent::start(Settings { ..settings }).await;
        let scraped = |reading: &endpoint_picker_wire::v1::Reading| reading.age_ms.is_some();
        agent.snapshot_where("all scraped", |snapshot| snapshot.readings.iter().all(scraped)).await;
        let fixture = Self { agent, servers, folder };
        fixture.write("body.json", BODY);
        fixture.save().await;
        fixture
    }

    pub(super) async fn save(&self) {
        let output = run(&["snapshot", "--agent", &self.url(), "--save", &self.path("snapshot")]).await;
        assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    }

    /// Gives all readings of the saved snapshot this age.
    pub(super) fn set_ages(&self, age: Duration) {
        let path = self.path("snapshot");
        let mut snapshot = Snapshot::decode(std::fs::read(&path).unwrap().as_slice()).unwrap();
        for reading in &mut snapshot.readings {
            reading.age_ms = Some(age.as_millis().try_into().unwrap());
        }
        std::fs::write(&path, snapshot.encode_to_vec()).unwrap();
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.agent.address)
    }

    pub(super) fn address(&self, server: usize) -> SocketAddr {
        self.servers[server].address()
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.folder.path().join(name).to_str().unwrap().to_owned()
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.folder.path().join(name), text).unwrap();
    }

    /// Explains [`BODY`] with the saved snapshot.
    pub(super) async fn explain(&self, flags: &[&str]) -> (String, i32) {
        self.explain_body("body.json", flags).await
    }

    pub(super) async fn explain_body(&self, body: &str, flags: &[&str]) -> (String, i32) {
        let (snapshot, body) = (self.path("snapshot"), self.path(body));
        explain(&[&["--snapshot", &snapshot, &body], flags].concat()).await
    }
}

/// The cells of the server's row, without its name and address.
pub(super) fn row(table: &str, server: SocketAddr) -> Vec<String> {
    let name = format!("default/{server}");
    let line = table.lines().find(|line| line.starts_with(&name)).unwrap_or_else(|| panic!("{table}"));
    line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).skip(2).map(str::to_owned).collect()
}
