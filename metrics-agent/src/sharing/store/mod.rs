//! Changes between agents, by streams of Valkey or Redis: one for each pool.
//!
//! A [`StreamLink`] adds the messages of this agent's proxies to the pool's stream, and reads the messages of
//! other agents' proxies. The stream is soft state: while the store is away, slow or empty, each agent's
//! proxies continue with the changes that they have, and the newest messages wait in a bounded queue.

mod outgoing;
mod position;

use core::time::Duration;
use std::sync::Arc;

use endpoint_picker_wire::changes::Stored;
use endpoint_picker_wire::{CHANGES_FORMAT, Message};
use metrics_agent_support::runtime::Clock;
use outgoing::AverageSize;
pub(super) use outgoing::{Outgoing, OutgoingMessage, WaitingMessages};
pub(super) use position::Progress;
use position::{EntryId, ReadPosition};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use redis::streams::{StreamReadOptions, StreamReadReply};
use redis::{Cmd, FromRedisValue, RedisError, RedisResult};

use super::feed::PoolFeed;
use crate::store::{StoreAddress, StoreClock, StoreConnection, backoff, remove_if_ahead, store_time};

/// Counters of the store, for all pools together. Clones count together.
#[derive(Clone, Debug, Default)]
pub struct StoreMetrics {
    written: Counter,
    read: Counter,
    unreadable: Counter,
    pub(in crate::sharing) dropped: Counter,
    failures: Counter,
    connected: Gauge,
}

impl StoreMetrics {
    /// Registers the counters.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let counters = [
            ("store_written", "Messages with changes that the store took", &metrics.written),
            ("store_read", "Messages with changes of other agents, from the store", &metrics.read),
            ("store_unreadable", "Entries of the store that were passed over", &metrics.unreadable),
            (
                "store_dropped",
                "Messages that were dropped because the store did not take them",
                &metrics.dropped,
            ),
            ("store_failures", "Connections to the store that failed", &metrics.failures),
        ];
        for (name, help, counter) in counters {
            registry.register(name, help, counter.clone());
        }
        let help = "Pools whose changes are exchanged with the store now";
        registry.register("store_connected_pools", help, metrics.connected.clone());
        metrics
    }
}

/// The field of an entry with the message.
const FIELD: &str = "m";

/// Maximum number of messages that are written at once.
const WRITE_AT_ONCE: usize = 64;

/// Maximum number of entries in a response of the store.
const READ_AT_ONCE: usize = 256;

/// The time that the store holds a read back while there is nothing new.
pub(in crate::sharing) const READ_WAIT: Duration = Duration::from_secs(1);

/// The time that a write may take.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// Time between two trims of the stream by age, and between two readings of the store's clock.
const TRIM_EVERY: Duration = Duration::from_secs(10);

/// Duration from which a connection shows that the store works, so that the next pause is short again.
const LASTING: Duration = Duration::from_secs(2);

/// Age from which entries are not read, and are removed.
const MAX_AGE: Duration = Duration::from_secs(600);

/// The exchange of one pool's messages with its stream in the store.
pub(in crate::sharing) struct StreamLink {
    /// The stream.
    pub(in crate::sharing) key: String,
    pub(in crate::sharing) address: Arc<StoreAddress>,
    /// A number of this agent's run: its own entries are not read.
    pub(in crate::sharing) agent: u64,
    pub(in crate::sharing) clock: Clock,
    pub(in crate::sharing) feed: Arc<PoolFeed>,
    pub(in crate::sharing) outgoing: Arc<Outgoing>,
    pub(in crate::sharing) progress: Arc<Progress>,
    pub(in crate::sharing) metrics: StoreMetrics,
}

/// The key of a pool's stream. The braces keep it on one node of a cluster.
pub(in crate::sharing) fn stream_key(pool: &str) -> String {
    format!("endpoint-picker/changes/{{{pool}}}")
}

impl StreamLink {
    /// Exchanges messages forever; reconnects after a failure.
    pub(in crate::sharing) async fn run(self) {
        let mut position = ReadPosition::default();
        let mut pauses = backoff();
        let mut last_problem = None;
        loop {
            let problem = match self.connect().await {
                Ok([writing, reading]) => {
                    // Pauses become short only after a while, because a full store accepts connections and
                    // refuses messages.
                    let lasting = async {
                        tokio::time::sleep(LASTING).await;
                        pauses = backoff();
                        if last_problem.take().is_some() {
                            tracing::info!(store = %self.address, stream = self.key, "changes are exchanged with the store again");
                        }
                        core::future::pending().await
                    };
                    self.set_connected(true);
                    let ended = tokio::select! {
                        ended = self.write(writing) => ended,
                        ended = self.read(reading, &mut position) => ended,
                        ended = lasting => ended,
                    };
                    self.set_connected(false);
                    ended
                }
                Err(error) => Err(error),
            };
            if let Err(problem) = problem {
                self.metrics.failures.inc();
                let problem = first_problem(&problem);
                if last_problem.as_ref() != Some(&problem) {
                    tracing::warn!(store = %self.address, stream = self.key, problem,
                        "changes are not exchanged with the store; each agent continues with its own proxies");
                    last_problem = Some(problem);
                }
            }
            tokio::time::sleep(pauses.next().unwrap_or_default()).await;
        }
    }

    fn set_connected(&self, is_connected: bool) {
        self.progress.set_connected(is_connected);
        if is_connected {
            self.metrics.connected.inc();
        } else {
            self.metrics.connected.dec();
        }
    }

