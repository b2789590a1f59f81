//! The status of a pool, which the agent shows as JSON and its commands read: its
//! [endpoints and proxies](pool), their [queues], the [predictions] of cached tokens and the agent as an
//! [extension] server. [`snapshot`] makes the status of endpoints of their readings.
//!
//! The commands print it as a table.

pub mod columns;
mod counts;
pub mod extension;
pub mod pool;
mod pool_table;
pub mod predictions;
mod queue_table;
pub mod queues;
pub mod report;
pub mod snapshot;
pub mod unseen_queue;
