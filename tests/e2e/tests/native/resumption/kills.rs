//! Model servers that are killed under many streams.

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use endpoint_picker_e2e::chaos::assert_survives;
use endpoint_picker_e2e::fixture::{CHAT, fresh_chat, fresh_prompt};
use endpoint_picker_harness::client;
use endpoint_picker_harness::eventually::eventually;
use endpoint_picker_harness::program::{Process, ServerProcess};
use endpoint_picker_harness::stack::Stack;
use endpoint_picker_harness::tools;
use endpoint_picker_model_server::{ModelServer, SERVED_BY};
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::task::JoinHandle;

use super::{Received, TOKENS, assert_whole, builder, count, post, streamed, undisturbed};

const SERVERS: usize = 3;

/// Tokens of streams that last longer than two kills take.
const LONG: usize = 600;

/// A stream that brings this many chunks more has another server: none of a terminated server is on its way
/// any more.
const FURTHER: usize = 3;

/// Streams of each SDK.
const STREAMS_OF_SDK: usize = 12;

/// Tokens of these streams, which last longer than the other SDK takes to start.
const TOKENS_OF_SDK: usize = 400;

/// Model servers as processes, with Envoy in front of them.
pub(super) struct Servers {
    pub(super) processes: Vec<ServerProcess>,
    pub(super) stack: Stack,
    logs: TempDir,
}

/// A stream that a client reads.
struct OpenStream {
    request: Value,
    /// Chunks that have arrived.
    chunks: Arc<AtomicUsize>,
    end: JoinHandle<anyhow::Result<(String, Received)>>,
}

impl OpenStream {
    fn arrived(&self) -> usize {
        self.chunks.load(Ordering::Relaxed)
    }
}

/// Waits until every stream that has not ended has brought more tokens.
async fn until_all_go_on(streams: &[OpenStream]) {
    let before: Vec<_> = streams.iter().map(OpenStream::arrived).collect();
    eventually("all streams go on", async || {
        let goes_on = |(stream, before): &(&OpenStream, &usize)| {
            stream.end.is_finished() || stream.arrived() >= **before + FURTHER
        };
        let count = streams.iter().zip(&before).filter(goes_on).count();
        anyhow::ensure!(count == streams.len(), "{count} of {}", streams.len());
        anyhow::Ok(())
    })
    .await;
}

impl Servers {
    pub(super) async fn start() -> Self {
        let logs = TempDir::new().unwrap();
        let mut processes = Vec::new();
        for number in 0..SERVERS {
            let log = logs.path().join(format!("server-{number}.log"));
            processes.push(ServerProcess::model_server(&number.to_string(), &log).await.unwrap());
        }
        let addresses: Vec<_> = processes.iter().map(ServerProcess::address).collect();
        let stack = builder().other_servers(&addresses).start().await;
        Self { processes, stack, logs }
    }

    /// Opens streams of this many tokens and waits until half of them have begun: the first ones have not
    /// ended by then.
    async fn open(&self, streams: usize, tokens: usize) -> Vec<OpenStream> {
        let open = |_| {
            let (url, mut request) = (self.stack.url(CHAT), streamed(fresh_chat()));
            request["max_tokens"] = tokens.into();
            let (sent, chunks) = (request.clone(), Arc::new(AtomicUsize::new(0)));
            let arrived = Arc::clone(&chunks);
            let end = tokio::spawn(async move {
                let mut response = post(url, &sent).await?;
                let server = response.headers()[SERVED_BY].to_str()?.to_owned();
                let mut body = Vec::new();
                while let Some(chunk) = response.chunk().await? {
                    arrived.fetch_add(1, Ordering::Relaxed);
                    body.extend_from_slice(&chunk);
                }
                Ok((server, Received::of(String::from_utf8(body)?)?))
            });
            OpenStream { request, chunks, end }
        };
        let opened: Vec<_> = (0..streams).map(open).collect();
        eventually("half of the streams have begun", async || {
            let begun = opened.iter().filter(|stream| stream.arrived() > 0).count();
            anyhow::ensure!(begun >= streams / 2, "{begun}");
            anyhow::Ok(())
        })
        .await;
        opened
    }

    /// The server that runs the most requests.
    pub(super) async fn busiest(&self) -> usize {
        let mut busiest = (0.0, 0);
        for (index, process) in self.processes.iter().enumerate() {
            let url = format!("http://{}/metrics", process.address());
            // A server that has ended sends no response.
            let Ok(response) = client::http1().get(url).send().await else { continue };
            let text = response.text().await.unwrap();
            let mut lines = text.lines().filter(|line| line.starts_with("vllm:num_requests_running{"));
            let running: f64 = lines.next().unwrap().rsplit(' ').next().unwrap().parse().unwrap();
            if running > busiest.0 {
                busiest = (running, index);
            }
        }
        busiest.1
    }

