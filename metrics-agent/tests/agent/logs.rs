//! Signals, and what the agent logs.

use crate::authority::Authority;
use crate::harness::{Answer, eventually, get, send};
use crate::process::{logs, signal, start};
use crate::scripted::{Behaviour, ScriptedServer, load};

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

#[tokio::test]
async fn a_doubtful_field_and_a_body_without_metrics_are_logged_once_with_the_way_out() {
    let text = load(3, 1) + "vllm:num_requests_waiting{replica=\"b\"} 9\n";
    let server = ScriptedServer::start(Behaviour::Text(text)).await;
    let endpoint = server.address().to_string();
    let (child, address) = start(&["--listen", "127.0.0.1:0", "--endpoint", &endpoint]).await;
    let counted = |name: &'static str| async move {
        eventually(name, async || {
            let text = get(address, "/metrics").await.ok()?.text();
            let value: f64 = text.lines().find_map(|line| line.strip_prefix(name))?.trim().parse().ok()?;
            (value >= 3.0).then_some(())
        })
        .await;
    };
    counted("metrics_agent_extract_errors_total{field=\"waiting\",reason=\"ambiguous\"}").await;
    server.set_behaviour(Behaviour::Body("content-type: application/json\r\n", b"[]".to_vec()));
    counted("metrics_agent_scrape_errors_total{reason=\"no_metrics\"}").await;
    signal(&child, "TERM").await;
    let (_, log) = logs(child).await;
    assert_eq!(log.matches("sumOverLabelName").count(), 1, "{log}");
    assert!(log.contains("vllm:num_requests_waiting") && log.contains("replica"), "{log}");
    assert_eq!(log.matches("application/json").count(), 1, "{log}");
    assert!(log.contains("--metrics-path") && log.contains("/prometheus/metrics"), "{log}");
}

#[tokio::test]
async fn an_address_open_to_other_hosts_is_logged_with_the_flags_that_protect_it() {
    let authority = Authority::new();
    let issued = authority.issue("127.0.0.1");
    let token = issued.key.with_extension("token");
    std::fs::write(&token, "secret").unwrap();
    let (certificate, key) = (issued.certificate.to_str().unwrap(), issued.key.to_str().unwrap());
    let token = token.to_str().unwrap();
    let tls = ["--tls-cert", certificate, "--tls-key", key];
    let unauthenticated = Some("may neither report nor share changes; set --tls-cert and --tls-key");
    for (listen, flags, warning) in [
        ("0.0.0.0:0", vec![], unauthenticated),
        ("0.0.0.0:0", tls.to_vec(), unauthenticated),
        ("0.0.0.0:0", vec!["--allow-unauthenticated-writes"], Some("whoever reaches it steers all proxies")),
        ("0.0.0.0:0", vec!["--bearer-token-file", token], Some("tokens are sent in plain text")),
        ("0.0.0.0:0", [&tls[..], &["--bearer-token-file", token]].concat(), None),
        ("127.0.0.1:0", vec![], None),
    ] {
        let flags = [&["--listen", listen, "--endpoint", "127.0.0.1:1"], &flags[..]].concat();
        let (child, address) = start(&flags).await;
        // After a response or a refused handshake, the agent has begun to serve and has logged the warning.
        let _ = get(([127, 0, 0, 1], address.port()).into(), "/healthz").await;
        signal(&child, "TERM").await;
        let (_, log) = logs(child).await;
        let warns = log.contains("reachable from outside this host");
        assert_eq!(warns, warning.is_some(), "{flags:?}: {log}");
        assert!(log.contains(warning.unwrap_or_default()), "{flags:?}: {log}");
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
