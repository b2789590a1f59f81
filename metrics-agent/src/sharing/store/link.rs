//! The exchange of one pool's messages with its stream in the store.

use core::time::Duration;
use std::sync::Arc;

use backon::{BackoffBuilder, ExponentialBuilder};
use endpoint_picker_wire::changes::Stored;
use endpoint_picker_wire::{CHANGES_FORMAT, Message};
use redis::streams::{StreamReadOptions, StreamReadReply};
use redis::{Cmd, FromRedisValue, RedisResult};

use super::address::StoreAddress;
use super::connection::Connection;
use super::metrics::StoreMetrics;
use super::outgoing::{Outgoing, OutgoingMessage};
use crate::runtime::clock::Clock;
use crate::sharing::feed::PoolFeed;

/// The field of an entry with the message.
const FIELD: &str = "m";

/// Most messages that are written at once.
const WRITE_AT_ONCE: usize = 64;

/// Most entries in an answer of the store.
const READ_AT_ONCE: usize = 256;

/// The time that the store holds a read back while there is nothing new.
const READ_WAIT: Duration = Duration::from_secs(1);

/// The time that a write may take.
const WRITE_TIMEOUT: Duration = Duration::from_secs(2);

/// Time between two trims of the stream by age, and between two readings of the store's clock.
const TRIM_EVERY: Duration = Duration::from_secs(10);

/// Entries that are older are not read, and removed.
const MAX_AGE: Duration = Duration::from_secs(600);

/// Bytes of a stream, about: the number of entries is bounded so that they take no more.
const MAX_BYTES: usize = 64 << 20;

/// Bounds of the number of entries.
const MIN_ENTRIES: usize = 1 << 10;
const MAX_ENTRIES: usize = 1 << 16;

/// How far behind the last entry that was read a connection begins: a store that failed over may have given out
/// earlier numbers since. What is read twice does no harm.
const OVERLAP: Duration = Duration::from_secs(2);

/// The exchange of one pool's messages with its stream in the store.
pub(in crate::sharing) struct Link {
    /// The stream.
    pub(in crate::sharing) key: String,
    pub(in crate::sharing) address: Arc<StoreAddress>,
    /// A number of this agent's run: its own entries are not read.
    pub(in crate::sharing) agent: u64,
    pub(in crate::sharing) clock: Clock,
    pub(in crate::sharing) feed: Arc<PoolFeed>,
    pub(in crate::sharing) outgoing: Arc<Outgoing>,
    pub(in crate::sharing) metrics: StoreMetrics,
}

/// The key of a pool's stream. The braces keep it on one node of a cluster.
pub(in crate::sharing) fn stream_key(pool: &str) -> String {
    format!("endpoint-picker/changes/{{{pool}}}")
}

/// How long a pause follows each failure in a row.
fn backoff() -> impl Iterator<Item = Duration> {
    let builder = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(50))
        .with_max_delay(Duration::from_secs(2))
        .with_jitter()
        .without_max_times();
    builder.build()
}

impl Link {
    /// Exchanges messages forever; reconnects after a failure.
    pub(in crate::sharing) async fn run(self) {
        // The number of the entry that was read last, in milliseconds of the store's clock.
        let mut last = None;
        let mut pauses = backoff();
        let mut last_problem = None;
        loop {
            let problem = match self.connect().await {
                Ok([writing, reading]) => {
                    if last_problem.take().is_some() {
                        tracing::info!(store = %self.address, stream = self.key, "changes are exchanged with the store again");
                    }
                    pauses = backoff();
                    self.metrics.connected.inc();
                    let ended = tokio::select! {
                        ended = self.write(writing) => ended,
                        ended = self.read(reading, &mut last) => ended,
                    };
                    self.metrics.connected.dec();
                    ended
                }
                Err(error) => Err(error),
            };
            if let Err(problem) = problem {
                self.metrics.failures.inc();
                let problem = problem.to_string();
                if last_problem.as_ref() != Some(&problem) {
                    tracing::warn!(store = %self.address, stream = self.key, problem,
                        "changes are not exchanged with the store; each agent goes on with its own proxies");
                    last_problem = Some(problem);
                }
            }
            tokio::time::sleep(pauses.next().unwrap_or_default()).await;
        }
    }

    /// Connections for writing and reading: a read that waits would keep writes back.
    async fn connect(&self) -> RedisResult<[Connection; 2]> {
        let writing = Connection::open(&self.address, WRITE_TIMEOUT);
        let reading = Connection::open(&self.address, READ_WAIT + WRITE_TIMEOUT);
        let (writing, reading) = tokio::try_join!(writing, reading)?;
        Ok([writing, reading])
    }

