//! KV-cache events: the contents of each model server's KV caches, as it publishes them.
//!
//! [`subscribers`] keeps a task for each server, which asks the server where it publishes (`sources`) and for
//! its models (`models`), and follows each of its data-parallel ranks (`follower`) over ZeroMQ (`connection`,
//! `zmtp`). Everything else is without I/O: [`sequence`] decides which messages are applied, [`batch`] reads
//! their events ([`event`]), and [`index`] has the contents of all caches. They are [`prefixes`] of prompts,
//! by their text with a model's [`tokenizer`], and by their token ids, which proxies read.
//!
//! Events are not authenticated, and carry the tokens of prompts and responses. Of these the agent keeps
//! hashes only, and the text and token ids of blocks whose parent is not known.

pub mod batch;
mod connection;
pub mod event;
mod follower;
pub mod index;
mod models;
mod msgpack;
pub mod prefixes;
pub mod sequence;
mod share;
mod sources;
pub mod subscribers;
pub mod tokenizer;
pub mod zmtp;

use core::time::Duration;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::path::PathBuf;
use std::sync::Arc;

use endpoint_picker::pool::Endpoint;
use endpoint_picker_wire::prefixes::CacheState;
use index::{CacheId, Contents, Index, Limits};
use metrics_agent_status::pool::StreamState;
use metrics_agent_support::runtime::{Clock, Labels, ResultCounter};
use models::ServedModel;
use parking_lot::Mutex;
use prefixes::readers::{FollowedEndpoints, PoolReaders, PrefixesRead, ReaderPosition};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tokenizer::Tokenizers;
use tokio::sync::watch;

/// How the agent follows the events of model servers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvEventSettings {
    /// Where servers publish.
    pub ports: Ports,
    /// Limits of the index.
    pub limits: Limits,
    /// Folders of tokenizers by the names of models.
    pub tokenizers: Vec<(String, PathBuf)>,
    /// Names of models whose cached prefixes are known by their token ids.
    pub by_token_ids: Vec<String>,
}

/// Where servers publish their events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ports {
    /// Each server is asked: vLLM's `/kv_event_sources` and SGLang's `/server_info`.
    Discovered,
    /// The same for all servers, plus the endpoint's rank.
    Fixed {
        /// The port of new events.
        events: NonZeroU16,
        /// The port of replays, if there is one.
        replay: Option<NonZeroU16>,
    },
}

/// The contents of all model servers' caches, and the state of their events.
#[derive(Debug)]
pub struct KvEvents {
    clock: Clock,
    ports: Ports,
    tokenizers: Tokenizers,
    by_token_ids: Vec<String>,
    index: Mutex<Index>,
    /// The version of the index's prefixes.
    version: watch::Sender<u64>,
    servers: Mutex<HashMap<SocketAddr, Arc<FollowedServer>>>,
    /// The proxies that read prefixes, by the names of pools.
    readers: Mutex<HashMap<String, PoolReaders>>,
    metrics: KvEventMetrics,
}

/// One server whose events are followed.
#[derive(Debug, Default)]
struct FollowedServer {
    /// Why it is not known where it publishes.
    problem: Mutex<Option<String>>,
    /// `None`: its models are not known.
    model: Mutex<Option<Arc<ServedModel>>>,
    caches: Mutex<Vec<Arc<CacheStatus>>>,
}

/// One cache whose events are followed.
#[derive(Debug)]
struct CacheStatus {
    id: CacheId,
    stream: Mutex<Stream>,
}

/// The events of one cache.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    /// The state.
    pub state: StreamState,
    /// Why the last connection or replay has failed.
    pub problem: Option<String>,
    /// The time of the last message since the agent's start.
    pub updated: Option<Duration>,
}

