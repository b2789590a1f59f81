//! A running server.

use super::connection;
use super::engine::Engine;
use super::kv_events::{self, Publisher};
use super::metrics::Metrics;
use super::port::{BACKLOG, bind, bind_released};
use super::request::{Behaviour, ReceivedRequest};
use super::state::{State, lock};
use anyhow::{Context, Result};
use bytes::Bytes;
use metrics_agent_server_model::{BatchRequest, Outlook, PrefixCacheCounts, ServiceTimes};
use std::net::{Ipv4Addr, SocketAddr};
use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Instant;
use tokio::net::TcpSocket;
use tokio_util::sync::{CancellationToken, DropGuard};

/// A running server; it ends when dropped.
#[derive(Debug)]
pub struct ModelServer {
    shared: Arc<State>,
    address: SocketAddr,
    door: Mutex<Door>,
}

/// The listening side of the server's port.
#[derive(Debug)]
enum Door {
    /// Connections are taken until the guard goes, and end with it.
    Open(#[expect(dead_code, reason = "held for its drop")] DropGuard),
    /// The port is held but not listened on: the kernel refuses connections, and no other program can take
    /// it.
    Closed(TcpSocket),
    /// Between the two.
    Moving,
}

impl ModelServer {
    /// Starts a server on a free port of loopback that responds at once and shows idle metrics, in the
    /// runtime it is called in.
    pub fn start() -> Result<Self> {
        Self::start_at(Ipv4Addr::LOCALHOST)
    }

    /// The same on another address of loopback.
    pub fn start_at(ip: Ipv4Addr) -> Result<Self> {
        Self::start_with(SocketAddr::from((ip, 0)), None, None)
    }

    /// The same at this address.
    pub fn start_on(address: SocketAddr) -> Result<Self> {
        Self::start_with(address, None, None)
    }

    /// Starts a server that needs time to respond; its metrics follow from its load.
    pub fn start_with_service_times(name: &str, times: ServiceTimes) -> Result<Self> {
        Self::start_with_service_times_at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), name, times)
    }

    /// The same at this address.
    pub fn start_with_service_times_at(address: SocketAddr, name: &str, times: ServiceTimes) -> Result<Self> {
        Self::start_with(address, Some(name.to_owned()), Some(Engine::new(times)))
    }

    fn start_with(address: SocketAddr, name: Option<String>, engine: Option<Engine>) -> Result<Self> {
        let socket = bind(address)?;
        let address = socket.local_addr()?;
        let shared = Arc::new(State {
            name: name.unwrap_or_else(|| address.to_string()),
            engine,
            metrics: Mutex::default(),
            metrics_text: Mutex::default(),
            behaviour: Mutex::default(),
            scrape_behaviour: Mutex::default(),
            requests: Mutex::default(),
            busy: Mutex::default(),
            scrapes: Mutex::default(),
            stored: Mutex::default(),
            kv_event_sources: Mutex::new(kv_events::sources(&[])),
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

    /// Changes the metrics from the next scrape on. A server with service times ignores them.
    pub fn update_metrics(&self, change: impl FnOnce(&mut Metrics)) {
        change(&mut lock(&self.shared.metrics));
    }

    /// Serves this text as `/metrics` from now on; `None` for the metrics again.
    pub fn set_metrics_text(&self, text: Option<Bytes>) {
        *lock(&self.shared.metrics_text) = text;
    }

    /// Names these publishers of KV-cache events from now on, one for each data-parallel rank.
    pub fn set_kv_event_publishers(&self, publishers: &[&Publisher]) {
        *lock(&self.shared.kv_event_sources) = kv_events::sources(publishers);
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

    /// Response times of [`Self::requests`]: from the moment at which the request had come whole until its
    /// response was ready to be sent, streamed ones until their beginning.
    pub fn busy_times(&self) -> Vec<Range<Instant>> {
        lock(&self.shared.busy).clone()
    }

    /// Lookups and hits of its prefix cache; zero for a server without service times.
    pub fn prefix_cache(&self) -> PrefixCacheCounts {
        self.shared.engine.as_ref().map_or_else(PrefixCacheCounts::default, Engine::prefix_cache)
    }

    /// State that a request would meet now; `None` for a server without service times.
    pub fn outlook(&self, request: &BatchRequest) -> Option<Outlook> {
        self.shared.engine.as_ref().map(|engine| engine.outlook(request))
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
        *lock(&self.door) = Door::Closed(bind_released(self.address).await?);
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
