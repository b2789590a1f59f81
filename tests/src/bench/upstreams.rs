//! Model servers that cost next to nothing, so that the proxy is what is measured.

use anyhow::{Context, Result};
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime;
use tokio_util::sync::{CancellationToken, DropGuard};

const ANSWER: &str = concat!(
    r#"{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"demo-model","choices":[{"index":0,"#,
    r#""message":{"role":"assistant","content":"Four."},"finish_reason":"stop"}],"#,
    r#""usage":{"prompt_tokens":512,"completion_tokens":2,"total_tokens":514}}"#,
);

/// Chunks of a streamed answer, each written by itself as a model server does.
const STREAMED_CHUNKS: usize = 1_000;

const METRICS: &str = r#"# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="demo-model"} 4.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="demo-model"} 0.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="demo-model"} 0.25
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",engine="0",num_gpu_blocks="8192"} 1.0
"#;

/// Model servers on ports of their own, in one thread; they end when dropped.
#[derive(Debug)]
pub(super) struct Upstreams {
    addresses: Vec<SocketAddr>,
    _stop: DropGuard,
}

impl Upstreams {
    /// Starts this many.
    pub(super) async fn start(count: usize) -> Result<Self> {
        let mut listeners = Vec::new();
        for _ in 0..count {
            listeners.push(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?.into_std()?);
        }
        let addresses = listeners.iter().map(std::net::TcpListener::local_addr).collect::<Result<_, _>>()?;
        let stop = CancellationToken::new();
        let runtime = runtime::Builder::new_current_thread().enable_io().build()?;
        let stopped = stop.clone();
        thread::Builder::new().name("upstreams".to_owned()).spawn(move || {
            runtime.block_on(async {
                for listener in listeners {
                    tokio::spawn(accept(listener));
                }
                stopped.cancelled().await;
            });
        })?;
        Ok(Self { addresses, _stop: stop.drop_guard() })
    }

    /// Where they listen.
    pub(super) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }
}

async fn accept(listener: std::net::TcpListener) -> Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let answers: &'static Answers = Box::leak(Box::new(Answers {
        metrics: vec![response("text/plain; version=0.0.4", METRICS)],
        whole: vec![response("application/json", ANSWER)],
        streamed: streamed(),
    }));
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        // How a connection ends is its client's affair: the load generator counts what went wrong.
        tokio::spawn(serve(stream, answers));
    }
}

/// The parts of each answer, as they are written.
struct Answers {
    metrics: Vec<String>,
    whole: Vec<String>,
    streamed: Vec<String>,
}

enum Asked {
    Metrics,
    Whole,
    Streamed,
}

/// What a body that asks for a streamed answer contains.
const STREAM: &[u8] = br#""stream":true"#;

fn streamed() -> Vec<String> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let event = concat!(
        r#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"demo-model","#,
        r#""choices":[{"index":0,"delta":{"content":" four"},"finish_reason":null}]}"#,
        "\n\n"
    );
    let chunk = format!("{:x}\r\n{event}\r\n", event.len());
    let chunks = std::iter::repeat_n(chunk, STREAMED_CHUNKS);
    std::iter::once(head.to_owned()).chain(chunks).chain(["0\r\n\r\n".to_owned()]).collect()
}

fn response(content_type: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// Answers one request after another until the client goes.
async fn serve(mut stream: TcpStream, answers: &Answers) -> Result<()> {
    let mut buffer = Vec::with_capacity(16 << 10);
    loop {
        let (asked, length) = loop {
            if let Some(request) = request(&buffer)? {
                break request;
            }
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        };
        buffer.drain(..length);
        let answer = match asked {
            Asked::Metrics => &answers.metrics,
            Asked::Whole => &answers.whole,
            Asked::Streamed => &answers.streamed,
        };
        for part in answer {
            stream.write_all(part.as_bytes()).await?;
        }
    }
}

/// What the first request in `bytes` asks for, and how long it is with its body; `None` until it is complete.
fn request(bytes: &[u8]) -> Result<Option<(Asked, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(head) = request.parse(bytes)? else { return Ok(None) };
    let length = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let body: usize = match length {
        Some(length) => str::from_utf8(length.value)?.parse().context("content-length")?,
        None => 0,
    };
    let is_get = request.method == Some("GET");
    let Some(body) = bytes.get(head..head + body) else { return Ok(None) };
    let asked = if is_get {
        Asked::Metrics
    } else if body.windows(STREAM.len()).any(|part| part == STREAM) {
        Asked::Streamed
    } else {
        Asked::Whole
    };
    Ok(Some((asked, head + body.len())))
}
