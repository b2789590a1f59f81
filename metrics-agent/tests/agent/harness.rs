//! An agent in the test's process, and requests to it.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use endpoint_picker::epp_rules::EppRules;
use endpoint_picker::pool::Endpoint;
use endpoint_picker_wire::{NamedRules, decode, v1};
use metrics_agent::agent::{self, Listeners, Settings};
use metrics_agent::api;
use metrics_agent::api::access::AllowedHosts;
use metrics_agent::api::connections::Limits;
use metrics_agent::sharing::Share;
use metrics_agent_catalogue::Options;
use metrics_agent_catalogue::scraping::{MIN_INTERVAL, Scheme, ScrapeSettings};
use metrics_agent_gateway::object_reports::ObjectReports;
use metrics_agent_sources::endpoints::{Declared, Sources};
use metrics_agent_support::client;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

/// Maximum wait of a test; generous, for slow machines.
pub(crate) const DEADLINE: Duration = Duration::from_secs(60);

/// Maximum time of a response that does not wait, though its request allows the longest wait, 30 s.
pub(crate) const NO_WAIT_DEADLINE: Duration = Duration::from_secs(20);

/// Polls `condition` until it returns a value. `what` is for the failure's message.
pub(crate) async fn eventually<T>(what: &str, mut condition: impl AsyncFnMut() -> Option<T>) -> T {
    let started = Instant::now();
    loop {
        if let Some(value) = condition().await {
            return value;
        }
        assert!(started.elapsed() < DEADLINE, "not within {DEADLINE:?}: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.body.clone()).unwrap()
    }
}

/// Sends one request on its own connection.
pub(crate) async fn get(address: SocketAddr, path: &str) -> std::io::Result<Answer> {
    send(&mut TcpStream::connect(address).await?, path, "connection: close\r\n").await
}

/// Sends one request with further header lines, and reads the response up to its `content-length`.
pub(crate) async fn send(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    path: &str,
    headers: &str,
) -> std::io::Result<Answer> {
    let host = if headers.contains("host: ") { "" } else { "host: localhost\r\n" };
    stream.write_all(format!("GET {path} HTTP/1.1\r\n{host}{headers}\r\n").as_bytes()).await?;
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).await? == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.map_or(0, |length| length.parse().unwrap())];
    stream.read_exact(&mut body).await?;
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Ok(Answer { status, head, body })
}

/// Options for one pool of this name, without anything else.
pub(crate) fn options_for(pool: &str) -> Options {
    Options {
        allow_experimental_plugins: false,
        default_pool: pool.to_owned(),
        emit_endpoint_scores: false,
        neutral_score_after: None,
        avoid_failing: Duration::ZERO,
        epp_rules: EppRules::default(),
        rules: Some(NamedRules::Epp),
    }
}

/// Settings with which nothing is scraped.
pub(crate) fn settings() -> Settings {
    Settings {
        options: options_for("default"),
        manifests: None,
        kubernetes: None,
        only_pool: None,
        object_reports: ObjectReports::default(),
        sources: Sources::default(),
        scrape: ScrapeSettings {
            interval: MIN_INTERVAL,
            timeout: Duration::from_secs(5),
            scheme: Scheme::Http,
            path: "/metrics".parse().unwrap(),
            unready_after: None,
            engines: None,
            as_epp: false,
        },
        scrape_credentials: client::credentials::ClientFiles::default(),
        eds: None,
        max_endpoints: 1000,
        max_waiters: 10,
        share: Share::Agent,
        record: None,
        limits: Limits {
            max_connections: 100,
            max_connections_per_peer: 100,
            idle_timeout: Duration::from_secs(20),
            write_timeout: Duration::from_secs(20),
            answer_timeout: Duration::from_secs(20),
            max_proxies: 2,
        },
        allowed_hosts: AllowedHosts::default(),
        credentials: api::access::credentials::Files::default(),
        kv_events: None,
        extension: None,
    }
}

/// Settings that scrape these addresses.
pub(crate) fn scraping(addresses: &[SocketAddr]) -> Settings {
    let name = |address: &SocketAddr| Endpoint::new(format!("default/{address}"), *address, vec![]);
    let fixed = Declared { endpoints: addresses.iter().map(name).collect(), ..Declared::default() };
    Settings { sources: Sources { fixed, ..Sources::default() }, ..settings() }
}

pub(crate) struct Agent {
    pub(crate) address: SocketAddr,
    /// Address of health checks alone.
    pub(crate) health: SocketAddr,
    pub(crate) stop: CancellationToken,
    running: AbortOnDropHandle<()>,
}

impl Agent {
    pub(crate) async fn start(settings: Settings) -> Self {
        Self::start_at("127.0.0.1:0", settings).await
    }

    /// Starts an agent whose API listens on this address.
    pub(crate) async fn start_at(address: &str, settings: Settings) -> Self {
        let api = TcpListener::bind(address).await.unwrap();
        let health_listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = api.local_addr().unwrap();
        let health = health_listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let listeners = Listeners { api, health: Some(health_listener), extension: None };
        let run = agent::run(settings, listeners, stop.clone());
        let running = AbortOnDropHandle::new(tokio::spawn(async move { run.await.unwrap() }));
        Self { address, health, stop, running }
    }

    /// Waits until the agent has ended, after `stop` was cancelled.
    pub(crate) async fn ended(self) {
        tokio::time::timeout(DEADLINE, self.running).await.expect("it ends").unwrap();
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        get(self.address, path).await.unwrap()
    }

    /// The newest snapshot, or the status of the refusal.
    pub(crate) async fn snapshot(&self, query: &str) -> Result<v1::Snapshot, u16> {
        let answer = self.get(&format!("/v1/pools/default/snapshot{query}")).await;
        if answer.status != 200 {
            return Err(answer.status);
        }
        assert!(answer.head.contains("content-type: application/x-protobuf\r\n"), "{}", answer.head);
        Ok(decode(&answer.body).unwrap())
    }

    /// Waits until the snapshot passes.
    pub(crate) async fn snapshot_where(
        &self,
        what: &str,
        passes: impl Fn(&v1::Snapshot) -> bool,
    ) -> v1::Snapshot {
        eventually(what, async || self.snapshot("").await.ok().filter(&passes)).await
    }

    /// Waits until the one endpoint's reading passes.
    pub(crate) async fn reading_where(
        &self,
        what: &str,
        passes: impl Fn(&v1::Reading) -> bool,
    ) -> v1::Reading {
        let snapshot =
            self.snapshot_where(what, |snapshot| snapshot.readings.first().is_some_and(&passes)).await;
        snapshot.readings[0].clone()
    }

    /// The value of one of the agent's own metrics; 0 while it is absent.
    pub(crate) async fn metric(&self, name_and_labels: &str) -> f64 {
        let text = self.get("/metrics").await.text();
        let values = text.lines().filter_map(|line| line.strip_prefix(name_and_labels)?.strip_prefix(' '));
        values.map(|value| value.parse::<f64>().unwrap()).next().unwrap_or(0.0)
    }
}
