//! The real binary: its one line of output, its signals, its exit codes.

use std::io::Read;
use std::net::SocketAddr;
use std::process::Stdio;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::harness::{eventually, get};
use crate::scripted::{Behaviour, Scripted, load};

fn command(flags: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_metrics-agent"));
    command.args(flags).env_remove("RUST_LOG").kill_on_drop(true);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

async fn start(flags: &[&str]) -> (Child, SocketAddr) {
    let mut child = command(flags).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).await.unwrap();
    let address = line.trim_end().strip_prefix("listening on ").unwrap_or_else(|| panic!("{line:?}"));
    let address = address.parse().unwrap();
    (child, address)
}

/// Sends a signal by its name to a process this test started.
async fn signal(child: &Child, name: &str) {
    let id = child.id().expect("it runs").to_string();
    assert!(Command::new("kill").args(["-s", name, &id]).status().await.unwrap().success());
}

async fn logs(child: Child) -> (std::process::ExitStatus, String) {
    let output = tokio::time::timeout(Duration::from_secs(10), child.wait_with_output()).await;
    let output = output.expect("it ends within seconds").unwrap();
    (output.status, String::from_utf8(output.stderr).unwrap())
}

#[tokio::test]
async fn either_signal_drains_answers_who_waits_and_ends_well() {
    for name in ["TERM", "INT"] {
        let server = Scripted::start(Behaviour::Hang).await;
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
    let mut server = Scripted::start(Behaviour::Text(load(1, 1))).await;
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
    assert_eq!(log.matches("scraping fails").count(), 1, "{log}");
    assert_eq!(log.matches("scraping works again").count(), 1, "{log}");
    assert!(log.lines().count() < 10, "{log}");
}

fn refused(flags: &[&str]) -> String {
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_metrics-agent"))
        .args(flags)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(!child.wait().unwrap().success(), "{said}");
    said
}

#[test]
fn what_cannot_work_is_refused_with_the_flag_that_says_it() {
    let endpoint = ["--listen", "127.0.0.1:0", "--endpoint", "127.0.0.1:1"];
    let with = |more: &[&'static str]| refused(&[&endpoint[..], more].concat());
    assert!(refused(&[]).contains("--endpoints-file"));
    assert!(with(&["--eds-file", "/nonexistent/eds.json"]).contains("--eds-file"));
    assert!(with(&["--log", "a=b=c"]).contains("--log"));
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    assert!(refused(&["--listen", &address, "--endpoint", "127.0.0.1:1"]).contains("--listen"));
}
