//! Model servers that cost next to nothing, so that the proxy is what is measured.

use anyhow::{Context, Result};
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

/// Chunks of a streamed answer, each written by itself as a model server does.
const STREAMED_CHUNKS: usize = 1_000;

/// The few lines that a picker reads.
const METRICS: &str = include_str!("../../metrics-agent/benches/short.prom");

/// Model servers on ports of their own, in one thread; they end when dropped.
#[derive(Debug)]
pub(crate) struct Upstreams {
    addresses: Vec<SocketAddr>,
    shared: Arc<Shared>,
    _stop: DropGuard,
}

impl Upstreams {
    /// Starts this many.
    pub(crate) async fn start(count: usize) -> Result<Self> {
        let mut listeners = Vec::new();
        for _ in 0..count {
            listeners.push(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?.into_std()?);
        }
        let addresses = listeners.iter().map(std::net::TcpListener::local_addr).collect::<Result<_, _>>()?;
        let shared = Arc::new(Shared {
            metrics: Mutex::new(metrics(METRICS)),
            scrapes: AtomicU64::new(0),
            paced_chunks: AtomicU64::new(0),
            whole: vec![Bytes::from(response("application/json", ANSWER))],
            streamed: streamed(),
        });
        let stop = CancellationToken::new();
        let serving = Arc::clone(&shared);
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
        Ok(Self { addresses, shared, _stop: stop.drop_guard() })
    }

    /// Where they listen.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// From now on, `/metrics` is this text; `None` for the few lines that a picker reads.
    pub(crate) fn set_metrics_text(&self, text: Option<&str>) {
        *self.shared.metrics() = metrics(text.unwrap_or(METRICS));
    }

    /// How many chunks were written one at a time.
    pub(crate) fn paced_chunks(&self) -> u64 {
        self.shared.paced_chunks.load(Ordering::Relaxed)
    }

    /// How often `/metrics` was read.
    pub(crate) fn scrapes(&self) -> u64 {
        self.shared.scrapes.load(Ordering::Relaxed)
    }
}

async fn accept(listener: std::net::TcpListener, shared: Arc<Shared>) -> Result<()> {
    let listener = TcpListener::from_std(listener)?;
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        // How a connection ends is its client's affair: the load generator counts what went wrong.
        tokio::spawn(serve(stream, Arc::clone(&shared)));
    }
}

/// The answers, those to requests in the parts in which they are written.
#[derive(Debug)]
struct Shared {
    metrics: Mutex<Bytes>,
    scrapes: AtomicU64,
    paced_chunks: AtomicU64,
    whole: Vec<Bytes>,
    streamed: Vec<Bytes>,
}

impl Shared {
    fn metrics(&self) -> MutexGuard<'_, Bytes> {
        self.metrics.lock().expect("no holder of this lock panics")
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Metrics,
    Whole,
    Streamed,
    Paced,
}

/// What a body that asks for a streamed answer contains.
const STREAM: &[u8] = br#""stream":true"#;
/// What it contains besides if chunks are to come one at a time, as from a model that takes time for each.
pub(crate) const PACED: &str = "one at a time";
/// Both are among the last bytes; the others of a long body are not worth a look.
const TAIL: usize = 64;
/// Between two chunks that come one at a time.
const PACE: Duration = Duration::from_millis(2);

fn streamed() -> Vec<Bytes> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    let event = concat!(
        r#"data: {"id":"chatcmpl-1","object":"chat.completion.chunk","created":1700000000,"model":"demo-model","#,
        r#""choices":[{"index":0,"delta":{"content":" four"},"finish_reason":null}]}"#,
        "\n\n"
    );
    let chunk = format!("{:x}\r\n{event}\r\n", event.len());
    let chunks = std::iter::repeat_n(chunk, STREAMED_CHUNKS);
    std::iter::once(head.to_owned()).chain(chunks).chain(["0\r\n\r\n".to_owned()]).map(Bytes::from).collect()
}

