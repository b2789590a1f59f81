//! KV-cache events: the contents of each model server's KV caches, as it publishes them.
//!
//! [`subscribers`] keeps a task for each server, which asks the server where it publishes (`sources`) and follows each of its data-parallel
//! ranks (`follower`) over ZeroMQ (`connection`, `zmtp`). Everything else is without I/O: [`sequence`] decides which messages are applied,
//! [`batch`] reads their events ([`event`]), and [`index`] has the contents of all caches.
//!
//! Events are not authenticated, and carry the tokens of prompts and responses. The agent keeps hashes of them only.

pub mod batch;
mod connection;
pub mod event;
mod follower;
pub mod index;
mod msgpack;
pub mod sequence;
mod sources;
pub mod subscribers;
pub mod zmtp;

use core::time::Duration;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::num::NonZeroU16;
use std::sync::Arc;

use index::{CacheId, Contents, Index};
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use crate::runtime::{Clock, Labels, ResultCounter};

/// How the agent follows the events of model servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Where servers publish.
    pub ports: Ports,
    /// Maximum number of blocks of all caches together.
    pub max_blocks: usize,
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
    index: Mutex<Index>,
    servers: Mutex<HashMap<SocketAddr, Arc<Server>>>,
    metrics: KvEventMetrics,
}

/// One server whose events are followed.
#[derive(Debug, Default)]
struct Server {
    /// Why it is not known where it publishes.
    problem: Mutex<Option<String>>,
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

/// The state of the events of one cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum StreamState {
    /// Not connected.
    #[default]
    Disconnected,
    /// Messages were lost, or were published before the agent connected: the cache has blocks that are not known.
    Partial,
    /// All that the cache has is known.
    Complete,
}

/// The events of one server.
#[derive(Clone, Debug, Default)]
pub struct ServerEvents {
    /// Why it is not known where the server publishes.
    pub problem: Option<String>,
    /// Each cache with its contents.
    pub caches: Vec<(Stream, Contents)>,
}

impl KvEvents {
    /// No server yet.
    pub fn new(settings: Settings, clock: Clock, metrics: KvEventMetrics) -> Arc<Self> {
        let Settings { ports, max_blocks } = settings;
        let index = Mutex::new(Index::new(max_blocks));
        Arc::new(Self { clock, ports, index, servers: Mutex::default(), metrics })
    }

    /// The events of the server with this address; `None`: they are not followed.
    pub fn of_server(&self, address: SocketAddr) -> Option<ServerEvents> {
        let server = Arc::clone(self.servers.lock().get(&address)?);
        let index = self.index.lock();
        let caches = server.caches.lock();
        let caches = caches.iter().map(|cache| (cache.stream.lock().clone(), index.contents(cache.id)));
        Some(ServerEvents { problem: server.problem.lock().clone(), caches: caches.collect() })
    }

    /// Sets the gauges of the index.
    pub fn set_gauges(&self) {
        let totals = self.index.lock().totals();
        let set = |gauge: &Gauge, value: usize| gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
        set(&self.metrics.blocks, totals.blocks);
        set(&self.metrics.nodes, totals.nodes);
        set(&self.metrics.orphans, totals.orphans);
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
    evicted: Counter,
}

impl KvEventMetrics {
    /// Registers the counters. Kinds of events start at zero, because Prometheus sees no increase in the first value of a new series.
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
        let help = "Cached blocks that were forgotten because there are too many";
        r.register("kv_event_evicted_blocks", help, metrics.evicted.clone());
        metrics
    }
}

/// Kinds of events, as values of a metric's label.
const EVENT_KINDS: [&str; 4] = ["stored", "removed", "cleared", "unusable"];
