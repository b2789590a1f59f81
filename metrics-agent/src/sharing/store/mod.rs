//! Changes between agents, by streams of Valkey or Redis: one for each pool.
//!
//! A [`Link`](link::Link) adds what the proxies of this agent send to the pool's stream, and reads what those of other agents have
//! sent. It is soft state: while the store is away, slow or empty, each agent's proxies go on with what they have, and the newest
//! messages wait in a bounded queue.

pub(super) mod link;
mod metrics;
mod outgoing;
mod position;
mod progress;
mod stream_size;

pub use metrics::StoreMetrics;
pub(super) use outgoing::{Outgoing, OutgoingMessage, Waiting};
pub(super) use progress::Progress;
