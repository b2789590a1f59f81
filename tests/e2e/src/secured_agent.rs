//! An agent that requires a client certificate and a token.

use endpoint_picker_harness::endpoint_files::write_discovery;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::program::Process;
use endpoint_picker_harness::stack::{Builder, Stack};
use endpoint_picker_harness::tools;
use endpoint_picker_model_server::ModelServer;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// A running agent, and the files that its users need.
#[derive(Debug)]
pub struct SecuredAgent {
    folder: TempDir,
    address: SocketAddr,
    agent: Process,
}

impl SecuredAgent {
    /// Starts it without endpoints. Its token is `right`.
    pub async fn start() -> Self {
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

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Text that it has printed.
    pub fn output(&self) -> String {
        self.agent.output().unwrap()
    }

    /// A file of the agent and its users: `ca.pem`, and `envoy.pem` and `envoy.key` for a client.
    pub fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join(file)
    }

    /// Replaces the tokens that it accepts, one a line.
    pub fn set_tokens(&self, tokens: &str) {
        fs::write(self.path("tokens"), tokens).unwrap();
    }

    /// Starts a stack with this agent, and lets the agent serve its endpoints.
    pub async fn start_stack(&self, builder: Builder) -> Stack {
        let stack = builder.own_agent(self.address).start().await;
        let servers: Vec<_> = stack.servers().iter().map(ModelServer::address).collect();
        write_discovery(&self.path("endpoints.yaml"), &servers).unwrap();
        stack
    }
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
