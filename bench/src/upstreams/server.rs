//! Model servers that cost next to nothing, so that a measurement shows the cost of the proxy.

use super::request::{RequestKind, request};
use anyhow::Result;
use bytes::Bytes;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime;
use tokio_util::sync::{CancellationToken, DropGuard};

const ANSWER: &str = concat!(
    r#"{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"demo-model","choices":[{"index":0,"#,
    r#""message":{"role":"assistant","content":"Four."},"finish_reason":"stop"}],"#,
    r#""usage":{"prompt_tokens":512,"completion_tokens":2,"total_tokens":514}}"#,
);

/// Chunks of a streamed response, each written by itself as a model server does.
const STREAMED_CHUNKS: usize = 1_000;

/// The few lines that a picker reads.
const METRICS: &str = include_str!("../../../metrics-agent/benches/short.prom");

/// Model servers on ports of their own, in one thread; they end when dropped.
#[derive(Debug)]
pub struct Upstreams {
    addresses: Vec<SocketAddr>,
    answers: Arc<Answers>,
    _stop: DropGuard,
}

impl Upstreams {
    /// Starts this many.
    pub async fn start(count: usize) -> Result<Self> {
        let mut listeners = Vec::new();
        for _ in 0..count {
            listeners.push(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?.into_std()?);
        }
        let addresses = listeners.iter().map(std::net::TcpListener::local_addr).collect::<Result<_, _>>()?;
        let answers = Arc::new(Answers {
            metrics: Mutex::new(metrics(METRICS)),
            scrapes: AtomicU64::new(0),
            paced_chunks: AtomicU64::new(0),
            whole: vec![Bytes::from(response("application/json", ANSWER))],
            streamed: streamed(STREAMED_CHUNKS),
            short: streamed(STREAMED_CHUNKS / 10),
        });
        let stop = CancellationToken::new();
        let serving = Arc::clone(&answers);
        let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
        let stopped = stop.clone();
        thread::Builder::new().name("upstreams".to_owned()).spawn(move || {
            runtime.block_on(async {
                for listener in listeners {
                    tokio::spawn(accept(listener, Arc::clone(&serving)));
                }
                stopped.cancelled().await;
            });
        })?;
        Ok(Self { addresses, answers, _stop: stop.drop_guard() })
    }

    /// Where they listen.
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Serves this text as `/metrics` from now on; `None` for the few lines that a picker reads.
    pub fn set_metrics_text(&self, text: Option<&str>) {
        *self.answers.metrics() = metrics(text.unwrap_or(METRICS));
    }

    /// How many chunks were written one at a time.
    pub fn paced_chunks(&self) -> u64 {
        self.answers.paced_chunks.load(Ordering::Relaxed)
    }

    /// How often `/metrics` was read.
    pub fn scrapes(&self) -> u64 {
        self.answers.scrapes.load(Ordering::Relaxed)
    }
}

async fn accept(listener: std::net::TcpListener, answers: Arc<Answers>) -> Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        // The load generator counts failures, so the end of a connection does not matter here.
        tokio::spawn(serve(stream, Arc::clone(&answers)));
    }
}

/// The responses; those to requests in the parts in which they are written.
#[derive(Debug)]
struct Answers {
    metrics: Mutex<Bytes>,
    scrapes: AtomicU64,
    paced_chunks: AtomicU64,
    whole: Vec<Bytes>,
    streamed: Vec<Bytes>,
    short: Vec<Bytes>,
}

impl Answers {
    fn metrics(&self) -> MutexGuard<'_, Bytes> {
        self.metrics.lock().expect("no holder of this lock panics")
    }
}

/// Between two chunks that come one at a time.
const PACE: Duration = Duration::from_millis(2);

fn streamed(chunks: usize) -> Vec<Bytes> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let event = concat!(
        r#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"demo-model","#,
        r#""choices":[{"index":0,"delta":{"content":" four"},"finish_reason":null}]}"#,
        "\n\n"
    );
    let chunk = |event: &str| format!("{:x}\r\n{event}\r\n", event.len());
    let chunks = std::iter::repeat_n(chunk(event), chunks - 1);
    let end = [chunk("data: [DONE]\n\n"), "0\r\n\r\n".to_owned()];
    std::iter::once(head.to_owned()).chain(chunks).chain(end).map(Bytes::from).collect()
}

fn metrics(text: &str) -> Bytes {
    response("text/plain; version=0.0.4", text).into()
}

fn response(content_type: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// Answers one request after another until the client goes.
async fn serve(mut stream: TcpStream, answers: Arc<Answers>) -> Result<()> {
    let mut buffer = Vec::with_capacity(16 << 10);
    loop {
        let (kind, length) = loop {
            if let Some(request) = request(&buffer)? {
                break request;
            }
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        };
        buffer.drain(..length);
        let answer = match kind {
            RequestKind::Metrics => {
                answers.scrapes.fetch_add(1, Ordering::Relaxed);
                let text = answers.metrics().clone();
                stream.write_all(&text).await?;
                continue;
            }
            RequestKind::Whole => &answers.whole,
            RequestKind::Streamed | RequestKind::Paced => &answers.streamed,
            RequestKind::PacedShort => &answers.short,
        };
        let mut pace = tokio::time::interval(PACE);
        for part in answer {
            if matches!(kind, RequestKind::Paced | RequestKind::PacedShort) {
                pace.tick().await;
                answers.paced_chunks.fetch_add(1, Ordering::Relaxed);
            }
            stream.write_all(part).await?;
        }
    }
}
