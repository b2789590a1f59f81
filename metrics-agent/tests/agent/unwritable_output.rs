//! Output that cannot be written: only the output is lost.

use std::fs::File;
use std::io::{PipeWriter, Write};
use std::path::Path;
use std::process::Stdio;

use metrics_agent::agent::{self, Listeners, Settings};
use metrics_agent_sources::endpoints::Sources;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::Command;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::harness::{DEADLINE, eventually, get, settings};
use crate::process::{command, logs, signal, started};
use crate::scripted::{Behaviour, ScriptedServer, load};

/// Bytes that a pipe holds on Linux.
const PIPE_BYTES: usize = 64 * 1024;

/// A pipe whose reader is closed.
fn closed() -> PipeWriter {
    std::io::pipe().unwrap().1
}

fn full_device() -> File {
    File::options().write(true).open("/dev/full").unwrap()
}

fn write_endpoints(path: &Path, servers: &[&ScriptedServer]) {
    let entries = servers.iter().map(|server| {
        let (ip, port) = (server.address().ip(), server.address().port());
        format!("- {{name: s{port}, address: \"{ip}\", port: {port}}}\n")
    });
    std::fs::write(path, format!("endpoints:\n{}", entries.collect::<String>())).unwrap();
}

/// Changes the endpoints file twice, with a log line each time, and waits until the agent scrapes the file's
/// endpoints.
async fn keeps_working(mut agent: Command) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("endpoints.yaml");
    let one = ScriptedServer::start(Behaviour::Text(load(1, 0))).await;
    let two = ScriptedServer::start(Behaviour::Text(load(2, 0))).await;
    write_endpoints(&path, &[&one]);
    agent.args(["--listen", "127.0.0.1:0", "--endpoints-file"]).arg(&path);
    let (mut child, address) = started(agent).await;
    for servers in [&[&one][..], &[&one, &two], &[&two]] {
        write_endpoints(&path, servers);
        let expected: Vec<_> = servers.iter().map(|server| server.address().to_string()).collect();
        eventually(&format!("readings of {expected:?}"), async || {
            let answer = get(address, "/v1/pools/default").await.ok()?;
            let status: serde_json::Value = serde_json::from_slice(&answer.body).ok()?;
            let endpoints = status["endpoints"].as_array()?.iter();
            let scraped = endpoints.filter(|endpoint| endpoint["state"] == "ready");
            scraped
                .map(|endpoint| endpoint["address"].as_str())
                .eq(expected.iter().map(|a| Some(&**a)))
                .then_some(())
        })
        .await;
    }
    let scrapes = two.requests();
    eventually("further scrapes", async || (two.requests() > scrapes + 3).then_some(())).await;
    assert_eq!(get(address, "/healthz").await.unwrap().status, 200);
    assert!(child.try_wait().unwrap().is_none(), "it runs");
}

#[tokio::test]
async fn a_log_line_that_cannot_be_written_is_only_lost() {
    let mut full_disk = command(&[]);
    full_disk.stderr(full_device());
    keeps_working(full_disk).await;

    let mut no_reader = command(&[]);
    no_reader.stderr(closed());
    keeps_working(no_reader).await;

    let (reader, mut writer) = std::io::pipe().unwrap();
    writer.write_all(&vec![b' '; PIPE_BYTES]).unwrap();
    let mut reader_that_does_not_read = command(&["--log", "trace"]);
    reader_that_does_not_read.stderr(writer);
    keeps_working(reader_that_does_not_read).await;
    drop(reader);
}

#[tokio::test]
async fn a_log_file_at_its_size_limit_costs_only_the_line() {
    let mut limited = Command::new("sh");
    limited.args(["-c", "ulimit -f 0 && exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_metrics-agent")]);
    let log = tempfile::tempfile().unwrap();
    limited.env_remove("RUST_LOG").kill_on_drop(true).stdout(Stdio::piped()).stderr(log.try_clone().unwrap());
    keeps_working(limited).await;
    assert_eq!(log.metadata().unwrap().len(), 0, "the limit holds");
}

#[tokio::test]
async fn an_agent_whose_standard_output_is_closed_serves() {
    let mut agent = command(&["--listen", "127.0.0.1:0", "--endpoint", "127.0.0.1:1"]);
    let mut child = agent.stdout(closed()).spawn().unwrap();
    let mut log = BufReader::new(child.stderr.take().unwrap()).lines();
    let address = loop {
        let line = timeout(DEADLINE, log.next_line()).await.unwrap().unwrap().expect("it names its address");
        if let Some((_, fields)) = line.split_once("listening address=") {
            break fields.split(' ').next().unwrap().parse().unwrap();
        }
    };
    assert_eq!(get(address, "/healthz").await.unwrap().status, 200);
    signal(&child, "TERM").await;
    assert_eq!(logs(child).await.0.code(), Some(0));
}

#[tokio::test]
async fn a_command_whose_output_pipe_is_closed_ends_quietly() {
    let directory = tempfile::tempdir().unwrap();
    let (pool, body) = (directory.path().join("pool.json"), directory.path().join("body.json"));
    std::fs::write(&pool, r#"{"pool": "p", "endpoints": [], "proxies": []}"#).unwrap();
    std::fs::write(&body, "{}").unwrap();
    let manifest = directory.path().join("m.yaml");
    std::fs::write(
        &manifest,
        "apiVersion: llm-d.ai/v1alpha2\nkind: InferenceObjective\nmetadata: {name: batch}\n\
         spec: {priority: -10, poolRef: {name: default}}\n",
    )
    .unwrap();
    for arguments in [["snapshot", pool.to_str().unwrap()], ["check", manifest.to_str().unwrap()]] {
        let output = command(&arguments).stdout(closed()).spawn().unwrap();
        let (status, stderr) = logs(output).await;
        assert_eq!((status.code(), stderr.as_str()), (Some(0), ""), "{arguments:?}");

        let output = command(&arguments).stdout(full_device()).spawn().unwrap();
        let (status, stderr) = logs(output).await;
        assert_eq!(status.code(), Some(1), "{arguments:?}");
        assert!(stderr.contains("cannot write to standard output: No space"), "{stderr}");

        // Neither output can be written: only the exit code is left.
        let output = command(&arguments).stdout(full_device()).stderr(full_device()).spawn().unwrap();
        assert_eq!(logs(output).await.0.code(), Some(1), "{arguments:?}");
    }
    let output = command(&["check", "/nonexistent"]).stderr(closed()).spawn().unwrap();
    assert_eq!(logs(output).await.0.code(), Some(1));
}

/// The panic of the log stands in for any bug in a task.
#[tokio::test]
async fn a_task_that_ends_unexpectedly_ends_the_agent_with_its_name_and_reason() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("endpoints.yaml");
    std::fs::write(&path, "endpoints: []\n").unwrap();
    let log = || -> std::io::Sink { panic!("the log broke") };
    let subscriber = tracing_subscriber::fmt()
        .with_writer(log)
        .with_env_filter("metrics_agent_sources::endpoints=info")
        .finish();
    let _log = tracing::subscriber::set_default(subscriber);
    let sources = Sources { file: Some(path.clone()), ..Sources::default() };
    let api = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let listeners = Listeners { api, health: None, extension: None };
    let run = agent::run(Settings { sources, ..settings() }, listeners, CancellationToken::new());
    let error = timeout(DEADLINE, run).await.expect("it ends").unwrap_err().to_string();
    let expected =
        format!("the task \"endpoints file {}\" ended: it panicked: the log broke", path.display());
    assert_eq!(error, expected);
}
