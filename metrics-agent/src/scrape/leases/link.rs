//! The way of a pool's leases and readings to the store and back.

use core::time::Duration;
use std::sync::Arc;

use endpoint_picker_wire::changes::StoredReadings;
use endpoint_picker_wire::{CHANGES_FORMAT, Message};
use metrics_agent_support::runtime::Clock;
use redis::streams::{StreamReadOptions, StreamReadReply};
use redis::{FromRedisValue, RedisResult};
use tokio::time::{sleep, timeout};

use super::group::{Claim, LeaseGroup, Round};
use super::{LeaseMetrics, group};
use crate::store::{StoreAddress, StoreClock, StoreConnection, backoff, remove_if_ahead, store_time};

/// The field of an entry with the readings.
const FIELD: &str = "r";

/// Time in which readings and claims gather before they are sent.
const GATHER: Duration = Duration::from_millis(3);

/// Maximum time of a write. Meanwhile leases count as they were last read.
const WRITE_TIMEOUT: Duration = Duration::from_millis(500);

/// The time that the store holds a read back while there is nothing new.
const READ_WAIT: Duration = Duration::from_secs(1);

/// Age from which readings are skipped, because newer readings follow.
const MAX_AGE: Duration = Duration::from_secs(2);

/// Maximum number of entries of a stream: the entries of a second, or more.
const MAX_ENTRIES: usize = 1 << 10;

/// Maximum number of entries in a response of the store.
const READ_AT_ONCE: usize = 64;

/// Seconds after the last entry, until the store removes the stream.
const STREAM_EXPIRY: usize = 60;

/// Duration from which a connection shows that the store works, so that the next pause is short again.
const LASTING: Duration = Duration::from_secs(2);

/// Takes or renews leases (`KEYS`) for an agent (`ARGV[1]`), each for its time in milliseconds. Returns zero
/// for each lease that the agent has, and for the others the milliseconds for which another agent has it. A
/// time of zero gives a lease up; a time below zero takes it also from another agent. A key that does not
/// expire is not a lease, and is replaced.
const CLAIM: &str = "local held = {}
for i, key in ipairs(KEYS) do
  local holder, time = redis.call('GET', key), tonumber(ARGV[i + 1])
  local left = holder and redis.call('PTTL', key) or -1
  if holder ~= ARGV[1] and left >= 0 and time >= 0 then
    held[i] = math.max(left, 1)
  else
    if time ~= 0 then redis.call('SET', key, ARGV[1], 'PX', math.abs(time))
    elseif holder then redis.call('DEL', key) end
    held[i] = 0
  end
end
return held";

/// The way of a pool's leases and readings to the store and back.
pub(super) struct LeaseLink {
    /// The pool's name unique among all agents.
    pub(super) pool: String,
    pub(super) address: Arc<StoreAddress>,
    /// A number of this agent's run.
    pub(super) agent: u64,
    pub(super) clock: Clock,
    pub(super) group: Arc<LeaseGroup>,
    pub(super) metrics: LeaseMetrics,
}

impl LeaseLink {
    /// Keeps leases and exchanges readings forever; reconnects after a failure.
    pub(super) async fn run(self) {
        let mut pauses = backoff();
        let mut last_problem = None;
        loop {
            let began = self.clock.now();
            let ended = self.exchange().await;
            self.group.set_connected(false);
            if let Err(problem) = ended {
                self.metrics.failures.inc();
                let problem = problem.to_string();
                if last_problem.as_ref() != Some(&problem) {
                    tracing::warn!(store = %self.address, pool = self.pool, problem,
                        "readings are not shared; this agent scrapes all servers of the pool");
                    last_problem = Some(problem);
                }
            }
            if self.clock.now().saturating_sub(began) >= LASTING {
                pauses = backoff();
            }
            sleep(pauses.next().unwrap_or_default()).await;
        }
    }

    /// Returns only when the store fails.
    async fn exchange(&self) -> RedisResult<()> {
        let writing = StoreConnection::open(&self.address, WRITE_TIMEOUT);
        let reading = StoreConnection::open(&self.address, READ_WAIT + WRITE_TIMEOUT);
        let (writing, reading) = tokio::try_join!(writing, reading)?;
        self.group.set_connected(true);
        tokio::select! {
            ended = self.write(writing) => ended,
            ended = self.read(reading) => ended,
        }
    }

    /// The stream of readings. The braces keep it on one node of a cluster with the leases.
    fn stream(&self) -> String {
        format!("endpoint-picker/readings/{{{}}}", self.pool)
    }