    pub(super) async fn until_resumed(&self, at_least: u64) {
        eventually("streams are resumed", async || {
            let resumed = count(&self.stack, "resumed_streams").await;
            anyhow::ensure!(resumed >= at_least, "{resumed} of {at_least}");
            anyhow::Ok(())
        })
        .await;
    }
}

/// Checks that each stream is whole; returns how many had begun at each server.
async fn assert_all_whole(streams: Vec<OpenStream>) -> [u64; SERVERS] {
    let reference = ModelServer::start().unwrap();
    let mut begun_at = [0; SERVERS];
    for OpenStream { request, end, .. } in streams {
        let (server, received) = end.await.unwrap().unwrap();
        assert_whole(&received, &undisturbed(&reference, CHAT, &request).await);
        begun_at[server.parse::<usize>().unwrap()] += 1;
    }
    begun_at
}

#[tokio::test(flavor = "multi_thread")]
async fn no_stream_is_truncated_when_a_server_is_killed() {
    const STREAMS: usize = 200;
    let mut servers = Servers::start().await;
    let streams = servers.open(STREAMS, TOKENS).await;
    let killed = servers.busiest().await;
    servers.processes[killed].kill();
    let begun_at = assert_all_whole(streams).await;
    servers.until_resumed(1).await;
    let resumed = count(&servers.stack, "resumed_streams").await;
    assert!(resumed <= begun_at[killed], "{resumed}: {begun_at:?}");
    assert_eq!(count(&servers.stack, "resumable_streams").await, STREAMS as u64);
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_survive_a_server_that_is_terminated_and_one_that_dies_during_the_continuation() {
    let mut servers = Servers::start().await;
    let streams = servers.open(24, LONG).await;
    let terminated = servers.busiest().await;
    servers.processes[terminated].terminate();
    // Streams of this server have been resumed, and have begun at the other ones.
    servers.until_resumed(1).await;
    // A text at which two servers have died is sent to no third one, so the second one dies later in the
    // text.
    until_all_go_on(&streams).await;
    let killed = servers.busiest().await;
    servers.processes[killed].kill();
    let begun_at = assert_all_whole(streams).await;
    // More than had begun at the first server: some were resumed for the second one.
    servers.until_resumed(begun_at[terminated] + 1).await;
}

/// A stream as an SDK has returned it to its caller.
#[derive(Debug, Deserialize)]
struct SeenStream {
    text: String,
    ids: Vec<String>,
    reasons: Vec<String>,
    tokens: usize,
}

#[tokio::test(flavor = "multi_thread")]
async fn openais_sdks_see_one_stream_when_a_server_is_killed() {
    let mut servers = Servers::start().await;
    let script = |name: &str| tools::root().join("tests/openai").join(name);
    let mut python = Command::new(tools::openai_python().unwrap());
    python.arg(script("stream.py"));
    let mut javascript = Command::new("node");
    javascript.arg(script("stream.mjs")).arg(tools::openai_packages().unwrap());
    let mut sdks = Vec::new();
    for (name, mut command) in [("openai-python", python), ("openai-node", javascript)] {
        let prompts: Vec<String> = (0..STREAMS_OF_SDK).map(|_| fresh_prompt()).collect();
        command.arg(servers.stack.url("/v1")).arg(TOKENS_OF_SDK.to_string()).arg(json!(prompts).to_string());
        let log = servers.logs.path().join(name);
        sdks.push((name, Process::start(name, command, &log).unwrap(), prompts));
    }
    for (name, process, _) in &mut sdks {
        eventually(&format!("the streams of {name} have begun"), async || {
            let output = process.output()?;
            anyhow::ensure!(output.contains("begun"), "{output}");
            anyhow::Ok(())
        })
        .await;
    }
    let killed = servers.busiest().await;
    servers.processes[killed].kill();
    let reference = ModelServer::start().unwrap();
    for (name, process, prompts) in &mut sdks {
        eventually(&format!("{name} has read its streams"), async || {
            let ended = process.exit_status()?;
            anyhow::ensure!(ended.is_some_and(|status| status.success()), "{ended:?}: {}", process.output()?);
            anyhow::Ok(())
        })
        .await;
        let output = process.output().unwrap();
        let seen: Vec<SeenStream> = serde_json::from_str(output.lines().last().unwrap()).unwrap();
        assert_eq!(seen.len(), prompts.len());
        for (prompt, SeenStream { text, ids, reasons, tokens }) in prompts.iter().zip(seen) {
            let mut request = streamed(client::chat(prompt));
            request["max_tokens"] = TOKENS_OF_SDK.into();
            assert_eq!(text, undisturbed(&reference, CHAT, &request).await.text, "{name}");
            assert_eq!((ids.len(), tokens), (1, TOKENS_OF_SDK), "{name}");
            assert_eq!(reasons, ["length"], "{name}");
        }
    }
    servers.until_resumed(1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_stream_is_lost_whatever_breaks() {
    assert_survives(&["--resume-streams", "--seed", "509", "--seconds", "25"]).await;
}
