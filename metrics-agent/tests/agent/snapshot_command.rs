//! `metrics-agent snapshot`.

use std::process::{Output, Stdio};

use metrics_agent::agent::Settings;
use metrics_agent::api::access::credentials::{Files, TlsFiles};
use tokio::process::Command;

use crate::authority::Authority;
use crate::harness::{Agent, options_for, scraping};
use crate::reports::report_once;
use crate::scripted::{Behaviour, ScriptedServer, load};

pub(crate) async fn snapshot(flags: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_metrics-agent"));
    command.arg("snapshot").args(flags).env_remove("RUST_LOG").stdin(Stdio::null());
    command.output().await.unwrap()
}

async fn printed(flags: &[&str]) -> String {
    let output = snapshot(flags).await;
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

async fn refusal(flags: &[&str]) -> String {
    let output = snapshot(flags).await;
    assert_eq!((output.status.success(), output.stdout.as_slice()), (false, &b""[..]));
    String::from_utf8(output.stderr).unwrap()
}

async fn agent_with_a_reading(pool: &str) -> (Agent, ScriptedServer) {
    let server = ScriptedServer::start(Behaviour::Text(load(3, 7))).await;
    let settings = Settings { options: options_for(pool), ..scraping(&[server.address()]) };
    let agent = Agent::start(settings).await;
    crate::harness::eventually("a reading", async || {
        let status =
            agent.get(&format!("/v1/pools/{}", pool.replace('/', "%2F").replace(' ', "%20"))).await.text();
        status.contains(r#""waiting":3"#).then_some(())
    })
    .await;
    (agent, server)
}

/// The endpoint's row without its age.
fn row(table: &str, server: &ScriptedServer) -> Vec<String> {
    let name = format!("default/{}", server.address());
    let line = table.lines().find(|line| line.starts_with(&name)).unwrap_or_else(|| panic!("{table}"));
    line.split_whitespace().take(5).map(str::to_owned).collect()
}

#[tokio::test]
async fn the_pool_of_a_live_agent_is_printed_under_any_name() {
    for pool in ["default", "ns/pool 1"] {
        let (agent, server) = agent_with_a_reading(pool).await;
        let url = format!("http://{}", agent.address);
        let expected = [&format!("default/{}", server.address()), "ready", "3", "7", "-"];
        let table = printed(&["--agent", &url]).await;
        assert!(table.starts_with(&format!("pool {pool}: 1 ready\n")), "{table}");
        assert_eq!(row(&table, &server), expected);
        assert_eq!(row(&printed(&["--agent", &url, "--pool", pool]).await, &server), expected);
        let address = agent.address.to_string();
        assert_eq!(row(&printed(&["--agent", &address]).await, &server), expected);
    }
}

#[tokio::test]
async fn the_agreement_of_a_shadow_is_printed_if_a_proxy_has_one() {
    let (agent, server) = agent_with_a_reading("default").await;
    let url = format!("http://{}", agent.address);
    assert!(!printed(&["--agent", &url]).await.contains("shadow"));
    report_once(&agent, &server).await;
    let table = printed(&["--agent", &url]).await;
    assert!(table.contains("\nshadow agrees on 73.1 % of 41 requests\n"), "{table}");
}

#[tokio::test]
async fn a_recorded_answer_of_either_kind_is_printed() {
    let (agent, server) = agent_with_a_reading("default").await;
    let folder = tempfile::tempdir().unwrap();
    for path in ["/v1/pools/default", "/v1/pools/default/snapshot"] {
        let file = folder.path().join("recorded");
        std::fs::write(&file, agent.get(path).await.body).unwrap();
        let table = printed(&[file.to_str().unwrap()]).await;
        assert_eq!(row(&table, &server)[1..4], ["ready", "3", "7"], "{path}: {table}");
    }
}

#[tokio::test]
async fn errors_of_snapshot_name_the_place_and_the_allowed_values() {
    let (agent, _server) = agent_with_a_reading("default").await;
    let url = format!("http://{}", agent.address);
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, bytes: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let without = agent.snapshot("").await.unwrap();
    let without = format!("/v1/pools/default/snapshot?topology={}", without.topology_version);
    let without = agent.get(&without).await.body;
    for (flags, parts) in [
        (vec!["--agent", &url, "--pool", "other"], ["no such pool", "allowed: default"]),
        (vec!["--agent", "http://127.0.0.1:1"], ["--agent", "cannot connect"]),
        (vec!["--agent", "ftp://127.0.0.1:1"], ["--agent", "http://127.0.0.1:9095"]),
        (vec!["--agent", "https://127.0.0.1:1"], ["--agent https://…", "--agent-ca"]),
        (vec!["/nowhere/at/all"], ["/nowhere/at/all", "No such file"]),
        (vec![&file("text", b"hello")], ["text", "malformed"]),
        (vec![&file("json", b"{\"pool\": 1}")], ["json", "not a response of /v1/pools"]),
        (vec![&file("readings", &without)], ["readings", "no topology"]),
        (vec!["file", "--agent", &url], ["--agent", "cannot be used with"]),
    ] {
        let refusal = refusal(&flags).await;
        for part in parts {
            assert!(refusal.contains(part), "{flags:?}: {refusal:?} lacks {part:?}");
        }
    }
}

#[tokio::test]
async fn certificate_and_token_are_sent_to_an_agent_that_requires_both() {
    let (authority, stranger) = (Authority::new(), Authority::new());
    let issued = authority.issue("agent.example");
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    };
    let (right, wrong) = (file("right", "hush-1\n"), file("wrong", "hush-2\n"));
    let tls = TlsFiles {
        certificate: issued.certificate,
        key: issued.key,
        client_authorities: Some(authority.certificate()),
    };
    let credentials = Files { tls: Some(tls), tokens: Some(right.clone()), ..Files::default() };
    let server = ScriptedServer::start(Behaviour::Text(load(3, 7))).await;
    let agent = Agent::start(Settings { credentials, ..scraping(&[server.address()]) }).await;
    let url = format!("https://{}", agent.address);
    let client = authority.issue("client");
    let (ca, other_ca) = (authority.certificate(), stranger.certificate());
    let flags_with = |ca: &std::path::Path, name: &str, token: &std::path::Path| {
        let paths =
            [ca, &client.certificate, &client.key, token].map(|path| path.to_str().unwrap().to_owned());
        let [ca, certificate, key, token] = paths;
        let flags = [
            ["--agent", &url],
            ["--agent-ca", &ca],
            ["--agent-server-name", name],
            ["--agent-cert", &certificate],
            ["--agent-key", &key],
            ["--agent-token-file", &token],
        ];
        flags.concat().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    let all = flags_with(&ca, "agent.example", &right);
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    crate::harness::eventually("a reading over TLS", async || {
        let output = snapshot(&all).await;
        let table = String::from_utf8(output.stdout).unwrap();
        (output.status.success() && row(&table, &server)[1..4] == ["ready", "3", "7"]).then_some(())
    })
    .await;
    for (flags, part) in [
        (flags_with(&other_ca, "agent.example", &right), "no authority of --agent-ca has issued"),
        (flags_with(&ca, "other.example", &right), "set --agent-server-name to a name in"),
        (flags_with(&ca, "agent.example", &wrong), "401"),
        (flags_with(&ca, "agent.example", folder.path()), "cannot be read"),
        ([&flags_with(&ca, "agent.example", &right)[..6]].concat(), "403"),
    ] {
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let message = refusal(&flags).await;
        assert!(message.contains(part) && !message.contains("hush"), "{flags:?}: {message}");
    }
}
