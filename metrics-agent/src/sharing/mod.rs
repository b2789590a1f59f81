//! Changes that the proxies of a pool share.
//!
//! Each proxy sends what its requests have changed, and reads what those of the other proxies have. The agent keeps recent messages in a
//! [`PoolFeed`](feed::PoolFeed) and does not look into them; with a [`store`], agents exchange them too. Nothing waits for it: a proxy goes
//! on with what it knows.

pub mod feed;
mod feeds;
pub mod store;

pub use feed::MAX_MESSAGE_BYTES;
pub use feeds::{Feeds, LinkStatus, Share, SharedPool, SharedPoolStatus};
