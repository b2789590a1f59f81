//! Streams that take no further entries.

use redis::RedisResult;

use super::connection::Connection;

/// How far the last number of a stream may be ahead of the store's clock, in milliseconds: that of another node, before a failover, may
/// have been ahead.
pub(super) const MAX_AHEAD_MS: u64 = 600_000;

/// Removes a stream (`KEYS[1]`) whose last number is above `ARGV[1]`.
const REMOVE: &str = "local info = redis.pcall('XINFO', 'STREAM', KEYS[1])
for i = 1, #info - 1, 2 do
  if info[i] == 'last-generated-id' and tonumber(string.match(info[i + 1], '^%d+')) > tonumber(ARGV[1]) then
    return redis.call('DEL', KEYS[1])
  end
end
return 0";

/// Removes a stream whose last number is far ahead of the store's clock, which is `now`. The store gives out only higher numbers: after
/// the highest of all it refuses every entry, and after others it removes none by age. A store that does not permit the commands keeps the
/// stream.
pub(crate) async fn remove_if_ahead(store: &mut Connection, key: &str, now: u64) {
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