/// The events of one server.
#[derive(Clone, Debug, Default)]
pub struct ServerEvents {
    /// Why it is not known where the server publishes.
    pub problem: Option<String>,
    /// Why its tokens are not text; `None`: they are, or the server's models are not known.
    pub text_problem: Option<String>,
    /// Each cache with its contents.
    pub caches: Vec<(Stream, Contents)>,
}

impl ServerEvents {
    /// The worst state of the caches.
    pub fn state(&self) -> StreamState {
        self.caches.iter().map(|(stream, _)| stream.state).min().unwrap_or_default()
    }

    /// The time of the newest message since the agent's start.
    pub fn updated(&self) -> Option<Duration> {
        self.caches.iter().filter_map(|(stream, _)| stream.updated).max()
    }
}

impl KvEvents {
    /// No server yet.
    pub fn new(settings: KvEventSettings, clock: Clock, metrics: KvEventMetrics) -> Arc<Self> {
        let KvEventSettings { ports, limits, tokenizers, by_token_ids } = settings;
        Arc::new(Self {
            clock,
            ports,
            tokenizers: Tokenizers::new(tokenizers),
            by_token_ids,
            index: Mutex::new(Index::new(limits)),
            version: watch::Sender::new(0),
            servers: Mutex::default(),
            readers: Mutex::default(),
            metrics,
        })
    }

    /// Changes the index, and wakes waiting readers if prefixes have changed.
    fn update<T>(&self, change: impl FnOnce(&mut Index) -> T) -> T {
        let mut index = self.index.lock();
        let result = change(&mut index);
        let newest = index.prefixes().version();
        drop(index);
        self.version.send_if_modified(|version| {
            let is_newer = *version < newest;
            *version = newest.max(*version);
            is_newer
        });
        result
    }

    /// Makes a new version for a change outside of the index.
    fn advance(&self) {
        self.update(|index| index.prefixes_mut().advance());
    }

    /// The events of the server with this address; `None`: they are not followed.
    pub fn of_server(&self, address: SocketAddr) -> Option<ServerEvents> {
        let server = Arc::clone(self.servers.lock().get(&address)?);
        let index = self.index.lock();
        let caches = server.caches.lock();
        let caches = caches.iter().map(|cache| (cache.stream.lock().clone(), index.contents(cache.id)));
        let text_problem = server.model.lock().as_ref().and_then(|model| model.tokenizer.clone().err());
        let problem = server.problem.lock().clone();
        Some(ServerEvents { problem, text_problem, caches: caches.collect() })
    }

    /// The versions of prefixes; a reader with the newest one has everything.
    pub fn versions(&self) -> watch::Receiver<u64> {
        self.version.subscribe()
    }

    /// Reads the prefixes of a pool's endpoints for a reader at this position, as [`PoolReaders::read`].
    pub fn read_prefixes(
        &self,
        pool: &str,
        endpoints: &[Endpoint],
        reader: Option<ReaderPosition>,
        is_last: bool,
    ) -> PrefixesRead {
        let followed = self.followed(endpoints);
        let now = self.clock.now();
        let reading = self.update(|index| {
            let mut readers = self.readers.lock();
            let readers = readers.entry(pool.to_owned()).or_default();
            readers.read(index.prefixes_mut(), followed, reader, is_last, now)
        });
        // Without a lock, so that events and other readers need not wait.
        reading.encode()
    }

