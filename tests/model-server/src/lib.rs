//! A model server for tests, over real sockets. A test sets how it responds and which metrics it reports.
//!
//! It serves the OpenAI API (chat and text completions and responses, plain and streamed, the list of
//! models), Anthropic's messages and vLLM's `/metrics` and `/kv_event_sources`, over HTTP/1.1 and HTTP/2 with
//! prior knowledge, and records every request. Answers depend on the request alone, so the same request sent
//! past Envoy gets the same bytes, but for the streams of [agents](agent).

pub mod agent;
mod answer;
mod body;
mod connection;
mod echo;
mod engine;
mod event_stream;
pub mod kv_events;
mod metrics;
mod port;
mod protocol;
mod request;
mod server;
mod state;
mod stored;
mod typed_events;

pub use metrics::{CacheConfig, Lora, Metrics};
pub use protocol::{BEHAVE, CLAIM_ENCODING, CLAIM_HEADER, MODEL, SERVED_BY, SERVED_MODEL};
pub use request::{Behaviour, Failure, ReceivedRequest};
pub use server::ModelServer;