fn metrics(text: &str) -> Bytes {
    response("text/plain; version=0.0.4", text).into()
}

fn response(content_type: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// Answers one request after another until the client goes.
async fn serve(mut stream: TcpStream, shared: Arc<Shared>) -> Result<()> {
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
            Asked::Metrics => {
                shared.scrapes.fetch_add(1, Ordering::Relaxed);
                let text = shared.metrics().clone();
                stream.write_all(&text).await?;
                continue;
            }
            Asked::Whole => &shared.whole,
            Asked::Streamed | Asked::Paced => &shared.streamed,
        };
        let mut pace = tokio::time::interval(PACE);
        for part in answer {
            if asked == Asked::Paced {
                pace.tick().await;
                shared.paced_chunks.fetch_add(1, Ordering::Relaxed);
            }
            stream.write_all(part).await?;
        }
    }
}

/// Whether a body's end contains this.
fn says(body: &[u8], what: &[u8]) -> bool {
    body[body.len().saturating_sub(TAIL)..].windows(what.len()).any(|part| part == what)
}

/// What the first request in `bytes` asks for, and how long it is with its body; `None` until it is complete.
fn request(bytes: &[u8]) -> Result<Option<(Asked, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(head) = request.parse(bytes)? else { return Ok(None) };
    let field = |name: &str| {
        let found = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case(name));
        found.map(|header| str::from_utf8(header.value)).transpose()
    };
    let body = if field("transfer-encoding")? == Some("chunked") {
        // What an external processor may change has no length.
        chunked_length(&bytes[head..])?
    } else {
        Some(field("content-length")?.unwrap_or("0").parse().context("content-length")?)
    };
    let is_get = request.method == Some("GET");
    let Some(body) = body.and_then(|length| bytes.get(head..head + length)) else { return Ok(None) };
    let asked = if is_get {
        Asked::Metrics
    } else if says(body, PACED.as_bytes()) {
        Asked::Paced
    } else if says(body, STREAM) {
        Asked::Streamed
    } else {
        Asked::Whole
    };
    Ok(Some((asked, head + body.len())))
}

/// How many bytes a body in chunks takes, with the last one; `None` until that has come.
fn chunked_length(bytes: &[u8]) -> Result<Option<usize>> {
    let mut at = 0;
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        let parsed = httparse::parse_chunk_size(rest).ok().context("the size of a chunk")?;
        let httparse::Status::Complete((line, size)) = parsed else { return Ok(None) };
        at += line + usize::try_from(size)? + 2;
        if size == 0 {
            return Ok((at <= bytes.len()).then_some(at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_body_is_complete_with_its_length_or_its_last_chunk() {
        let length = |text: &str| request(text.as_bytes()).unwrap().map(|(_, length)| length);
        let whole = "POST / HTTP/1.1\r\ncontent-length: 3\r\n\r\nabc";
        assert_eq!(length(whole), Some(whole.len()));
        assert_eq!(length(&whole[..whole.len() - 1]), None);
        let chunked =
            "POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\nabc\r\na\r\n0123456789\r\n0\r\n\r\n";
        assert_eq!(length(chunked), Some(chunked.len()));
        for end in chunked.len() - 25..chunked.len() {
            assert_eq!(length(&chunked[..end]), None, "{end}");
        }
        assert_eq!(length(&format!("{chunked}GET")), Some(chunked.len()));
    }

    #[test]
    fn what_is_asked_for_is_read_from_the_bodys_end() {
        let asked = |body: &str| {
            let request = request(
                format!("POST / HTTP/1.1\r\ncontent-length: {}\r\n\r\n{body}", body.len()).as_bytes(),
            );
            request.unwrap().unwrap().0
        };
        assert!(asked(r#"{"stream":false}"#) == Asked::Whole);
        assert!(asked(r#"{"stream":true}"#) == Asked::Streamed);
        assert!(asked(r#"{"stream":true,"user":"one at a time"}"#) == Asked::Paced);
    }
}
