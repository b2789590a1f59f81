//! The real binary: its line of output, signals, exit codes, and what it logs.

use std::io::Read;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::authority::Authority;
use crate::harness::{Answer, eventually, get, send};
use crate::scripted::{Behaviour, ScriptedServer, load};

pub(crate) fn command(flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_metrics-agent"));
    command.args(flags).env_remove("RUST_LOG").kill_on_drop(true);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

async fn start(flags: &[&str]) -> (Child, SocketAddr) {
    started(command(flags)).await
}

/// Starts an agent and waits until it serves.
pub(crate) async fn started(mut command: Command) -> (Child, SocketAddr) {
    let mut child = command.spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).await.unwrap();
    let address = line.trim_end().strip_prefix("listening on ").unwrap_or_else(|| panic!("{line:?}"));
    let address = address.parse().unwrap();
    (child, address)
}

/// Sends a signal to a process that the test started.
pub(crate) async fn signal(child: &Child, name: &str) {
    let id = child.id().expect("it runs").to_string();
    assert!(Command::new("kill").args(["-s", name, &id]).status().await.unwrap().success());
}

pub(crate) async fn logs(child: Child) -> (std::process::ExitStatus, String) {
    let output = tokio::time::timeout(Duration::from_secs(10), child.wait_with_output()).await;
    let output = output.expect("it ends within seconds").unwrap();
    (output.status, String::from_utf8(output.stderr).unwrap())
}

#[tokio::test]
async fn both_signals_answer_waiting_requests_and_end_the_agent_successfully() {
    for name in ["TERM", "INT"] {
        let server = ScriptedServer::start(Behaviour::Hang).await;
        let endpoint = server.address().to_string();
        let (child, address) =
            start(&["--listen", "127.0.0.1:0", "--endpoint", &endpoint, "--timeout", "30s"]).await;
        let first = eventually("a snapshot", async || {
            let answer = get(address, "/v1/pools/default/snapshot").await.ok()?;
            (answer.status == 200).then(|| endpoint_picker_wire::decode(&answer.body).unwrap())
        })
        .await;
        let path = format!(
            "/v1/pools/default/snapshot?topology={}&readings={}&wait_ms=30000",
            first.topology_version, first.readings_version
        );
        let waiter = tokio::spawn(async move { get(address, &path).await.unwrap().status });
        eventually("the waiter", async || {
            let text = get(address, "/metrics").await.ok()?.text();
            text.contains("metrics_agent_snapshot_waiters 1\n").then_some(())
        })
        .await;
        signal(&child, name).await;
        assert_eq!(waiter.await.unwrap(), 204);
        let answer = get(address, "/readyz").await.unwrap();
        assert_eq!(answer.status, 503);
        let (status, _) = logs(child).await;
        assert_eq!(status.code(), Some(0));
    }
}

#[tokio::test]
async fn a_failing_endpoint_is_logged_once_and_once_when_it_recovers() {
    let mut server = ScriptedServer::start(Behaviour::Text(load(1, 1))).await;
    let endpoint = server.address().to_string();
    let (child, address) = start(&["--listen", "127.0.0.1:0", "--endpoint", &endpoint]).await;
    let scraped = |name: &'static str, least: f64| async move {
        eventually(name, async || {
            let text = get(address, "/metrics").await.ok()?.text();
            let value: f64 = text.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()?;
            (value >= least).then_some(())
        })
        .await;
    };
    scraped("metrics_agent_scrapes_total", 5.0).await;
    server.stop().await;
    scraped("metrics_agent_scrape_errors_total{reason=\"refused\"}", 5.0).await;
    server.resume().await;
    scraped("metrics_agent_endpoints_ready", 1.0).await;
    signal(&child, "TERM").await;
    let (_, log) = logs(child).await;
    assert_eq!(log.matches("scrapes fail").count(), 1, "{log}");
    assert_eq!(log.matches("scrapes succeed again").count(), 1, "{log}");
    assert!(log.lines().count() < 10, "{log}");
}

/// Runs the agent with flags that it refuses, and returns its message.
fn refusal(flags: &[&str]) -> String {
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_metrics-agent"))
        .args(flags)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut message = String::new();
    child.stderr.take().unwrap().read_to_string(&mut message).unwrap();
    assert!(!child.wait().unwrap().success(), "{message}");
    message
}

