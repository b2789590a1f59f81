//! Scraping over TLS, with client certificates and tokens.

use std::net::SocketAddr;
use std::path::PathBuf;

use metrics_agent::agent::Settings;
use metrics_agent_catalogue::scraping::Scheme;
use metrics_agent_support::client::credentials::{ClientFiles, Trust};
use rustls::pki_types::ServerName;

use crate::authority::{Authority, CertificateFiles};
use crate::harness::{Agent, eventually, scraping};
use crate::scripted::{Behaviour, ScriptedServer, load};

fn over_tls(address: SocketAddr, scrape_credentials: ClientFiles) -> Settings {
    let mut settings = Settings { scrape_credentials, ..scraping(&[address]) };
    settings.scrape.scheme = Scheme::Https;
    settings
}

fn trusting(authority: &Authority, client: &CertificateFiles) -> ClientFiles {
    ClientFiles {
        trust: Some(Trust::Authorities(authority.certificate())),
        certificate_and_key: Some((client.certificate.clone(), client.key.clone())),
        ..ClientFiles::default()
    }
}

async fn server(authority: &Authority, name: &str) -> ScriptedServer {
    let config = authority.server(&authority.issue(name));
    ScriptedServer::start_secured(Behaviour::Text(load(3, 1)), config).await
}

fn token_file(text: &str) -> (tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("token");
    std::fs::write(&path, text).unwrap();
    (directory, path)
}

#[tokio::test]
async fn a_server_is_scraped_over_tls_with_certificate_and_token_over_one_connection() {
    let authority = Authority::new();
    let server = server(&authority, "127.0.0.1").await;
    let (_directory, path) = token_file("one\n");
    let client = authority.issue("agent");
    let credentials = ClientFiles { token: Some(path.clone()), ..trusting(&authority, &client) };
    let agent = Agent::start(over_tls(server.address(), credentials)).await;
    agent.reading_where("the value", |r| r.waiting == Some(3)).await;
    assert_eq!(server.authorization().as_deref(), Some("Bearer one"));

    std::fs::write(&path, "two\n").unwrap();
    eventually("the new token", async || {
        (server.authorization().as_deref() == Some("Bearer two")).then_some(())
    })
    .await;
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_token_is_sent_over_plain_http_too_and_none_without_a_file() {
    let server = ScriptedServer::start(Behaviour::Text(load(3, 1))).await;
    let (_directory, path) = token_file("one");
    let scrape_credentials = ClientFiles { token: Some(path), ..ClientFiles::default() };
    let agent = Agent::start(Settings { scrape_credentials, ..scraping(&[server.address()]) }).await;
    agent.reading_where("the value", |r| r.waiting == Some(3)).await;
    assert_eq!(server.authorization().as_deref(), Some("Bearer one"));
    drop(agent);

    let agent = Agent::start(scraping(&[server.address()])).await;
    agent.reading_where("the value", |r| r.waiting == Some(3)).await;
    assert_eq!(server.authorization(), None);
}

/// The handshake fails, and the endpoint stays ready.
async fn is_not_scraped(server: &ScriptedServer, credentials: ClientFiles, reason: &str) {
    let agent = Agent::start(over_tls(server.address(), credentials)).await;
    let metric = format!("metrics_agent_scrape_errors_total{{reason=\"{reason}\"}}");
    eventually(&metric, async || (agent.metric(&metric).await >= 4.0).then_some(())).await;
    let reading = agent.reading_where("no value", |r| r.age_ms.is_none()).await;
    assert!(reading.ready, "a server that accepts connections is ready");
    assert_eq!(server.requests(), 0);
}

#[tokio::test]
async fn a_server_of_another_authority_is_scraped_only_if_any_certificate_is_trusted() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let server = server(&authority, "127.0.0.1").await;
    let client = authority.issue("agent");
    let files = || (client.certificate.clone(), client.key.clone());
    let trust = Some(Trust::Authorities(stranger.certificate()));
    let credentials = ClientFiles { trust, certificate_and_key: Some(files()), ..ClientFiles::default() };
    is_not_scraped(&server, credentials, "tls").await;

    let trust = Some(Trust::All);
    let credentials = ClientFiles { trust, certificate_and_key: Some(files()), ..ClientFiles::default() };
    let agent = Agent::start(over_tls(server.address(), credentials)).await;
    agent.reading_where("the value", |r| r.waiting == Some(3)).await;
}

#[tokio::test]
async fn a_certificate_for_another_name_is_accepted_only_with_that_server_name() {
    let authority = Authority::new();
    let server = server(&authority, "model-servers.example").await;
    let client = authority.issue("agent");
    is_not_scraped(&server, trusting(&authority, &client), "tls").await;

    let server_name = Some(ServerName::try_from("model-servers.example").unwrap());
    let credentials = ClientFiles { server_name, ..trusting(&authority, &client) };
    let agent = Agent::start(over_tls(server.address(), credentials)).await;
    agent.reading_where("the value", |r| r.waiting == Some(3)).await;
}

#[tokio::test]
async fn a_server_that_requires_a_certificate_is_not_scraped_without_one() {
    let authority = Authority::new();
    let server = server(&authority, "127.0.0.1").await;
    let trust = Some(Trust::Authorities(authority.certificate()));
    // In TLS 1.3 the server refuses after the client's handshake has ended.
    is_not_scraped(&server, ClientFiles { trust, ..ClientFiles::default() }, "http").await;
}

#[tokio::test]
async fn a_certificate_that_is_replaced_later_is_presented() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let server = server(&authority, "127.0.0.1").await;
    let presented = stranger.issue("agent");
    let agent = Agent::start(over_tls(server.address(), trusting(&authority, &presented))).await;
    let metric = "metrics_agent_scrape_errors_total{reason=\"http\"}";
    eventually(metric, async || (agent.metric(metric).await >= 2.0).then_some(())).await;
    let good = authority.issue("agent");
    std::fs::copy(good.certificate, presented.certificate).unwrap();
    std::fs::copy(good.key, presented.key).unwrap();
    agent.reading_where("the value", |r| r.waiting == Some(3)).await;
}
