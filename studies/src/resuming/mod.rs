//! Streams of agents at two real vLLM, one of which is killed: each is compared with the response of an
//! undisturbed server to the same request.

mod kinds;

use self::kinds::StreamKind;
use crate::vllm::VllmServer;
use anyhow::{Context, Result, ensure};
use endpoint_picker::rng::SplitMix64;
use endpoint_picker_bench::report::Progress;
use endpoint_picker_bench::report::markdown::table;
use endpoint_picker_harness::config::{Config, EDS_FILE, EDS_FOLDER, Places};
use endpoint_picker_harness::endpoint_files::write_eds;
use endpoint_picker_harness::eventually::within;
use endpoint_picker_harness::program::{Agent, Envoy};
use endpoint_picker_harness::run_dir::RunDir;
use endpoint_picker_harness::statistics::PickerStatistics;
use endpoint_picker_harness::stream_output::StreamOutput;
use endpoint_picker_harness::{Filter, client, tools};
use endpoint_picker_model_server::MODEL;
use futures_util::future::try_join_all;
use reqwest::{Client, StatusCode};
use serde_json::{Value, json};
use std::fmt;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

/// The servers' logs, relative to the repository's root.
pub(crate) const REPORTS: &str = "target/resuming";
const SERVERS: usize = 2;
const STREAMS_OF_KIND: usize = 2;
/// A server can generate all streams at once. It separates the reasoning of requests that ask for it. The
/// template keeps texts as they are: with the model's own, which writes a blank before a message, the context
/// of a continued text has a blank more.
const FLAGS: &[&str] = &[
    "--max-num-seqs",
    "16",
    "--reasoning-parser",
    "deepseek_v3",
    "--enable-auto-tool-choice",
    "--tool-call-parser",
    "hermes",
    "--override-generation-config",
    "{}",
    "--chat-template",
    "{% for m in messages %}{{ m['role'] }}:{{ m['content'] }}\n{% endfor %}\
     {% if add_generation_prompt %}assistant:{% endif %}",
];
/// A server is killed when each stream has this many chunks: at least these have output.
const CHUNKS: usize = 12;
const DEADLINE: Duration = Duration::from_mins(3);
/// Workers add to statistics once a second.
const STATISTICS_DEADLINE: Duration = Duration::from_secs(5);
/// The run takes about this long, most of it the servers' start.
pub(crate) const EXPECTED: Duration = Duration::from_mins(3);

/// The streams of a run, in the order of [`StreamKind::ALL`].
#[derive(Debug)]
pub(crate) struct ResumingTable {
    streams: Vec<ReadStream>,
    /// How often the picker continued a stream at the other server.
    resumed: u64,
    statistics: String,
}

/// A stream that its client has read to the end.
#[derive(Debug)]
struct ReadStream {
    kind: StreamKind,
    /// The output as far as it came, and whether the stream was cut.
    seen: StreamOutput,
    is_cut: bool,
    /// The output of an undisturbed server, with the other requests and alone: near ties of two tokens may
    /// fall otherwise in another batch.
    expected: StreamOutput,
    alone: StreamOutput,
}

/// Measures it once.
pub(crate) async fn measure(seed: u64, progress: &Progress) -> Result<ResumingTable> {
    let folder = tools::root().join(REPORTS);
    fs::create_dir_all(&folder)?;
    let start = |_| VllmServer::start(&folder, 1, seed, FLAGS);
    let mut servers = (0..SERVERS).map(start).collect::<Result<Vec<_>>>()?;
    for server in &mut servers {
        server.ready().await?;
    }
    progress.print("the servers are ready");
    let addresses: Vec<_> = servers.iter().map(VllmServer::address).collect();
    let proxy = Proxy::start(&addresses).await?;

    let mut rng = SplitMix64::new(seed);
    let kinds = StreamKind::ALL.iter().flat_map(|kind| [*kind; STREAMS_OF_KIND]);
    let requests: Vec<_> = kinds.map(|kind| (kind, kind.request(&mut rng))).collect();
    let streams: Vec<_> =
        requests.iter().map(|(kind, request)| OpenStream::open(proxy.url(kind.path()), request)).collect();
    until_all_have_begun(&streams).await?;
    let [killed, ..] = &mut *servers else { unreachable!("there are {SERVERS} servers") };
    killed.kill();
    progress.print("one of them was killed");
    let mut seen = Vec::new();
    for stream in streams {
        seen.push(stream.end.await??);
    }

    let undisturbed = addresses.last().context("a server")?;
    let open = |(kind, request): &(StreamKind, Value)| {
        OpenStream::open(format!("http://{undisturbed}{}", kind.path()), request).end
    };
    let together = try_join_all(requests.iter().map(open)).await?;
    let mut read = Vec::new();
    for ((request, (seen, is_cut)), expected) in requests.iter().zip(seen).zip(together) {
        let (expected, alone) = (expected?.0, open(request).await??.0);
        let [seen, expected, alone] = [seen, expected, alone].map(|text| StreamOutput::of(&text));
        ensure!(!expected.text.is_empty() && !expected.ends.is_empty(), "undisturbed: {expected:?}");
        read.push(ReadStream { kind: request.0, seen, is_cut, expected, alone });
    }
    let counted = within(STATISTICS_DEADLINE, async || {
        let statistics = PickerStatistics::of(&proxy.envoy).await?;
        ensure!(statistics.sum("resumed_streams") > 0, "no stream was resumed");
        anyhow::Ok(statistics)
    });
    let statistics = counted.await.map_err(anyhow::Error::msg)?;
    Ok(ResumingTable {
        streams: read,
        resumed: statistics.sum("resumed_streams"),
        statistics: statistics.to_string(),
    })
}

