//! Access to the agent's API: TLS, client certificates, tokens and host names.

use std::path::Path;

use metrics_agent::agent::Settings;
use metrics_agent::api::access::AllowedHosts;
use metrics_agent::api::access::credentials::{Files, TlsFiles};
use tempfile::TempDir;
use tokio::net::TcpStream;

use crate::authority::{Authority, CertificateFiles};
use crate::harness::{Agent, Answer, eventually, get, scraping, send, settings};
use crate::scripted::{Behaviour, ScriptedServer, load};

const SNAPSHOT: &str = "/v1/pools/default/snapshot";

/// Paths that require a certificate or token.
const GUARDED: [&str; 2] = [SNAPSHOT, "/metrics"];
const OPEN: [&str; 2] = ["/healthz", "/readyz"];

const REFUSED_ONCE: &str = "metrics_agent_credential_reloads_total{result=\"refused\"} 1\n";

fn tls(issued: &CertificateFiles, clients: Option<&Authority>) -> Files {
    let CertificateFiles { certificate, key } = issued.clone();
    let client_authorities = clients.map(Authority::certificate);
    Files { tls: Some(TlsFiles { certificate, key, client_authorities }), ..Files::default() }
}

/// An agent that has scraped its one server.
async fn start(credentials: Files) -> (Agent, ScriptedServer) {
    let server = ScriptedServer::start(Behaviour::Text(load(1, 1))).await;
    (Agent::start(Settings { credentials, ..scraping(&[server.address()]) }).await, server)
}

async fn get_over_tls(
    agent: &Agent,
    authority: &Authority,
    client: Option<&CertificateFiles>,
    path: &str,
) -> std::io::Result<Answer> {
    send(&mut authority.connect(agent.address, client).await?, path, "").await
}

async fn until_ready(agent: &Agent, authority: &Authority) {
    eventually("ready", async || {
        let answer = get_over_tls(agent, authority, None, "/readyz").await.ok()?;
        (answer.status == 200).then_some(())
    })
    .await;
}

/// Replaces the file atomically.
fn replace(path: &Path, text: &str) {
    let new = path.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, path).unwrap();
}

#[tokio::test]
async fn the_api_is_served_over_tls_and_not_in_plain_text() {
    let authority = Authority::new();
    let (agent, _server) = start(tls(&authority.issue("127.0.0.1"), None)).await;
    until_ready(&agent, &authority).await;
    for path in [GUARDED, OPEN].concat() {
        assert_eq!(get_over_tls(&agent, &authority, None, path).await.unwrap().status, 200, "{path}");
    }
    assert!(get(agent.address, "/healthz").await.is_err(), "no HTTP in plain text");
}

#[tokio::test]
async fn without_a_certificate_of_the_clients_authority_only_health_is_served() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let (agent, _server) = start(tls(&authority.issue("127.0.0.1"), Some(&authority))).await;
    until_ready(&agent, &authority).await;
    let client = authority.issue("filter");
    for path in OPEN {
        assert_eq!(get_over_tls(&agent, &authority, None, path).await.unwrap().status, 200, "{path}");
    }
    for path in GUARDED {
        let refused = get_over_tls(&agent, &authority, None, path).await.unwrap();
        assert_eq!(refused.status, 403, "{path}");
        assert!(refused.text().contains("--tls-client-ca"), "{}", refused.text());
        let answer = get_over_tls(&agent, &authority, Some(&client), path).await.unwrap();
        assert_eq!(answer.status, 200, "{path}");
        let wrong = stranger.issue("filter");
        assert!(get_over_tls(&agent, &authority, Some(&wrong), path).await.is_err(), "{path}");
    }
    let metrics = get_over_tls(&agent, &authority, Some(&client), "/metrics").await.unwrap().text();
    assert!(metrics.contains("metrics_agent_refused_requests_total{reason=\"no_certificate\"} 2\n"));
}

/// A file with tokens.
fn tokens(text: &str) -> (TempDir, Files) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("tokens");
    std::fs::write(&path, text).unwrap();
    (directory, Files { tokens: Some(path), ..Files::default() })
}

async fn status(agent: &Agent, path: &str, authorization: &str) -> u16 {
    let mut stream = TcpStream::connect(agent.address).await.unwrap();
    send(&mut stream, path, &format!("authorization: {authorization}\r\n")).await.unwrap().status
}