#[test]
fn invalid_flags_are_refused_by_name() {
    let endpoint = ["--listen", "127.0.0.1:0", "--endpoint", "127.0.0.1:1"];
    let with = |more: &[&'static str]| refusal(&[&endpoint[..], more].concat());
    assert!(refusal(&[]).contains("--endpoints-file"));
    assert!(with(&["--eds-file", "/nonexistent/eds.json"]).contains("--eds-file"));
    assert!(with(&["--log", "a=b=c"]).contains("--log"));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    assert!(refusal(&["--listen", &address, "--endpoint", "127.0.0.1:1"]).contains("--listen"));
}

#[test]
fn a_file_beyond_a_limit_is_refused_with_the_flag_that_sets_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("m.yaml");
    let objective = "apiVersion: llm-d.ai/v1alpha2\nkind: InferenceObjective\nmetadata: {name: batch}\n\
                     spec: {priority: -10, poolRef: {name: default}}\n";
    std::fs::write(&path, objective).unwrap();
    let path = path.to_str().unwrap();
    let message = refusal(&["check", "--max-file-bytes", "10", path]);
    assert!(message.contains("m.yaml: is larger than the allowed 10 bytes (--max-file-bytes)"), "{message}");
    let message = refusal(&["check", "--max-yaml-nodes", "5", path]);
    assert!(message.contains("m.yaml") && message.contains("--max-yaml-nodes"), "{message}");
    assert!(refusal(&["check", "--max-yaml-nodes", "0", path]).contains("allowed is a number from 1"));
    let refusal_of = |flags: &[&str]| {
        refusal(&[&["--listen", "127.0.0.1:0", "--endpoint", "127.0.0.1:1"], flags].concat())
    };
    let message = refusal_of(&["--bearer-token-file", path, "--max-file-bytes", "10"]);
    assert!(message.contains("m.yaml is larger than the allowed 10 bytes (--max-file-bytes)"), "{message}");
}

#[test]
fn an_invalid_credential_file_is_named_and_its_text_is_not_repeated() {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = directory.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let authority = Authority::new();
    let (one, two) = (authority.issue("one"), authority.issue("two"));
    let certificate = one.certificate.to_str().unwrap();
    let bad = write("bad", "-----BEGIN PRIVATE hush\nhush hush\n");
    let refusal_of = |flags: &[&str]| {
        let message = refusal(&[&["--listen", "127.0.0.1:0", "--endpoint", "127.0.0.1:1"], flags].concat());
        assert!(!message.contains("hush"), "{message}");
        message
    };
    assert!(refusal_of(&["--tls-cert", certificate]).contains("--tls-key"));
    assert!(refusal_of(&["--tls-cert", certificate, "--tls-key", &bad]).contains("bad has no private key"));
    assert!(refusal_of(&["--tls-cert", &bad, "--tls-key", &bad]).contains("bad has no certificate"));
    let other_key = two.key.to_str().unwrap();
    assert!(refusal_of(&["--tls-cert", certificate, "--tls-key", other_key]).contains("do not match"));
    assert!(refusal_of(&["--tls-client-ca", certificate]).contains("--tls-cert"));
    assert!(refusal_of(&["--bearer-token-file", &bad]).contains("bad has no valid token"));
    assert!(
        refusal_of(&["--bearer-token-file", "/nonexistent/token"])
            .contains("/nonexistent/token cannot be read")
    );
    assert!(refusal_of(&["--scrape-token-file", &bad]).contains("bad has no valid token"));
    assert!(refusal_of(&["--scrape-ca", &bad]).contains("bad has no certificate"));
    assert!(refusal_of(&["--scrape-cert", certificate]).contains("--scrape-key"));
    assert!(refusal_of(&["--model-server-metrics-scheme", "https"]).contains("--scrape-ca"));
}

