//! A store that several agents share: Valkey or Redis.

mod address;
mod clock;
mod connection;
mod stream;

use core::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};

pub use address::{Nodes, StoreAddress};
pub(crate) use clock::{StoreClock, store_time};
pub(crate) use connection::Connection;
pub(crate) use stream::remove_if_ahead;

/// How long a pause follows each failure in a row: 50 ms at first, 2 s at most.
pub(crate) fn backoff() -> impl Iterator<Item = Duration> {
    // Jitter adds as much again, at most.
    let builder = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(50))
        .with_max_delay(Duration::from_secs(1))
        .with_jitter()
        .without_max_times();
    builder.build()
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
}
