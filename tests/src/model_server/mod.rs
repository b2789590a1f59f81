//! A model server that does what a test tells it, over real sockets.
//!
//! It speaks the OpenAI API (chat and text completions and responses, plain and streamed, the list of models), Anthropic's messages
//! and vLLM's `/metrics`, over HTTP/1.1 and HTTP/2 with prior knowledge, and keeps every request it received. Answers depend on the
//! request alone, so the same request sent past Envoy gives the same bytes.

mod answer;
mod connection;
mod echo;
mod engine;
mod metrics;
mod typed_events;

pub(crate) use engine::{Asked, Batch, TOKEN_BYTES};
pub use engine::{ServiceTimes, Tally};
pub use metrics::{CacheConfig, Lora, Metrics};

use anyhow::{Context, Result};
use bytes::Bytes;
use engine::Engine;
use hyper::{HeaderMap, Method, StatusCode, Uri, Version};
use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::net::TcpSocket;
use tokio_util::sync::{CancellationToken, DropGuard};

/// The model every server offers.
pub const MODEL: &str = "demo-model";
/// Answer header with the server's name.
pub const SERVED_BY: &str = "x-served-by";

/// A request header whose value becomes the answer's `content-encoding`, whatever the body is.
pub const CLAIM_ENCODING: &str = "x-test-claim-encoding";

/// A request header, any number of times, whose value names a header of the answer, itself with that value.
pub const CLAIM_HEADER: &str = "x-test-claim-header";

/// A request header with what the server does with this one request: `hang`, `reset`, `slow` (10 ms before every chunk), or
/// a status.
pub const BEHAVE: &str = "x-test-behave";

const BACKLOG: u32 = 1024;

/// A running server; it ends when dropped.
#[derive(Debug)]
pub struct ModelServer {
    shared: Arc<Shared>,
    address: SocketAddr,
    door: Mutex<Door>,
}

/// What the server does with a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Behaviour {
    /// Answers it.
    #[default]
    Answer,
    /// Answers it, with this pause before every chunk of the body.
    SlowChunks(Duration),
    /// Answers it, with the body in pieces of so many bytes and this pause before each.
    Pieces(usize, Duration),
    /// Answers this status and an OpenAI error object.
    Status(StatusCode),
    /// Sends back what comes, as it comes, and records the request without its body. A tunnel is opened.
    Echo,
    /// Reads it and says nothing.
    Hang,
    /// Reads it and resets the connection.
    Reset,
}

/// A request as it arrived, complete.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// The method.
    pub method: Method,
    /// Path and query.
    pub uri: Uri,
    /// HTTP version.
    pub version: Version,
    /// All header fields.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

#[derive(Debug)]
struct Shared {
    name: String,
    /// Present when the metrics come from a model of the service time, not from the test.
    engine: Option<Engine>,
    metrics: Mutex<Metrics>,
    /// Said in place of the metrics.
    metrics_text: Mutex<Option<Bytes>>,
    behaviour: Mutex<Behaviour>,
    scrape_behaviour: Mutex<Behaviour>,
    requests: Mutex<Vec<ReceivedRequest>>,
    /// When each request had come whole, and when its answer was ready.
    busy: Mutex<Vec<Range<Instant>>>,
    /// How often each program, by its user-agent field, has read `/metrics`.
    scrapes: Mutex<HashMap<String, usize>>,
}

/// The listening side of the server's port.
#[derive(Debug)]
enum Door {
    /// Connections are taken until the guard goes, and end with it.
    Open(#[expect(dead_code, reason = "held for its drop")] DropGuard),
    /// The port is held but not listened on: the kernel refuses connections, and nobody else can take it.
    Closed(TcpSocket),
    /// Between the two.
    Moving,
}

impl ReceivedRequest {
    /// What this request's own header asks for.
    fn behaviour(&self) -> Option<Behaviour> {
        Some(match self.header(BEHAVE)? {
            "hang" => Behaviour::Hang,
            "reset" => Behaviour::Reset,
            "slow" => Behaviour::SlowChunks(Duration::from_millis(10)),
            status => Behaviour::Status(status.parse().ok()?),
        })
    }

    /// A header field's value as text; `None` when it is absent or not text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

impl ModelServer {
    /// Starts a server on a free port of loopback that answers at once and shows idle metrics, in the runtime it is called
    /// in.
    pub fn start() -> Result<Self> {
        Self::start_at(Ipv4Addr::LOCALHOST)
    }

    /// The same on another address of loopback.
    pub fn start_at(ip: Ipv4Addr) -> Result<Self> {
        Self::start_with(ip, None, None)
    }