#[tokio::test]
async fn without_a_token_only_health_is_served() {
    let (_directory, credentials) = tokens("right\nnext\n");
    let (agent, _server) = start(credentials).await;
    eventually("ready", async || (agent.get("/readyz").await.status == 200).then_some(())).await;
    assert_eq!(agent.get("/healthz").await.status, 200);
    for path in GUARDED {
        let refused = agent.get(path).await;
        assert_eq!(refused.status, 401, "{path}");
        assert!(refused.head.contains("www-authenticate: Bearer\r\n"), "{}", refused.head);
        assert!(refused.text().contains("--bearer-token-file"), "{}", refused.text());
        for (authorization, expected) in [
            ("Bearer right", 200),
            ("bearer next", 200),
            ("Bearer wrong", 401),
            ("Bearer righ", 401),
            ("Bearer right1", 401),
            ("Bearer", 401),
            ("Basic right", 401),
        ] {
            assert_eq!(status(&agent, path, authorization).await, expected, "{path} {authorization}");
        }
    }
    let mut stream = TcpStream::connect(agent.address).await.unwrap();
    let metrics = send(&mut stream, "/metrics", "authorization: Bearer right\r\n").await.unwrap().text();
    assert!(metrics.contains("metrics_agent_refused_requests_total{reason=\"no_token\"} 2\n"), "{metrics}");
    assert!(
        metrics.contains("metrics_agent_refused_requests_total{reason=\"wrong_token\"} 10\n"),
        "{metrics}"
    );
}

#[tokio::test]
async fn a_changed_token_takes_effect_with_the_next_request_and_an_invalid_file_changes_nothing() {
    let (directory, credentials) = tokens("old");
    let path = directory.path().join("tokens");
    let (agent, _server) = start(credentials).await;
    eventually("a snapshot", async || (status(&agent, SNAPSHOT, "Bearer old").await == 200).then_some(()))
        .await;
    replace(&path, "new");
    eventually("the new token", async || (status(&agent, SNAPSHOT, "Bearer new").await == 200).then_some(()))
        .await;
    assert_eq!(status(&agent, SNAPSHOT, "Bearer old").await, 401);
    replace(&path, "");
    eventually("the refusal of the file", async || {
        let mut stream = TcpStream::connect(agent.address).await.ok()?;
        let metrics = send(&mut stream, "/metrics", "authorization: Bearer new\r\n").await.ok()?;
        metrics.text().contains(REFUSED_ONCE).then_some(())
    })
    .await;
    assert_eq!(status(&agent, SNAPSHOT, "Bearer new").await, 200, "the last good one stays");
    replace(&path, "newest");
    eventually("the newest token", async || {
        (status(&agent, SNAPSHOT, "Bearer newest").await == 200).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_new_certificate_is_shown_to_new_connections_and_the_old_ones_go_on() {
    let (authority, next) = (Authority::new(), Authority::new());
    let issued = authority.issue("127.0.0.1");
    let (agent, _server) = start(tls(&issued, None)).await;
    until_ready(&agent, &authority).await;
    let mut kept = authority.connect(agent.address, None).await.unwrap();
    assert_eq!(send(&mut kept, SNAPSHOT, "").await.unwrap().status, 200);

    // The new certificate does not match the old key, which is replaced later.
    let another = next.issue("127.0.0.1");
    replace(&issued.certificate, &std::fs::read_to_string(&another.certificate).unwrap());
    eventually("the refusal of the files", async || {
        let metrics = get_over_tls(&agent, &authority, None, "/metrics").await.ok()?;
        metrics.text().contains(REFUSED_ONCE).then_some(())
    })
    .await;
    assert!(authority.connect(agent.address, None).await.is_ok(), "the last good one stays");

    replace(&issued.key, &std::fs::read_to_string(&another.key).unwrap());
    eventually("the new certificate", async || next.connect(agent.address, None).await.ok()).await;
    assert!(authority.connect(agent.address, None).await.is_err(), "the old one is gone");
    assert_eq!(send(&mut kept, SNAPSHOT, "").await.unwrap().status, 200);
}

#[tokio::test]
async fn an_unknown_host_name_is_refused_except_for_health_checks() {
    let allowed_hosts = AllowedHosts(vec!["agent.example".to_owned()]);
    let agent = Agent::start(Settings { allowed_hosts, ..settings() }).await;
    let status = async |path: &str, host: &str| {
        let mut stream = TcpStream::connect(agent.address).await.unwrap();
        send(&mut stream, path, &format!("host: {host}\r\n")).await.unwrap().status
    };
    let rebound = format!("rebound.example:{}", agent.address.port());
    for path in ["/", "/metrics", "/v1/pools", SNAPSHOT] {
        assert_eq!(status(path, &rebound).await, 403, "{path}");
        for host in [&agent.address.to_string(), "localhost", "agent.example:9095", "metrics-agent"] {
            assert_ne!(status(path, host).await, 403, "{path} {host}");
        }
    }
    for path in OPEN {
        assert_ne!(status(path, &rebound).await, 403, "{path}");
    }
    let refused = agent.metric("metrics_agent_refused_requests_total{reason=\"unknown_host\"}").await;
    assert!((refused - 4.0).abs() < 0.5, "{refused}");
}