/// Envoy with the module, which resumes streams, and the agent.
struct Proxy {
    // In the order of their end.
    envoy: Envoy,
    _agent: Agent,
    _dir: RunDir,
}

impl Proxy {
    async fn start(servers: &[SocketAddr]) -> Result<Self> {
        let mut dir = RunDir::new()?;
        let folder = dir.path();
        fs::create_dir_all(folder.join(EDS_FOLDER))?;
        write_eds(&folder.join(EDS_FILE), servers)?;
        let eds = folder.join(EDS_FILE).display().to_string();
        let mut flags = ["--eds-cluster", "model-servers", "--eds-file", &eds].map(str::to_owned).to_vec();
        flags.extend(servers.iter().flat_map(|server| ["--endpoint".to_owned(), server.to_string()]));
        let agent = Agent::start((Ipv4Addr::LOCALHOST, 0).into(), flags, &folder.join("agent.log")).await?;
        let places = Places { port: 0, admin_port: 0, agent_port: agent.address().port(), folder };
        let mut config = Config::shipped("examples/resume-streams", Filter::Native, places)?;
        config.set_picker_module(&Filter::Native.module()?)?;
        let envoy = Envoy::start(&config, folder, 1).await?;
        dir.settle();
        let proxy = Self { envoy, _agent: agent, _dir: dir };
        proxy.until_picking().await?;
        Ok(proxy)
    }

    /// Waits until the picker has sent a short stream itself.
    async fn until_picking(&self) -> Result<()> {
        let url = self.url(StreamKind::Chat.path());
        let request = json!({
            "model": MODEL, "messages": [{"role": "user", "content": "bad"}], "stream": true, "max_tokens": 1,
        });
        let picking = within(DEADLINE, async || {
            client::http1().post(&url).json(&request).send().await?.error_for_status()?.text().await?;
            let statistics = PickerStatistics::of(&self.envoy).await?;
            ensure!(statistics.sum("resumable_streams") > 0, "the picker has sent no stream");
            anyhow::Ok(())
        });
        picking.await.map_err(anyhow::Error::msg)
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.envoy.listener())
    }
}

/// A stream that its client reads.
struct OpenStream {
    /// Chunks that have come.
    chunks: Arc<AtomicUsize>,
    /// The text, and whether it was cut.
    end: JoinHandle<Result<(String, bool)>>,
}

impl OpenStream {
    fn open(url: String, request: &Value) -> Self {
        let (request, chunks) = (request.clone(), Arc::new(AtomicUsize::new(0)));
        let arrived = Arc::clone(&chunks);
        let end = tokio::spawn(async move {
            let client = Client::builder().no_proxy().http1_only().timeout(DEADLINE).build()?;
            let mut response = client.post(&url).json(&request).send().await?;
            let status = response.status();
            let (mut body, mut is_cut) = (Vec::new(), false);
            loop {
                match response.chunk().await {
                    Ok(Some(chunk)) => body.extend_from_slice(&chunk),
                    Ok(None) => break,
                    Err(_) => {
                        is_cut = true;
                        break;
                    }
                }
                arrived.fetch_add(1, Ordering::Relaxed);
            }
            let body = String::from_utf8(body)?;
            ensure!(status == StatusCode::OK, "{status} {body} to {request}");
            Ok((body, is_cut))
        });
        Self { chunks, end }
    }
}

async fn until_all_have_begun(streams: &[OpenStream]) -> Result<()> {
    let all = within(DEADLINE, async || {
        for stream in streams {
            let chunks = stream.chunks.load(Ordering::Relaxed);
            ensure!(chunks >= CHUNKS || stream.end.is_finished(), "a stream has {chunks} chunks");
        }
        anyhow::Ok(())
    });
    all.await.map_err(anyhow::Error::msg)
}

impl ReadStream {
    fn is_equal(&self) -> bool {
        is_same(&self.seen, &self.expected)
    }

    fn is_repeatable(&self) -> bool {
        is_same(&self.alone, &self.expected)
    }
}

fn is_same(one: &StreamOutput, other: &StreamOutput) -> bool {
    one.text == other.text && one.ends == other.ends
}

impl fmt::Display for ResumingTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let head = [
            "Streams of",
            "count",
            "whole",
            "equal to an undisturbed server's",
            "its own, alone",
            "characters",
        ];
        let of_kind = |kind: &StreamKind| {
            let streams: Vec<_> = self.streams.iter().filter(|stream| stream.kind == *kind).collect();
            let count = |is: fn(&ReadStream) -> bool| streams.iter().filter(|it| is(it)).count().to_string();
            let characters = streams.iter().map(|stream| stream.expected.text.len().to_string());
            let characters = characters.collect::<Vec<_>>().join(", ");
            let whole = count(|stream| !stream.is_cut);
            let equal = [ReadStream::is_equal, ReadStream::is_repeatable].map(count);
            let first = [kind.to_string(), streams.len().to_string(), whole];
            first.into_iter().chain(equal).chain([characters]).collect::<Vec<_>>()
        };
        table(f, &head.map(str::to_owned), StreamKind::ALL.iter().map(of_kind))?;
        writeln!(f, "\n{} streams were continued at the other server.", self.resumed)?;
        for ReadStream { kind, seen, expected, .. } in self.streams.iter().filter(|it| !it.is_equal()) {
            writeln!(f, "\nA stream of {kind} is not equal: {seen:?}\n\nin place of {expected:?}")?;
        }
        let mut cut = self.statistics.lines().filter(|line| line.contains("_streams"));
        cut.try_for_each(|line| writeln!(f, "    {line}"))
    }
}