    /// Writes messages as they come. Returns only when the store fails; what it has not taken is lost.
    async fn write(&self, mut store: Connection) -> RedisResult<()> {
        let mut average = AverageSize::default();
        let mut trimmed: Option<Duration> = None;
        loop {
            let messages = self.outgoing.take(WRITE_AT_ONCE).await;
            let now = self.clock.now();
            let mut pipeline = redis::pipe();
            let mut count = 0;
            for message in &messages {
                let bytes = self.stored(message, now).encode_to_vec();
                let most = average.take(bytes.len());
                let mut add = redis::cmd("XADD");
                add.arg(&self.key).arg("MAXLEN").arg("~").arg(most).arg("*").arg(FIELD).arg(bytes);
                pipeline.add_command(add).ignore();
                count += 1;
            }
            if trimmed.is_none_or(|trimmed| now.saturating_sub(trimmed) >= TRIM_EVERY) {
                trimmed = Some(now);
                let oldest = store_time(&mut store).await?.saturating_sub(millis(MAX_AGE));
                pipeline.add_command(trim(&self.key, oldest)).ignore();
                pipeline.cmd("EXPIRE").arg(&self.key).arg(2 * MAX_AGE.as_secs()).ignore();
            }
            let written: RedisResult<()> = pipeline.query_async(&mut store).await;
            if let Err(error) = written {
                self.metrics.dropped.inc_by(count);
                return Err(error);
            }
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
    async fn read(&self, mut store: Connection, last: &mut Option<u64>) -> RedisResult<()> {
        let oldest = store_time(&mut store).await?.saturating_sub(millis(MAX_AGE));
        let begin = last.map_or(oldest, |last| last.saturating_sub(millis(OVERLAP)).max(oldest));
        let mut id = format!("{begin}-0");
        let mut offset = StoreClock::read(&mut store, self.clock).await?;
        let options = StreamReadOptions::default().count(READ_AT_ONCE).block(millis_usize(READ_WAIT));
        loop {
            let mut read = redis::cmd("XREAD");
            read.arg(&options).arg("STREAMS").arg(&self.key).arg(&id);
            let reply: Option<StreamReadReply> = read.query_async(&mut store).await?;
            let entries = reply.into_iter().flat_map(|reply| reply.keys).flat_map(|stream| stream.ids);
            for entry in entries {
                let added = entry.id.split('-').next().and_then(|ms| ms.parse().ok()).unwrap_or(0);
                *last = Some(added);
                let bytes = entry.map.get(FIELD).map(Vec::<u8>::from_redis_value_ref);
                self.take(&bytes.and_then(Result::ok).unwrap_or_default(), offset.age(added, self.clock));
                id = entry.id;
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
                    self.metrics.read.inc();
                    let age = since_added.saturating_add(Duration::from_millis(stored.age_ms));
                    self.feed.push(stored.sender, age, stored.changes);
                }
            }
            Ok(_) | Err(_) => {
                self.metrics.unreadable.inc();
            }
        }
    }
}

/// Removes the entries before a time of the store.
fn trim(key: &str, oldest_ms: u64) -> Cmd {
    let mut trim = redis::cmd("XTRIM");
    trim.arg(key).arg("MINID").arg("~").arg(oldest_ms);
    trim
}

/// The store's clock, in milliseconds since the Unix epoch. Numbers of entries begin with it.
async fn store_time(store: &mut Connection) -> RedisResult<u64> {
    let (seconds, micros): (u64, u64) = redis::cmd("TIME").query_async(store).await?;
    Ok(seconds.saturating_mul(1000).saturating_add(micros / 1000))
}

/// The store's clock beside the agent's: no two hosts' clocks are compared.
struct StoreClock {
    store_ms: u64,
    read: Duration,
}

impl StoreClock {
    async fn read(store: &mut Connection, clock: Clock) -> RedisResult<Self> {
        Ok(Self { store_ms: store_time(store).await?, read: clock.now() })
    }

    fn is_old(&self, clock: Clock) -> bool {
        clock.now().saturating_sub(self.read) >= TRIM_EVERY
    }

    /// The age of an entry that was added at this time of the store.
    fn age(&self, added_ms: u64, clock: Clock) -> Duration {
        let since_read = millis(clock.now().saturating_sub(self.read));
        Duration::from_millis(self.store_ms.saturating_add(since_read).saturating_sub(added_ms))
    }
}

/// The size of entries, averaged over the last hundred or so.
#[derive(Default)]
struct AverageSize(f64);

impl AverageSize {
    /// Takes the size of an entry. Returns how many of them the stream may have.
    fn take(&mut self, bytes: usize) -> usize {
        const SHARE: f64 = 0.01;
        let bytes = bytes as f64;
        self.0 = if self.0 == 0.0 { bytes } else { self.0 + SHARE * (bytes - self.0) };
        // Not negative, and far below 2^53.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped below")]
        let entries = (MAX_BYTES as f64 / self.0.max(1.0)) as usize;
        entries.clamp(MIN_ENTRIES, MAX_ENTRIES)
    }
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

    #[test]
    fn a_stream_has_fewer_entries_the_larger_they_are() {
        let mut average = AverageSize::default();
        assert_eq!(average.take(100), MAX_ENTRIES);
        let mut average = AverageSize::default();
        assert_eq!(average.take(8 << 10), 8 << 10);
        assert_eq!(average.take(1 << 30), MIN_ENTRIES);
        for _ in 0..2_000 {
            average.take(8 << 10);
        }
        assert!((8_000..=8_192).contains(&average.take(8 << 10)));
    }
}
