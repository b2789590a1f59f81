//! A store that several agents share: Valkey or Redis.

mod connection;

use core::fmt;
use core::time::Duration;
use std::path::PathBuf;

use backon::{BackoffBuilder, ExponentialBuilder};
pub(crate) use connection::StoreConnection;
use redis::{ConnectionInfo, IntoConnectionInfo, RedisResult};

use metrics_agent_support::runtime::Clock;

/// Pauses after failures in a row, from 50 ms to 2 s.
pub(crate) fn backoff() -> impl Iterator<Item = Duration> {
    // Jitter adds up to the same time again, hence 2 s.
    let builder = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(50))
        .with_max_delay(Duration::from_secs(1))
        .with_jitter()
        .without_max_times();
    builder.build()
}

/// Time between two readings of a store's clock.
const READ_EVERY: Duration = Duration::from_secs(10);

/// The store's clock, in milliseconds since the Unix epoch. Numbers of entries begin with it.
pub(crate) async fn store_time(store: &mut StoreConnection) -> RedisResult<u64> {
    let (seconds, micros): (u64, u64) = redis::cmd("TIME").query_async(store).await?;
    Ok(seconds.saturating_mul(1000).saturating_add(micros / 1000))
}

/// The store's clock, continued by the agent's steady clock since it was read: no two hosts' clocks are
/// compared.
pub(crate) struct StoreClock {
    store_ms: u64,
    read: Duration,
}

impl StoreClock {
    pub(crate) async fn read(store: &mut StoreConnection, clock: Clock) -> RedisResult<Self> {
        Ok(Self { store_ms: store_time(store).await?, read: clock.now() })
    }

    pub(crate) fn is_old(&self, clock: Clock) -> bool {
        clock.now().saturating_sub(self.read) >= READ_EVERY
    }

    /// The age of an entry that was added at this time of the store.
    pub(crate) fn age(&self, added_ms: u64, clock: Clock) -> Duration {
        Duration::from_millis(self.now(clock).saturating_sub(added_ms))
    }

    /// Whether the number of an entry is so far ahead of the store's clock that [`remove_if_ahead`] removes
    /// its stream.
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

/// Maximum time by which the last number of a stream may be ahead of the store's clock, in milliseconds.
/// Before a failover another node gave out the numbers, whose clock may have been ahead.
const MAX_AHEAD_MS: u64 = 600_000;

/// Removes a stream (`KEYS[1]`) whose last number is above `ARGV[1]`.
const REMOVE: &str = "local info = redis.pcall('XINFO', 'STREAM', KEYS[1])
for i = 1, #info - 1, 2 do
  if info[i] == 'last-generated-id' and tonumber(string.match(info[i + 1], '^%d+')) > tonumber(ARGV[1]) then
    return redis.call('DEL', KEYS[1])
  end
end
return 0";

/// Removes a stream whose last number is far ahead of the store's clock, which is `now`. The store gives out
/// only higher numbers: after the highest of all it refuses every entry, and after others it removes none by
/// age. A store that does not permit the commands keeps the stream.
pub(crate) async fn remove_if_ahead(store: &mut StoreConnection, key: &str, now: u64) {
    let mut remove = redis::cmd("EVAL");
    remove.arg(REMOVE).arg(1).arg(key).arg(now.saturating_add(MAX_AHEAD_MS));
    let removed: RedisResult<u64> = remove.query_async(store).await;
    match removed {
        Ok(0) => {}
        Ok(_) => tracing::warn!(
            stream = key,
            "the stream's numbers were far ahead of the store's clock; it was removed"
        ),
        Err(error) => tracing::debug!(stream = key, %error, "the stream's numbers are not checked"),
    }
}

/// The address of a store: its nodes, and how they belong together.
#[derive(Clone)]
pub struct StoreAddress {
    /// One or more, with their credentials.
    pub(crate) nodes: Vec<ConnectionInfo>,
    /// Role of the nodes.
    pub(crate) kind: NodeRole,
    /// Authorities of the nodes' certificates, in PEM; `None`: the system's.
    pub(crate) authorities: Option<PathBuf>,
}

/// Role of the nodes of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeRole {
    /// The one server.
    Single,
    /// Some nodes of a cluster, which name the others.
    Cluster,
    /// Sentinels, which name the primary of this service.
    Sentinels(String),
}

impl fmt::Debug for StoreAddress {
    /// Without credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoreAddress").field("kind", &self.kind).finish_non_exhaustive()
    }
}

impl fmt::Display for StoreAddress {
    /// The nodes without credentials.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, node) in self.nodes.iter().enumerate() {
            let separator = if index > 0 { "," } else { "" };
            write!(f, "{separator}{}", node.addr())?;
        }
        Ok(())
    }
}

impl StoreAddress {
    /// Parses URLs, separated by commas: `redis://[USER:PASSWORD@]HOST[:PORT][/DB]`, or `rediss://…` for TLS.
    /// The error does not contain the URL, which may have a password.
    pub fn parse(urls: &str) -> Result<Self, String> {
        let node = |url: &str| {
            let url = url.trim();
            let is_tcp = url.starts_with("redis://") || url.starts_with("rediss://");
            is_tcp.then(|| url.into_connection_info().ok()).flatten()
        };
        let nodes: Option<Vec<ConnectionInfo>> = urls.split(',').map(node).collect();
        let nodes = nodes.ok_or_else(|| {
            "allowed is off, agent, or URLs separated by commas, such as redis://10.0.0.9:6379 or rediss://USER:PASSWORD@HOST"
                .to_owned()
        })?;
        Ok(Self { nodes, kind: NodeRole::Single, authorities: None })
    }

    /// The same nodes as nodes of this kind, with these authorities of their certificates. Refuses several
    /// servers that are not a cluster or sentinels.
    pub fn with(self, kind: NodeRole, authorities: Option<PathBuf>) -> Result<Self, String> {
        if kind == NodeRole::Single && self.nodes.len() > 1 {
            return Err(
                "--share names several servers; required is --share-cluster or --share-sentinel".to_owned()
            );
        }
        Ok(Self { kind, authorities, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_store_that_is_away_is_tried_at_least_every_two_seconds() {
        let pauses: Vec<_> = backoff().take(1_000).collect();
        assert!(pauses[0] <= Duration::from_millis(100), "{:?}", pauses[0]);
        assert!(pauses.iter().all(|pause| *pause <= Duration::from_secs(2)), "{:?}", pauses.iter().max());
    }

    #[test]
    fn urls_name_nodes_and_are_printed_without_credentials() {
        let address =
            StoreAddress::parse("redis://user:secret@10.0.0.9:6380/2, rediss://valkey.example").unwrap();
        assert_eq!(address.to_string(), "10.0.0.9:6380,valkey.example:6379");
        let printed = format!("{address:?} {address}");
        assert!(!printed.contains("secret") && !printed.contains("user"), "{printed}");
        assert!(address.clone().with(NodeRole::Single, None).is_err());
        assert_eq!(address.with(NodeRole::Cluster, None).unwrap().kind, NodeRole::Cluster);
    }

    #[test]
    fn other_urls_are_refused_without_being_printed() {
        for urls in [
            "",
            "10.0.0.9:6379",
            "http://10.0.0.9",
            "redis://h:secret:x",
            "redis://a,secret",
            "unix:///secret",
        ] {
            let refusal = StoreAddress::parse(urls).unwrap_err();
            assert!(refusal.contains("redis://10.0.0.9:6379") && !refusal.contains("secret"), "{refusal}");
        }
    }
}