    /// The endpoints among these whose events are followed.
    fn followed(&self, endpoints: &[Endpoint]) -> FollowedEndpoints {
        let now = self.clock.now();
        let servers: Vec<_> = {
            let servers = self.servers.lock();
            let server = |endpoint: &Endpoint| servers.get(&endpoint.address()).cloned();
            endpoints.iter().filter_map(|endpoint| Some((endpoint, server(endpoint)?))).collect()
        };
        let mut followed = FollowedEndpoints::default();
        let mut models = Vec::new();
        for (endpoint, server) in servers {
            let caches = server.caches.lock().clone();
            let streams: Vec<_> = caches.iter().map(|cache| cache.stream.lock().clone()).collect();
            let state = streams.iter().map(|stream| stream.state).min().unwrap_or_default();
            let updated = streams.iter().filter_map(|stream| stream.updated).max().unwrap_or_default();
            let model = server.model.lock().clone();
            let is_complete = |has: fn(&ServedModel) -> bool| {
                state == StreamState::Complete && model.as_deref().is_some_and(has)
            };
            followed.addresses.push((endpoint.key(), endpoint.address()));
            followed.caches.push(CacheState {
                endpoint: endpoint.key(),
                complete: is_complete(|model| model.tokenizer.is_ok()),
                complete_by_token_ids: is_complete(|model| model.has_token_ids),
                age_ms: u64::try_from(now.saturating_sub(updated).as_millis()).unwrap_or(u64::MAX),
            });
            models.extend(model);
        }
        followed.models = models::of_pool(models.iter());
        followed
    }

    /// Sets the gauges of the index.
    pub fn set_gauges(&self) {
        let totals = self.index.lock().totals();
        let set = |gauge: &Gauge, value: usize| gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        set(&self.metrics.blocks, totals.blocks);
        set(&self.metrics.nodes, totals.nodes);
        set(&self.metrics.orphans, totals.orphans);
        set(&self.metrics.prefixes, totals.prefixes);
    }
}

/// Counters of events. Clones count together.
#[derive(Clone, Debug)]
pub struct KvEventMetrics {
    messages: Counter,
    unreadable: Counter,
    events: Family<Labels<1>, Counter>,
    gaps: Counter,
    restarts: Counter,
    replays: ResultCounter,
    blocks: Gauge,
    nodes: Gauge,
    orphans: Gauge,
    prefixes: Gauge,
    evicted: Counter,
}

impl KvEventMetrics {
    /// Registers the counters. Kinds of events start at zero, because Prometheus sees no increase in the
    /// first value of a new series.
    pub fn register(registry: &mut Registry) -> Self {
        let help = "Replays of KV-cache events, by result";
        let metrics = Self {
            messages: Counter::default(),
            unreadable: Counter::default(),
            events: Family::default(),
            gaps: Counter::default(),
            restarts: Counter::default(),
            replays: ResultCounter::register(registry, "kv_event_replays", help),
            blocks: Gauge::default(),
            nodes: Gauge::default(),
            orphans: Gauge::default(),
            prefixes: Gauge::default(),
            evicted: Counter::default(),
        };
        for kind in EVENT_KINDS {
            drop(metrics.events.get_or_create(&[("kind", kind)]));
        }
        let r = registry;
        r.register("kv_event_messages", "Messages with KV-cache events", metrics.messages.clone());
        let help = "Messages that are not lists of KV-cache events";
        r.register("kv_event_unreadable_messages", help, metrics.unreadable.clone());
        r.register("kv_events", "KV-cache events, by kind", metrics.events.clone());
        r.register("kv_event_gaps", "Gaps in the numbers of messages", metrics.gaps.clone());
        let help = "Publishers that began again, as after a restart of their server";
        r.register("kv_event_restarts", help, metrics.restarts.clone());
        let help = "Cached blocks that are known, each once for each cache that has it";
        r.register("kv_event_blocks", help, metrics.blocks.clone());
        r.register("kv_event_distinct_blocks", "Different cached blocks", metrics.nodes.clone());
        r.register("kv_event_orphans", "Cached blocks whose parent is not known", metrics.orphans.clone());
        let help = "Different cached prefixes of prompts, by their text and by their token ids";
        r.register("kv_event_prefixes", help, metrics.prefixes.clone());
        let help = "Cached blocks that were forgotten because there are too many";
        r.register("kv_event_evicted_blocks", help, metrics.evicted.clone());
        metrics
    }
}

/// Kinds of events, as values of a metric's label.
const EVENT_KINDS: [&str; 4] = ["stored", "removed", "cleared", "unusable"];
