//! A model server whose behaviour a test sets.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_rustls::TlsAcceptor;
use tokio_util::either::Either;
use tokio_util::task::AbortOnDropHandle;

/// A server's response to each request. The connection stays open unless noted.
#[derive(Clone, Debug)]
pub(crate) enum Behaviour {
    /// This text, with its length.
    Text(String),
    /// This text, in chunks of this many bytes.
    Chunked(String, usize),
    /// This text; then the connection is closed without `connection: close`.
    TextThenClose(String),
    /// A `content-length` greater than the text that follows; then the connection is closed.
    CutOff(String),
    /// This body after these headers, each with its line feed.
    Body(&'static str, Vec<u8>),
    /// A redirect with this status to this location, and from all other paths this text.
    Redirect(u16, String, String),
    /// This status without a body.
    Status(u16),
    /// No response.
    Hang,
    /// `100 Continue` without an end, as fast as it is read.
    Continues,
    /// A chunked body without an end, as fast as it is read.
    Endless,
    /// These bytes instead of HTTP.
    Raw(&'static [u8]),
}

/// A vLLM metrics text with only this load.
pub(crate) fn load(waiting: u64, running: u64) -> String {
    format!(
        "# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting {waiting}\n\
         # TYPE vllm:num_requests_running gauge\nvllm:num_requests_running {running}\n"
    )
}

pub(crate) struct ScriptedServer {
    address: SocketAddr,
    behaviour: Arc<Mutex<Behaviour>>,
    connections: Arc<AtomicUsize>,
    requests: Arc<AtomicUsize>,
    secured: Option<Arc<ServerConfig>>,
    authorization: Arc<Mutex<Option<String>>>,
    serving: Option<AbortOnDropHandle<()>>,
}

impl ScriptedServer {
    pub(crate) async fn start(behaviour: Behaviour) -> Self {
        Self::start_on("127.0.0.1:0".parse().unwrap(), behaviour).await
    }

    pub(crate) async fn start_on(address: SocketAddr, behaviour: Behaviour) -> Self {
        Self::start_with(address, behaviour, None).await
    }

    /// A server that speaks TLS.
    pub(crate) async fn start_secured(behaviour: Behaviour, config: Arc<ServerConfig>) -> Self {
        Self::start_with("127.0.0.1:0".parse().unwrap(), behaviour, Some(config)).await
    }

    async fn start_with(
        address: SocketAddr,
        behaviour: Behaviour,
        secured: Option<Arc<ServerConfig>>,
    ) -> Self {
        let mut server = Self {
            address,
            behaviour: Arc::new(Mutex::new(behaviour)),
            connections: Arc::default(),
            requests: Arc::default(),
            secured,
            authorization: Arc::default(),
            serving: None,
        };
        server.resume().await;
        server
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn set_behaviour(&self, behaviour: Behaviour) {
        *self.behaviour.lock().unwrap() = behaviour;
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    pub(crate) fn requests(&self) -> usize {
        self.requests.load(Ordering::SeqCst)
    }

    /// The `authorization` header of the last request.
    pub(crate) fn authorization(&self) -> Option<String> {
        self.authorization.lock().unwrap().clone()
    }

    /// Closes the port and every connection.
    pub(crate) async fn stop(&mut self) {
        if let Some(serving) = self.serving.take() {
            serving.abort();
            let _ = serving.await;
        }
    }

    /// Opens the port, the same one as before.
    pub(crate) async fn resume(&mut self) {
        let listener = TcpListener::bind(self.address).await.unwrap();
        self.address = listener.local_addr().unwrap();
        let (behaviour, connections) = (Arc::clone(&self.behaviour), Arc::clone(&self.connections));
        let (requests, authorization) = (Arc::clone(&self.requests), Arc::clone(&self.authorization));
        let tls = self.secured.clone().map(TlsAcceptor::from);
        self.serving = Some(AbortOnDropHandle::new(tokio::spawn(async move {
            let mut open = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                connections.fetch_add(1, Ordering::SeqCst);
                let (behaviour, requests) = (Arc::clone(&behaviour), Arc::clone(&requests));
                let (authorization, tls) = (Arc::clone(&authorization), tls.clone());
                open.spawn(async move {
                    let stream = match tls {
                        None => Either::Left(stream),
                        Some(tls) => match tls.accept(stream).await {
                            Ok(stream) => Either::Right(stream),
                            Err(_) => return,
                        },
                    };
                    serve(stream, behaviour, requests, authorization).await;
                });
            }
        })));
    }
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    behaviour: Arc<Mutex<Behaviour>>,
    requests: Arc<AtomicUsize>,
    authorization: Arc<Mutex<Option<String>>>,
) {
    let mut request = [0; 2048];
    while let Ok(read @ 1..) = stream.read(&mut request).await {
        let is_first = request[..read].starts_with(b"GET /metrics HTTP/1.1\r\n");
        let others = [&b"GET /metrics/ HTTP/1.1\r\n"[..], b"GET /prometheus/metrics HTTP/1.1\r\n"];
        assert!(is_first || others.iter().any(|line| request[..read].starts_with(line)));
        assert!(request[..read].ends_with(b"\r\n\r\n"), "the agent sends a request in one piece");
        let head = String::from_utf8_lossy(&request[..read]);
        let header = head.lines().find_map(|line| line.strip_prefix("authorization: "));
        *authorization.lock().unwrap() = header.map(str::to_owned);
        requests.fetch_add(1, Ordering::SeqCst);
        let behaviour = match behaviour.lock().unwrap().clone() {
            Behaviour::Redirect(_, _, text) if !is_first => Behaviour::Text(text),
            other => other,
        };
        if !answer(&mut stream, behaviour).await.unwrap_or(false) {
            return;
        }
    }
}

/// Returns whether the connection stays open.
async fn answer(stream: &mut (impl AsyncWrite + Unpin), behaviour: Behaviour) -> std::io::Result<bool> {
    let sized = |length: usize| format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n");
    match behaviour {
        Behaviour::Text(text) => stream.write_all((sized(text.len()) + &text).as_bytes()).await?,
        Behaviour::Body(headers, body) => {
            let length = body.len();
            let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n{headers}\r\n");
            stream.write_all(&[head.as_bytes(), &body].concat()).await?;
        }
        Behaviour::Redirect(status, location, _) => {
            let head =
                format!("HTTP/1.1 {status} Moved\r\nlocation: {location}\r\ncontent-length: 5\r\n\r\nMoved");
            stream.write_all(head.as_bytes()).await?;
        }
        Behaviour::TextThenClose(text) => {
            stream.write_all((sized(text.len()) + &text).as_bytes()).await?;
            return Ok(false);
        }
        Behaviour::CutOff(text) => {
            stream.write_all((sized(text.len() + 10) + &text).as_bytes()).await?;
            return Ok(false);
        }
        Behaviour::Chunked(text, size) => {
            stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await?;
            for chunk in text.as_bytes().chunks(size) {
                stream.write_all(format!("{:x}\r\n", chunk.len()).as_bytes()).await?;
                stream.write_all(chunk).await?;
                stream.write_all(b"\r\n").await?;
            }
            stream.write_all(b"0\r\n\r\n").await?;
        }
        Behaviour::Status(status) => {
            stream.write_all(format!("HTTP/1.1 {status} No\r\ncontent-length: 0\r\n\r\n").as_bytes()).await?;
        }
        Behaviour::Hang => {}
        Behaviour::Continues => {
            let many = b"HTTP/1.1 100 Continue\r\n\r\n".repeat(100);
            loop {
                stream.write_all(&many).await?;
            }
        }
        Behaviour::Endless => {
            stream.write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n").await?;
            let chunk = format!("1000\r\n{}\r\n", "# filler ".repeat(500).split_at(4096).0);
            loop {
                stream.write_all(chunk.as_bytes()).await?;
            }
        }
        Behaviour::Raw(bytes) => {
            stream.write_all(bytes).await?;
            return Ok(false);
        }
    }
    Ok(true)
}
