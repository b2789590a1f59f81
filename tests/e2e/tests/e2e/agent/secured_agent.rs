//! An agent that requires a client certificate and a token, with the configuration of the shipped example.

use endpoint_picker_e2e::fixture::{CHAT, assert_no_endpoints, fresh_chat, prefer};
use endpoint_picker_harness::endpoint_files::write_discovery;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::program::Process;
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_harness::tools;
use endpoint_picker_model_server::ModelServer;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use reqwest::StatusCode;
use serde_json::Value;
use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// Where the shipped example looks for its files.
const SHIPPED_FOLDER: &str = "/etc/endpoint-picker";
const SHIPPED_PORT: &str = "9095";
const SHIPPED_TOKEN: &str = "replace-me";

/// A running agent, and what its users need.
struct Secured {
    folder: TempDir,
    address: SocketAddr,
    agent: Process,
}

impl Secured {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        write_certificates(folder.path());
        fs::write(folder.path().join("tokens"), "right\n").unwrap();
        write_discovery(&folder.path().join("endpoints.yaml"), &[]).unwrap();
        let mut command = Command::new(tools::metrics_agent().unwrap());
        command.args(["--listen", "127.0.0.1:0"]);
        for (flag, file) in [
            ("--endpoints-file", "endpoints.yaml"),
            ("--tls-cert", "agent.pem"),
            ("--tls-key", "agent.key"),
            ("--tls-client-ca", "ca.pem"),
            ("--bearer-token-file", "tokens"),
        ] {
            command.arg(flag).arg(folder.path().join(file));
        }
        let agent = Process::start("metrics-agent", command, &folder.path().join("agent.log")).unwrap();
        let address = eventually("the agent prints its address", async || {
            let output = agent.output().unwrap();
            let line = output.lines().find_map(|line| line.strip_prefix("listening on "));
            line.and_then(|address| address.parse().ok()).ok_or(output)
        });
        let address = address.await;
        Self { folder, address, agent }
    }

    /// A stack whose Envoy shows this token.
    async fn stack(&self, token: &str, failure_mode: &str) -> Stack {
        self.hand_out(token);
        let folder = self.folder.path().to_str().unwrap();
        let cluster = shipped("cluster.yaml")
            .replace(SHIPPED_FOLDER, folder)
            .replace(SHIPPED_PORT, &self.address.port().to_string());
        let cluster: Value = serde_saphyr::from_str(&cluster).unwrap();
        let builder = Stack::builder().own_agent(self.address).agent_cluster(cluster);
        let stack = builder.picker_field("failureMode", failure_mode).start().await;
        let servers: Vec<_> = stack.servers().iter().map(ModelServer::address).collect();
        write_discovery(&self.folder.path().join("endpoints.yaml"), &servers).unwrap();
        stack
    }

    /// Moves another token into the place where Envoy looks for it.
    fn hand_out(&self, token: &str) {
        let text = shipped("token.yaml");
        assert!(text.contains(SHIPPED_TOKEN));
        let new = self.folder.path().join("token.new");
        fs::write(&new, text.replace(SHIPPED_TOKEN, token)).unwrap();
        fs::rename(new, self.folder.path().join("token.yaml")).unwrap();
    }
}

fn shipped(file: &str) -> String {
    fs::read_to_string(tools::root().join("examples/secured-agent").join(file)).unwrap()
}

fn write_certificates(folder: &Path) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    // Of its own: Envoy takes a certificate with the name of its issuer for one that signed itself.
    params.distinguished_name.push(DnType::CommonName, "authority");
    let authority = CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap();
    fs::write(folder.join("ca.pem"), authority.pem()).unwrap();
    for (file, name) in [("agent", "127.0.0.1"), ("envoy", "envoy.example")] {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        fs::write(folder.join(format!("{file}.pem")), params.signed_by(&key, &authority).unwrap().pem())
            .unwrap();
        fs::write(folder.join(format!("{file}.key")), key.serialize_pem()).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_picker_gets_readings_over_mutual_tls_with_a_token() {
    let secured = Secured::start().await;
    let stack = secured.stack("right", "FailOpen").await;
    stack.wait_until_picking().await;
    prefer(&stack, 1).await;

    // The agent's word goes on counting while one token takes the place of another.
    fs::write(secured.folder.path().join("tokens"), "right\nnext\n").unwrap();
    secured.hand_out("next");
    prefer(&stack, 2).await;
    fs::write(secured.folder.path().join("tokens"), "next\n").unwrap();
    prefer(&stack, 0).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_a_wrong_token_the_failure_mode_counts_and_the_log_says_why_until_it_is_right() {
    let secured = Secured::start().await;
    let stack = secured.stack("wrong", "FailClose").await;
    let reason = "the agent answered 401: \"{\\\"error\\\":\\\"a token of --bearer-token-file is required";
    eventually("the log has the reason", async || {
        let log = stack.envoy().log().unwrap();
        if log.contains(reason) { Ok(()) } else { Err(log) }
    })
    .await;
    assert_no_endpoints(stack.post(CHAT, &fresh_chat()).await, "without a snapshot").await;
    for log in [stack.envoy().log().unwrap(), secured.agent.output().unwrap()] {
        assert!(!log.contains("Bearer wrong"), "{log}");
    }

    secured.hand_out("right");
    stack.wait_until_picking().await;
    assert_eq!(stack.post(CHAT, &fresh_chat()).await.status(), StatusCode::OK);
}
