//! Endpoints, pools, topologies, snapshots and an agent's feed, for tests and benches (feature `testing`).
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::missing_panics_doc,
    reason = "a test that cannot continue has failed"
)]

use core::net::SocketAddr;
use core::time::Duration;
use std::collections::VecDeque;
use std::sync::Arc;

use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::pool::{Endpoint, Endpoints};
use endpoint_picker_wire::changes::{Delivery, Feed, Position, Sync};
use endpoint_picker_wire::{Bytes, CHANGES_FORMAT, FORMAT, pipeline_into_core, v1};

/// First time of a test: long after the epoch, as real times are.
pub const START: Duration = Duration::from_secs(1_000_000);

/// Address of the endpoint of this number.
pub fn address(number: u16) -> SocketAddr {
    let [high, low] = number.to_be_bytes();
    ([10, 0, high, low], 8000).into()
}

/// Endpoint of this number, without labels.
pub fn endpoint(number: u16) -> v1::Endpoint {
    v1::Endpoint {
        name: format!("default/e{number}"),
        address: address(number).to_string(),
        labels: Vec::new(),
    }
}

/// Endpoints of the endpoints of these numbers.
pub fn pool(name: &str, numbers: impl IntoIterator<Item = u16>) -> Arc<Endpoints> {
    let endpoint = |number| Endpoint::new(format!("default/e{number}"), address(number), vec![]);
    Arc::new(Endpoints::new(name.to_owned(), numbers.into_iter().map(endpoint).collect()).unwrap())
}

/// Key of the endpoint of this number.
pub fn key(number: u16) -> u64 {
    pool("p", [number]).as_slice()[0].key()
}

/// Plugin with parameters, named like its type.
pub fn plugin(r#type: &str, parameters: &str) -> v1::Plugin {
    v1::Plugin { name: r#type.to_owned(), r#type: r#type.to_owned(), parameters: parameters.to_owned() }
}

/// Configuration of one profile with these plugins and their weights.
pub fn picker_config(plugins: &[(&str, Option<f64>)]) -> v1::PickerConfig {
    let reference = |&(name, weight): &(&str, _)| v1::PluginRef { name: name.to_owned(), weight };
    let profile =
        v1::Profile { name: "default".to_owned(), plugins: plugins.iter().map(reference).collect() };
    v1::PickerConfig {
        plugins: plugins.iter().map(|(r#type, _)| plugin(r#type, "{}")).collect(),
        profiles: vec![profile],
        ..v1::PickerConfig::default()
    }
}

/// Policy that picks the endpoint with the fewest waiting requests, so that tests determine where requests
/// go.
pub fn fewest_waiting() -> v1::Policy {
    let config = picker_config(&[("queue-scorer", None), ("max-score-picker", None)]);
    v1::Policy { picker_config: Some(config), ..v1::Policy::default() }
}

/// Pipeline of a configuration.
pub fn pipeline(config: v1::PickerConfig) -> Pipeline {
    pipeline_into_core(&mut v1::Policy { picker_config: Some(config), ..v1::Policy::default() }).unwrap()
}

/// Topology of the endpoints of these numbers.
pub fn topology(pool: &str, numbers: impl IntoIterator<Item = u16>, policy: v1::Policy) -> v1::Topology {
    let endpoints = numbers.into_iter().map(endpoint).collect();
    v1::Topology { pool: pool.to_owned(), endpoints, policy: Some(policy) }
}

/// New reading of a ready server with this many waiting requests.
pub fn reading(waiting: u64) -> v1::Reading {
    v1::Reading { ready: true, age_ms: Some(0), waiting: Some(waiting), ..v1::Reading::default() }
}

/// New reading of a busy server; servers of different numbers differ.
pub fn busy_reading(number: u16) -> v1::Reading {
    v1::Reading {
        running: Some(u64::from(number % 64 * 31 % 64)),
        kv_usage: Some(f64::from(number % 100 * 13 % 100) / 100.0),
        block_size: Some(16),
        num_blocks: Some(8_192),
        ..reading(u64::from(number % 8 * 7 % 8))
    }
}

/// Snapshot of readings without a topology.
pub fn snapshot(readings: impl IntoIterator<Item = v1::Reading>) -> v1::Snapshot {
    v1::Snapshot {
        format: FORMAT,
        topology_version: 1,
        readings_version: 1,
        readings: readings.into_iter().collect(),
        ..v1::Snapshot::default()
    }
}

/// Feed of an agent, with the bounds of a real one.
#[derive(Debug)]
pub struct AgentFeed {
    number: u64,
    first: u64,
    messages: VecDeque<FeedMessage>,
    bytes: usize,
    /// Time until a message can be read: zero for one agent, more for a store between agents.
    pub delay: Duration,
    /// Difference of the agent's clock to the proxies' clocks.
    pub ahead: Duration,
    /// Messages dropped before a proxy read them, added up over the proxies.
    pub missed: u64,
    /// Maximum age of a message that a proxy read.
    pub longest_wait: Duration,
}

#[derive(Debug)]
struct FeedMessage {
    sender: u64,
    arrived: Duration,
    made: Duration,
    changes: Bytes,
}

impl AgentFeed {
    /// Maximum number of messages.
    const MAX_MESSAGES: usize = 1 << 16;
    /// Maximum bytes of all messages.
    const MAX_BYTES: usize = 32 << 20;
    /// Bytes after which a response carries no further message.
    const RESPONSE_BYTES: usize = 256 << 10;

    /// Empty feed with this number.
    pub fn new(number: u64) -> Self {
        Self {
            number,
            first: 0,
            messages: VecDeque::new(),
            bytes: 0,
            delay: Duration::ZERO,
            ahead: Duration::ZERO,
            missed: 0,
            longest_wait: Duration::ZERO,
        }
    }

    /// Adds a proxy's message, and returns the messages of the others from its position on.
    pub fn take(&mut self, sync: &Sync, now: Duration) -> Feed {
        if let Some(changes) = &sync.changes {
            self.bytes += changes.len();
            let made = now.saturating_sub(Duration::from_millis(sync.age_ms));
            let (sender, changes) = (sync.sender, changes.clone());
            self.messages.push_back(FeedMessage { sender, arrived: now, made, changes });
            while self.messages.len() > Self::MAX_MESSAGES || self.bytes > Self::MAX_BYTES {
                self.bytes -= self.messages.pop_front().unwrap().changes.len();
                self.first += 1;
            }
        }
        let known = sync.positions.iter().find(|position| position.feed == self.number);
        self.missed += known.map_or(0, |position| self.first.saturating_sub(position.next));
        let mut next = known.map_or(0, |position| position.next).max(self.first);
        let (mut deliveries, mut bytes) = (Vec::new(), 0);
        for message in self.messages.range(usize::try_from(next - self.first).unwrap()..) {
            if bytes >= Self::RESPONSE_BYTES || message.arrived + self.delay > now {
                break;
            }
            next += 1;
            if message.sender != sync.sender {
                bytes += message.changes.len();
                let age = now.saturating_sub(message.made);
                self.longest_wait = self.longest_wait.max(age);
                deliveries.push(Delivery { age_ms: millis(age), changes: message.changes.clone() });
            }
        }
        let position = Some(Position { feed: self.number, next });
        Feed { format: CHANGES_FORMAT, position, deliveries, since_epoch_ms: millis(now + self.ahead) }
    }
}

/// Whole milliseconds.
pub fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap()
}
