//! An agent that serves the snapshots of a test, its own policies above all, and cached prefixes.
//!
//! Like the real one it sends a changed topology at once and fresh readings all the time.

use anyhow::Result;
use bytes::Bytes;
use endpoint_picker_wire::batch::{self, Batch, Responses};
use endpoint_picker_wire::prefixes::CachedPrefixes;
use endpoint_picker_wire::{BATCH_FORMAT, FORMAT, Message, PREFIXES_FORMAT, v1};
use futures_util::future::join_all;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use std::collections::HashMap;
use std::convert::Infallible;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::{CancellationToken, DropGuard};

/// Time between two snapshots with new readings.
const SCRAPE_INTERVAL: Duration = Duration::from_millis(20);

/// A running agent; it ends when dropped.
#[derive(Debug)]
pub struct ScriptedAgent {
    address: SocketAddr,
    pools: watch::Sender<Pools>,
    prefixes: watch::Sender<Prefixes>,
    answers: Arc<Answers>,
    _stop: DropGuard,
}

/// Counts the snapshots that the agent has sent.
#[derive(Debug, Default)]
struct Answers {
    all: AtomicUsize,
    with_topology: AtomicUsize,
}

/// The snapshot of a pool.
#[derive(Clone, Debug, Default)]
pub struct Pool {
    /// The endpoints, all of them ready.
    pub endpoints: Vec<SocketAddr>,
    /// Requests that wait at each endpoint.
    pub waiting: u64,
    /// The policy.
    pub policy: v1::Policy,
}

/// Each pool with its version and its name in snapshots, by the name in requests.
type Pools = HashMap<String, (u64, String, Pool)>;

/// The cached prefixes of each pool, each message with everything.
type Prefixes = HashMap<String, CachedPrefixes>;

/// The state of the agent that its responses have.
#[derive(Clone, Debug)]
struct Published {
    pools: watch::Receiver<Pools>,
    prefixes: watch::Receiver<Prefixes>,
}

impl ScriptedAgent {
    /// Starts on a free port of loopback, without a pool.
    pub async fn start() -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        let pools = watch::Sender::new(Pools::new());
        let prefixes = watch::Sender::new(Prefixes::new());
        let published = Published { pools: pools.subscribe(), prefixes: prefixes.subscribe() };
        let stop = CancellationToken::new();
        let answers = Arc::<Answers>::default();
        let serving = accept(listener, published, answers.clone());
        tokio::spawn(stop.clone().run_until_cancelled_owned(serving));
        Ok(Self { address, pools, prefixes, answers, _stop: stop.drop_guard() })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// How many snapshots it has sent.
    pub fn snapshots(&self) -> usize {
        self.answers.all.load(Ordering::Relaxed)
    }

    /// How many of them had endpoints and policy in them.
    pub fn topologies(&self) -> usize {
        self.answers.with_topology.load(Ordering::Relaxed)
    }

    /// Serves this snapshot of a pool from now on.
    pub fn set(&self, name: &str, pool: Pool) {
        self.set_with_full_name(name, name, pool);
    }

    /// The same for a pool that has another name in snapshots than in requests for it, with its namespace.
    pub fn set_with_full_name(&self, name: &str, full_name: &str, pool: Pool) {
        self.pools.send_modify(|pools| {
            let version = pools.get(name).map_or(1, |(version, ..)| version + 1);
            pools.insert(name.to_owned(), (version, full_name.to_owned(), pool));
        });
    }

    /// Serves these cached prefixes of a pool from now on; before, the agent follows no events.
    pub fn set_prefixes(&self, name: &str, prefixes: CachedPrefixes) {
        self.prefixes.send_modify(|all| {
            let version = all.get(name).map_or(1, |before| before.version + 1);
            let format = PREFIXES_FORMAT;
            all.insert(name.to_owned(), CachedPrefixes { format, version, whole: true, ..prefixes });
        });
    }
}

async fn accept(listener: TcpListener, published: Published, answers: Arc<Answers>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (published, answers) = (published.clone(), answers.clone());
        let service = service_fn(move |request| answer(request, published.clone(), answers.clone()));
        // Connections end with their clients; an error is the client's way to end.
        tokio::spawn(async move {
            let _ = auto::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service)
                .await;
        });
    }
}

