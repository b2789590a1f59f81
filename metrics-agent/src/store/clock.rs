//! The clock of a store.

use core::time::Duration;

use redis::RedisResult;

use super::connection::Connection;
use super::stream::MAX_AHEAD_MS;
use crate::runtime::clock::Clock;

/// Time between two readings of a store's clock.
const READ_EVERY: Duration = Duration::from_secs(10);

/// The store's clock, in milliseconds since the Unix epoch. Numbers of entries begin with it.
pub(crate) async fn store_time(store: &mut Connection) -> RedisResult<u64> {
    let (seconds, micros): (u64, u64) = redis::cmd("TIME").query_async(store).await?;
    Ok(seconds.saturating_mul(1000).saturating_add(micros / 1000))
}

/// The store's clock beside the agent's: no two hosts' clocks are compared.
pub(crate) struct StoreClock {
    store_ms: u64,
    read: Duration,
}

impl StoreClock {
    pub(crate) async fn read(store: &mut Connection, clock: Clock) -> RedisResult<Self> {
        Ok(Self { store_ms: store_time(store).await?, read: clock.now() })
    }

    pub(crate) fn is_old(&self, clock: Clock) -> bool {
        clock.now().saturating_sub(self.read) >= READ_EVERY
    }

    /// The age of an entry that was added at this time of the store.
    pub(crate) fn age(&self, added_ms: u64, clock: Clock) -> Duration {
        Duration::from_millis(self.now(clock).saturating_sub(added_ms))
    }

    /// Whether the number of an entry is so far ahead of the store's clock that [`remove_if_ahead`](super::remove_if_ahead) removes its stream.
    pub(crate) fn is_ahead(&self, added_ms: u64, clock: Clock) -> bool {
        added_ms > self.now(clock).saturating_add(MAX_AHEAD_MS)
    }

    fn now(&self, clock: Clock) -> u64 {
        self.store_ms.saturating_add(millis(clock.now().saturating_sub(self.read)))
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
