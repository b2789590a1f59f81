//! The record of finished requests, for the agent, which writes it to files.
//!
//! A pool is recorded if its policy says so. Then each request of the sample has a
//! [`RequestRecord`](request::RequestRecord), which becomes an entry of the [`RecordOutbox`] when the request
//! ends, and a [`RecordClient`] sends the entries. No entry has text of a prompt or a response. What does not
//! fit is dropped and counted: no request waits for its record.

mod client;
mod outbox;
pub(crate) mod request;

pub use client::RecordClient;
pub use outbox::{RecordCounts, RecordOutbox};