#[tokio::test]
async fn an_address_open_to_everyone_is_logged_with_the_flags_that_protect_it() {
    let authority = Authority::new();
    let issued = authority.issue("127.0.0.1");
    let token = issued.key.with_extension("token");
    std::fs::write(&token, "secret").unwrap();
    let (certificate, key) = (issued.certificate.to_str().unwrap(), issued.key.to_str().unwrap());
    let token = token.to_str().unwrap();
    let tls = ["--tls-cert", certificate, "--tls-key", key];
    for (listen, flags, warns) in [
        ("0.0.0.0:0", vec![], true),
        ("0.0.0.0:0", tls.to_vec(), true),
        ("0.0.0.0:0", vec!["--bearer-token-file", token], true),
        ("0.0.0.0:0", [&tls[..], &["--bearer-token-file", token]].concat(), false),
        ("127.0.0.1:0", vec![], false),
    ] {
        let flags = [&["--listen", listen, "--endpoint", "127.0.0.1:1"], &flags[..]].concat();
        let (child, address) = start(&flags).await;
        // After an answer or a refused handshake, the agent has begun to serve and has logged the warning.
        let _ = get(([127, 0, 0, 1], address.port()).into(), "/healthz").await;
        signal(&child, "TERM").await;
        let (_, log) = logs(child).await;
        assert_eq!(log.contains("everyone who reaches this address"), warns, "{flags:?}: {log}");
        assert_eq!(log.contains("--bearer-token-file or --tls-client-ca"), warns, "{flags:?}: {log}");
    }
}

#[tokio::test]
async fn no_secret_is_logged_at_any_level() {
    let authority = Authority::new();
    let issued = authority.issue("127.0.0.1");
    let file = |name: &str, text: &str| {
        let path = issued.key.with_extension(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let (api_token, scrape_token) = (file("api", "api-hush-1"), file("scrape", "scrape-hush-1"));
    let text = Behaviour::Text(load(1, 1));
    let server = ScriptedServer::start_secured(text, authority.server(&issued)).await;
    let (certificate, key) = (issued.certificate.to_str().unwrap(), issued.key.to_str().unwrap());
    let authorities = authority.certificate();
    let authorities = authorities.to_str().unwrap();
    let endpoint = server.address().to_string();
    let (child, address) = start(
        &[
            &["--listen", "127.0.0.1:0", "--endpoint", &endpoint, "--log", "trace"][..],
            &["--tls-cert", certificate, "--tls-key", key, "--tls-client-ca", authorities],
            &["--bearer-token-file", &api_token, "--scrape-token-file", &scrape_token],
            &["--model-server-metrics-scheme", "https", "--scrape-ca", authorities],
            &["--scrape-cert", certificate, "--scrape-key", key],
        ]
        .concat(),
    )
    .await;
    let client = authority.issue("client");
    let answers = async |path: &str, token: &str, passes: &dyn Fn(&Answer) -> bool| {
        eventually(&format!("{path} with {token}"), async || {
            let mut stream = authority.connect(address, Some(&client)).await.ok()?;
            let answer = send(&mut stream, path, &format!("authorization: Bearer {token}\r\n")).await.ok()?;
            passes(&answer).then_some(())
        })
        .await;
    };
    answers("/v1/pools/default/snapshot", "api-hush-1", &|answer| answer.status == 200).await;
    answers("/metrics", "wrong-hush", &|answer| answer.status == 401).await;
    file("scrape", "scrape-hush-2");
    eventually("the new token", async || {
        (server.authorization().as_deref() == Some("Bearer scrape-hush-2")).then_some(())
    })
    .await;
    file("api", "api-hush-2");
    answers("/metrics", "api-hush-2", &|answer| answer.status == 200).await;
    let key = std::fs::read_to_string(key).unwrap();
    file("api", "hush \u{1}");
    file("key", "-----BEGIN PRIVATE KEY-----\nhush\n");
    // Three refusals: the API's tokens, and the key, which the API and scrapes share.
    let refusals = "metrics_agent_credential_reloads_total{result=\"refused\"} 3\n";
    answers("/metrics", "api-hush-2", &|answer| answer.text().contains(refusals)).await;
    signal(&child, "TERM").await;
    let (_, log) = logs(child).await;
    assert!(log.contains("credentials read"), "{log}");
    assert!(!log.contains("hush"), "{}", log.lines().find(|line| line.contains("hush")).unwrap_or_default());
    assert!(key.lines().all(|line| !log.contains(line)));
}
