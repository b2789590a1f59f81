//! A store that several agents share: Valkey or Redis.

mod address;
mod clock;
mod connection;

use core::time::Duration;

use backon::{BackoffBuilder, ExponentialBuilder};

pub use address::{Nodes, StoreAddress};
pub(crate) use clock::{StoreClock, store_time};
pub(crate) use connection::Connection;

/// How long a pause follows each failure in a row.
pub(crate) fn backoff() -> impl Iterator<Item = Duration> {
    let builder = ExponentialBuilder::default()
        .with_min_delay(Duration::from_millis(50))
        .with_max_delay(Duration::from_secs(2))
        .with_jitter()
        .without_max_times();
    builder.build()
}
