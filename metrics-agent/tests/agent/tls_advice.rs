//! Failed TLS connections to model servers, and what the log says about them.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rcgen::{BasicConstraints, CertificateParams, IsCa, KeyPair};
use rustls::ServerConfig;
use rustls::crypto::ring::default_provider;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use crate::authority::{Authority, CertificateFiles, chain, key};
use crate::harness::{eventually, get};
use crate::process::{logs, signal, start};
use crate::scripted::{Behaviour, ScriptedServer, load};

/// A certificate for 127.0.0.1 that signed itself; with `is_authority` as `openssl req -x509` makes it.
fn self_signed(directory: &TempDir, is_authority: bool) -> CertificateFiles {
    let mut params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).unwrap();
    params.is_ca = if is_authority { IsCa::Ca(BasicConstraints::Unconstrained) } else { IsCa::ExplicitNoCa };
    let own_key = KeyPair::generate().unwrap();
    let file = |end: &str| directory.path().join(format!("{is_authority}.{end}"));
    let files = CertificateFiles { certificate: file("pem"), key: file("key") };
    std::fs::write(&files.certificate, params.self_signed(&own_key).unwrap().pem()).unwrap();
    std::fs::write(&files.key, own_key.serialize_pem()).unwrap();
    files
}

/// A model server with this certificate, which requires none.
async fn server(files: &CertificateFiles) -> ScriptedServer {
    let config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(chain(&files.certificate), key(&files.key))
        .unwrap();
    ScriptedServer::start_secured(Behaviour::Text(load(3, 1)), Arc::new(config)).await
}

/// A server that responds to a handshake as an HTTP server does.
async fn plain_server() -> (SocketAddr, AbortOnDropHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let answering = async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let _ = stream.read(&mut [0; 1024]).await;
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n").await;
        }
    };
    (address, AbortOnDropHandle::new(tokio::spawn(answering)))
}

/// The number of scrapes in the agent's metrics.
fn scrapes(metrics: &str) -> f64 {
    let value = metrics.lines().find_map(|line| line.strip_prefix("metrics_agent_scrapes_total "));
    value.map_or(0.0, |value| value.parse().unwrap())
}

/// Flags for TLS with these authorities.
fn trusting(authorities: &Path) -> Vec<String> {
    let authorities = authorities.to_str().unwrap().to_owned();
    ["--model-server-metrics-scheme", "https", "--scrape-ca", &authorities].map(str::to_owned).to_vec()
}

/// The log of an agent with these flags until a scrape has failed, or until some have succeeded.
async fn log_of(address: SocketAddr, flags: &[String]) -> String {
    let endpoint = address.to_string();
    let mut all = vec!["--listen", "127.0.0.1:0", "--endpoint", &endpoint];
    all.extend(flags.iter().map(String::as_str));
    let (child, address) = start(&all).await;
    eventually("scrapes", async || {
        let text = get(address, "/metrics").await.ok()?.text();
        let failed = text
            .lines()
            .any(|line| line.starts_with("metrics_agent_scrape_errors_total{") && !line.ends_with(" 0"));
        (failed || text.contains("metrics_agent_endpoints_ready 1\n") && scrapes(&text) > 2.0).then_some(())
    })
    .await;
    signal(&child, "TERM").await;
    logs(child).await.1
}

#[tokio::test]
async fn the_log_says_what_to_do_about_a_server_that_is_not_trusted_or_speaks_tls() {
    let directory = tempfile::tempdir().unwrap();
    let (authority, own) = (self_signed(&directory, true), self_signed(&directory, false));
    let (of_authority, of_own) = (server(&authority).await, server(&own).await);
    let (plain, _answering) = plain_server().await;
    let refusing = ScriptedServer::start(Behaviour::Status(400)).await;
    let other = Authority::new();
    let scheme = "if the server speaks TLS, set --model-server-metrics-scheme https";
    for (address, flags, advice) in [
        (
            of_authority.address(),
            trusting(&authority.certificate),
            "-addext basicConstraints=critical,CA:FALSE",
        ),
        (
            of_own.address(),
            trusting(&other.certificate()),
            "no authority of --scrape-ca has issued the server's certificate",
        ),
        (of_own.address(), vec![], scheme),
        (refusing.address(), vec![], scheme),
        (plain, trusting(&other.certificate()), "the server does not speak TLS"),
    ] {
        let log = log_of(address, &flags).await;
        assert!(log.contains("scrapes fail") && log.contains(advice), "{flags:?}: {log}");
    }
    // As the advice has it.
    let log = log_of(of_own.address(), &trusting(&own.certificate)).await;
    assert!(!log.contains("scrapes fail") && of_own.requests() > 0, "{log}");
}