    /// Connections for writing and reading: a read that waits would keep writes back.
    async fn connect(&self) -> RedisResult<[StoreConnection; 2]> {
        let writing = StoreConnection::open(&self.address, WRITE_TIMEOUT);
        let reading = StoreConnection::open(&self.address, READ_WAIT + WRITE_TIMEOUT);
        let (writing, reading) = tokio::try_join!(writing, reading)?;
        Ok([writing, reading])
    }

    /// Writes messages as they come. Returns only when the store fails; messages that it has not taken wait
    /// again.
    async fn write(&self, mut store: StoreConnection) -> RedisResult<()> {
        let mut average = AverageSize::default();
        let mut trimmed: Option<Duration> = None;
        loop {
            let batch = self.outgoing.take(WRITE_AT_ONCE).await;
            let now = self.clock.now();
            let mut pipeline = redis::pipe();
            let mut count = 0;
            for message in batch.messages() {
                let bytes = self.stored(message, now).encode_to_vec();
                let most = average.take(bytes.len());
                let mut add = redis::cmd("XADD");
                add.arg(&self.key).arg("MAXLEN").arg("~").arg(most).arg("*").arg(FIELD).arg(bytes);
                pipeline.add_command(add).ignore();
                count += 1;
            }
            if trimmed.is_none_or(|trimmed| now.saturating_sub(trimmed) >= TRIM_EVERY) {
                trimmed = Some(now);
                let now = store_time(&mut store).await?;
                remove_if_ahead(&mut store, &self.key, now).await;
                let oldest = now.saturating_sub(millis(MAX_AGE));
                pipeline.add_command(trim(&self.key, oldest)).ignore();
                pipeline.cmd("EXPIRE").arg(&self.key).arg(2 * MAX_AGE.as_secs()).ignore();
            }
            // After an error, dropping `batch` puts its messages back into the queue.
            let () = pipeline.query_async(&mut store).await?;
            batch.written();
            self.metrics.written.inc_by(count);
        }
    }

    fn stored(&self, message: &OutgoingMessage, now: Duration) -> Stored {
        Stored {
            format: CHANGES_FORMAT,
            agent: self.agent,
            sender: message.sender,
            age_ms: millis(message.age.saturating_add(now.saturating_sub(message.arrived))),
            changes: message.changes.clone(),
        }
    }

    /// Reads entries as they come. Returns only when the store fails.
    async fn read(&self, mut store: StoreConnection, position: &mut ReadPosition) -> RedisResult<()> {
        let now = store_time(&mut store).await?;
        let mut id = format!("{}-0", position.begin(now, now.saturating_sub(millis(MAX_AGE))));
        let mut offset = StoreClock::read(&mut store, self.clock).await?;
        let options = StreamReadOptions::default().count(READ_AT_ONCE).block(millis_usize(READ_WAIT));
        loop {
            let mut read = redis::cmd("XREAD");
            read.arg(&options).arg("STREAMS").arg(&self.key).arg(&id);
            let reply: Option<StreamReadReply> = read.query_async(&mut store).await?;
            let entries = reply.into_iter().flat_map(|reply| reply.keys).flat_map(|stream| stream.ids);
            let mut count = 0;
            for entry in entries {
                count += 1;
                // A connection begins a little before the last entry, so the first entries may have been read
                // before.
                if let Some(number) = EntryId::parse(&entry.id)
                    && position.insert(number)
                {
                    let age = offset.age(number.ms, self.clock);
                    let bytes = entry.map.get(FIELD).map(Vec::<u8>::from_redis_value_ref);
                    self.take(&bytes.and_then(Result::ok).unwrap_or_default(), age);
                }
                id = entry.id;
            }
            if count == 0 && EntryId::parse(&id).is_some_and(|last| offset.is_ahead(last.ms, self.clock)) {
                // Entries that follow after the stream was removed have lower numbers.
                let now = store_time(&mut store).await?;
                id = format!("{}-0", position.begin(now, now.saturating_sub(millis(MAX_AGE))));
            }
            if count < READ_AT_ONCE {
                self.progress.has_read_all(self.clock.now());
            }
            if offset.is_old(self.clock) {
                offset = StoreClock::read(&mut store, self.clock).await?;
            }
        }
    }

    /// Takes an entry that was added this long ago.
    fn take(&self, bytes: &[u8], since_added: Duration) {
        match Stored::decode(bytes) {
            Ok(stored) if stored.format == CHANGES_FORMAT => {
                if stored.agent != self.agent {
                    let age = since_added.saturating_add(Duration::from_millis(stored.age_ms));
                    let is_taken = self.feed.push(stored.sender, age, stored.changes);
                    if is_taken { &self.metrics.read } else { &self.metrics.unreadable }.inc();
                }
            }
            Ok(_) | Err(_) => {
                self.metrics.unreadable.inc();
            }
        }
    }
}

/// The text of an error. A full store refuses each message of a pipeline with the same text, so the first
/// refusal is used.
fn first_problem(error: &RedisError) -> String {
    let refusals = error.clone().into_server_errors();
    let first = refusals.and_then(|refusals| Some(refusals.first()?.1.to_string()));
    first.unwrap_or_else(|| error.to_string())
}

/// Removes the entries before a time of the store.
fn trim(key: &str, oldest_ms: u64) -> Cmd {
    let mut trim = redis::cmd("XTRIM");
    trim.arg(key).arg("MINID").arg("~").arg(oldest_ms);
    trim
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

fn millis_usize(time: Duration) -> usize {
    usize::try_from(time.as_millis()).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pools_of_one_name_in_two_namespaces_have_streams_of_their_own() {
        assert_ne!(stream_key("prod/llama"), stream_key("test/llama"));
        assert_eq!(stream_key("prod/llama"), "endpoint-picker/changes/{prod/llama}");
    }
}