async fn answer(
    request: Request<Incoming>,
    published: Published,
    answers: Arc<Answers>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let path = head.uri.path_and_query().map_or("", |path| path.as_str());
    let (status, body) = if path == "/v1/batch" {
        match body.collect().await.map(|body| Batch::decode(body.to_bytes())) {
            Ok(Ok(batch)) => (StatusCode::OK, answer_batch(batch, &published, &answers).await),
            _ => (StatusCode::BAD_REQUEST, b"no batch".to_vec()),
        }
    } else {
        answer_poll(path, &published, &answers).await
    };
    let mut response = Response::new(Full::new(body.into()));
    *response.status_mut() = status;
    Ok(response)
}

/// The responses to polls of several pools.
async fn answer_batch(batch: Batch, published: &Published, answers: &Answers) -> Vec<u8> {
    let polls = batch.parts.iter().map(|part| answer_poll(&part.path, published, answers));
    let responses = join_all(polls).await.into_iter();
    let responses = responses.map(|(status, body)| batch::Response { status: status.as_u16().into(), body });
    Responses { format: BATCH_FORMAT, responses: responses.collect() }.encode_to_vec()
}

async fn answer_poll(path: &str, published: &Published, answers: &Answers) -> (StatusCode, Vec<u8>) {
    let (path, query) = path.split_once('?').unwrap_or((path, ""));
    let has = |field: &str| {
        let value = query.split('&').find_map(|pair| pair.strip_prefix(field)?.strip_prefix('='));
        value?.parse::<u64>().ok()
    };
    let path = path.strip_prefix("/v1/pools/").unwrap_or_default();
    if let Some(name) = path.strip_suffix("/cached-prefixes") {
        return answer_prefixes(name, has("version"), published.prefixes.clone()).await;
    }
    let name = path.strip_suffix("/snapshot").unwrap_or_default();
    let mut pools = published.pools.clone();
    let topology = has("topology");
    let changed = |pools: &Pools| pools.get(name).is_some_and(|(version, ..)| Some(*version) != topology);
    let _ = tokio::time::timeout(SCRAPE_INTERVAL, pools.wait_for(changed)).await;
    let pool = pools.borrow().get(name).cloned();
    let Some((version, name, pool)) = pool else { return (StatusCode::NOT_FOUND, b"no such pool".to_vec()) };
    let snapshot = snapshot(&name, version, pool, topology, has("readings").unwrap_or(0));
    answers.all.fetch_add(1, Ordering::Relaxed);
    answers.with_topology.fetch_add(snapshot.topology.is_some().into(), Ordering::Relaxed);
    (StatusCode::OK, snapshot.encode_to_vec())
}

/// The response to a poll for cached prefixes by a proxy that has this version.
async fn answer_prefixes(
    name: &str,
    held: Option<u64>,
    mut prefixes: watch::Receiver<Prefixes>,
) -> (StatusCode, Vec<u8>) {
    let changed = |all: &Prefixes| all.get(name).is_none_or(|prefixes| Some(prefixes.version) != held);
    if tokio::time::timeout(SCRAPE_INTERVAL, prefixes.wait_for(changed)).await.is_err() {
        return (StatusCode::NO_CONTENT, Vec::new());
    }
    match prefixes.borrow().get(name) {
        Some(prefixes) => (StatusCode::OK, prefixes.encode_to_vec()),
        None => (StatusCode::NOT_FOUND, b"no events are followed".to_vec()),
    }
}

fn snapshot(name: &str, version: u64, pool: Pool, held: Option<u64>, readings: u64) -> v1::Snapshot {
    let endpoint = |address: &SocketAddr| v1::Endpoint {
        name: format!("default/{address}"),
        address: address.to_string(),
        labels: vec![],
    };
    let reading = v1::Reading {
        ready: true,
        age_ms: Some(0),
        waiting: Some(pool.waiting),
        running: Some(0),
        kv_usage: Some(0.0),
        ..v1::Reading::default()
    };
    let topology = v1::Topology {
        pool: name.to_owned(),
        endpoints: pool.endpoints.iter().map(endpoint).collect(),
        policy: Some(pool.policy),
    };
    v1::Snapshot {
        format: FORMAT,
        topology_version: version,
        readings_version: readings + 1,
        readings: vec![reading; topology.endpoints.len()],
        topology: (held != Some(version)).then_some(topology),
        ..v1::Snapshot::default()
    }
}