    fn lease(&self, scrape: u64) -> String {
        format!("endpoint-picker/scrapes/{{{}}}/{scrape:016x}", self.pool)
    }

    async fn write(&self, mut store: StoreConnection) -> RedisResult<()> {
        let stream = self.stream();
        let now = store_time(&mut store).await?;
        remove_if_ahead(&mut store, &stream, now).await;
        loop {
            // Leases are renewed also without readings.
            let _ = timeout(self.group.renewal_pause(), self.group.changed.notified()).await;
            sleep(GATHER).await;
            let Round { claims, released, readings, is_shown } = self.group.next_round();
            if !claims.is_empty() || !released.is_empty() {
                let sent = self.clock.now();
                let claimed = claims.iter().map(|claim| (claim.scrape, milliseconds(claim)));
                let all: Vec<_> = claimed.chain(released.into_iter().map(|scrape| (scrape, 0))).collect();
                let mut claim = redis::cmd("EVAL");
                claim.arg(CLAIM).arg(all.len());
                for (scrape, _) in &all {
                    claim.arg(self.lease(*scrape));
                }
                claim.arg(self.agent);
                for (_, time) in &all {
                    claim.arg(*time);
                }
                let held: Vec<u64> = claim.query_async(&mut store).await?;
                let held: Vec<_> = held.into_iter().map(Duration::from_millis).collect();
                // The claims come first in `held`; the results of released leases after them are not used.
                let own = self.group.answer(&claims, &held, sent);
                self.metrics.held.set(i64::try_from(own).unwrap_or(i64::MAX));
            }
            if is_shown {
                let bytes = group::entry(self.agent, readings);
                let mut pipeline = redis::pipe();
                pipeline.cmd("XADD").arg(&stream).arg("MAXLEN").arg("~").arg(MAX_ENTRIES).arg("*");
                pipeline.arg(FIELD).arg(bytes).ignore();
                pipeline.cmd("EXPIRE").arg(&stream).arg(STREAM_EXPIRY).ignore();
                let () = pipeline.query_async(&mut store).await?;
            }
        }
    }

    async fn read(&self, mut store: StoreConnection) -> RedisResult<()> {
        let now = store_time(&mut store).await?;
        let max_age = u64::try_from(MAX_AGE.as_millis()).unwrap_or(u64::MAX);
        let mut id = format!("{}-0", now.saturating_sub(max_age));
        let mut store_clock = StoreClock::read(&mut store, self.clock).await?;
        let wait = usize::try_from(READ_WAIT.as_millis()).unwrap_or(usize::MAX);
        let options = StreamReadOptions::default().count(READ_AT_ONCE).block(wait);
        loop {
            let mut read = redis::cmd("XREAD");
            read.arg(&options).arg("STREAMS").arg(self.stream()).arg(&id);
            let reply: Option<StreamReadReply> = read.query_async(&mut store).await?;
            let mut entries =
                reply.into_iter().flat_map(|reply| reply.keys).flat_map(|stream| stream.ids).peekable();
            if entries.peek().is_none() && store_clock.is_ahead(time_of(&id), self.clock) {
                // Entries that follow after the stream was removed have lower numbers.
                id = format!("{}-0", store_time(&mut store).await?.saturating_sub(max_age));
            }
            for entry in entries {
                let added = time_of(&entry.id);
                let age = store_clock.age(added, self.clock);
                let bytes = entry.map.get(FIELD).map(Vec::<u8>::from_redis_value_ref);
                if age < MAX_AGE
                    && let Some(Ok(bytes)) = bytes
                    && let Ok(readings) = StoredReadings::decode(bytes.as_slice())
                    && readings.format == CHANGES_FORMAT
                {
                    self.metrics.read.inc_by(self.group.take(readings, age));
                }
                id = entry.id;
            }
            if store_clock.is_old(self.clock) {
                store_clock = StoreClock::read(&mut store, self.clock).await?;
            }
        }
    }
}

/// The store's time in the number of an entry, in milliseconds.
fn time_of(id: &str) -> u64 {
    id.split('-').next().and_then(|ms| ms.parse().ok()).unwrap_or(0)
}

/// The time of a claim, as the script has it.
fn milliseconds(claim: &Claim) -> i64 {
    let term = i64::try_from(claim.term.as_millis()).unwrap_or(i64::MAX);
    if claim.is_forced { -term } else { term }
}