    /// Starts a server that needs time to answer; its metrics follow from its load.
    pub fn start_with_service_times(name: &str, times: ServiceTimes) -> Result<Self> {
        Self::start_with(Ipv4Addr::LOCALHOST, Some(name.to_owned()), Some(Engine::new(times)))
    }

    fn start_with(ip: Ipv4Addr, name: Option<String>, engine: Option<Engine>) -> Result<Self> {
        let socket = bind(SocketAddr::from((ip, 0)))?;
        let address = socket.local_addr()?;
        let shared = Arc::new(Shared {
            name: name.unwrap_or_else(|| address.to_string()),
            engine,
            metrics: Mutex::default(),
            metrics_text: Mutex::default(),
            behaviour: Mutex::default(),
            scrape_behaviour: Mutex::default(),
            requests: Mutex::default(),
            busy: Mutex::default(),
            scrapes: Mutex::default(),
        });
        let server = Self { shared, address, door: Mutex::new(Door::Closed(socket)) };
        server.listen()?;
        Ok(server)
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same as `ip:port`, the way the picker and Envoy write it.
    pub fn endpoint(&self) -> String {
        self.address.to_string()
    }

    /// Changes what the next scrape sees. A server with service times keeps to those instead.
    pub fn update_metrics(&self, change: impl FnOnce(&mut Metrics)) {
        change(&mut lock(&self.shared.metrics));
    }

    /// From now on `/metrics` is this text, whatever it is; `None` for the metrics again.
    pub fn say_when_scraped(&self, text: Option<Bytes>) {
        *lock(&self.shared.metrics_text) = text;
    }

    /// From now on, every request but a scrape is treated like this.
    pub fn behave(&self, behaviour: Behaviour) {
        *lock(&self.shared.behaviour) = behaviour;
    }

    /// From now on, every scrape is treated like this.
    pub fn behave_when_scraped(&self, behaviour: Behaviour) {
        *lock(&self.shared.scrape_behaviour) = behaviour;
    }

    /// Every request received so far, scrapes left out.
    pub fn requests(&self) -> Vec<ReceivedRequest> {
        lock(&self.shared.requests).clone()
    }

    /// The same, and forgets them.
    pub fn take_requests(&self) -> Vec<ReceivedRequest> {
        lock(&self.shared.busy).clear();
        std::mem::take(&mut lock(&self.shared.requests))
    }

    /// For each answered request of [`Self::requests`]: from when it had come whole until its answer was ready to be sent. The
    /// end of a streamed answer is not waited for.
    pub fn busy_times(&self) -> Vec<Range<Instant>> {
        lock(&self.shared.busy).clone()
    }

    /// What its prefix cache was asked for, and what it had; nothing for a server without service times.
    pub fn prefix_cache(&self) -> Tally {
        self.shared.engine.as_ref().map_or_else(Tally::default, Engine::tally)
    }

    /// How often `/metrics` was read.
    pub fn scrapes(&self) -> usize {
        lock(&self.shared.scrapes).values().sum()
    }

    /// How often it was read by programs whose user-agent field begins like this.
    pub fn scrapes_by(&self, program: &str) -> usize {
        let scrapes = lock(&self.shared.scrapes);
        scrapes.iter().filter(|(agent, _)| agent.starts_with(program)).map(|(_, count)| count).sum()
    }

    /// Closes the port and ends every connection; from now on the kernel refuses connections.
    pub async fn refuse(&self) -> Result<()> {
        *lock(&self.door) = Door::Moving;
        // The listener goes a moment after its task was told to.
        let socket = crate::eventually::within(Duration::from_secs(5), async || bind(self.address))
            .await
            .map_err(anyhow::Error::msg)
            .with_context(|| format!("hold port {} without listening", self.address))?;
        *lock(&self.door) = Door::Closed(socket);
        Ok(())
    }

    /// Takes connections again after [`Self::refuse`].
    pub fn listen(&self) -> Result<()> {
        let Door::Closed(socket) = std::mem::replace(&mut *lock(&self.door), Door::Moving) else {
            anyhow::bail!("{} listens already", self.address);
        };
        let listener = socket.listen(BACKLOG).with_context(|| format!("listen on {}", self.address))?;
        let stop = CancellationToken::new();
        tokio::spawn(
            stop.clone().run_until_cancelled_owned(connection::accept(listener, self.shared.clone())),
        );
        *lock(&self.door) = Door::Open(stop.drop_guard());
        Ok(())
    }
}

fn bind(address: SocketAddr) -> Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    // Connections of an earlier listener may still be in TIME_WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(address).with_context(|| format!("bind {address}"))?;
    Ok(socket)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("no holder of these locks panics")
}
