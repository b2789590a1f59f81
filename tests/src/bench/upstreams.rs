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
    let chat = response("application/json", ANSWER);
    let metrics = response("text/plain; version=0.0.4", METRICS);
    let answers: &'static [String; 2] = Box::leak(Box::new([chat, metrics]));
    loop {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        // How a connection ends is its client's affair: the load generator counts what went wrong.
        tokio::spawn(serve(stream, answers));
    }
}

fn response(content_type: &str, body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-type: {content_type}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

/// Answers one request after another until the client goes.
async fn serve(mut stream: TcpStream, [chat, metrics]: &[String; 2]) -> Result<()> {
    let mut buffer = Vec::with_capacity(16 << 10);
    loop {
        let (is_get, length) = loop {
            if let Some(request) = request(&buffer)? {
                break request;
            }
            if stream.read_buf(&mut buffer).await? == 0 {
                return Ok(());
            }
        };
        buffer.drain(..length);
        stream.write_all(if is_get { metrics } else { chat }.as_bytes()).await?;
    }
}

/// Whether the first request in `bytes` is a GET, and how long it is with its body; `None` until it is complete.
fn request(bytes: &[u8]) -> Result<Option<(bool, usize)>> {
    let mut headers = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(head) = request.parse(bytes)? else { return Ok(None) };
    let length = request.headers.iter().find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let body: usize = match length {
        Some(length) => str::from_utf8(length.value)?.parse().context("content-length")?,
        None => 0,
    };
    Ok((bytes.len() >= head + body).then_some((request.method == Some("GET"), head + body)))
}
