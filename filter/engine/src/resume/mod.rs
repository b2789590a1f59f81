//! Streams that survive the death of their server.
//!
//! The proxy has the request and has seen every chunk of the response. When a streamed response ends before
//! its last event, the request is sent to another server. A text of chat completions or completions is
//! [continued](request::ResumableRequest::continuation): as the last message, or behind the prompt. Every
//! other response, with reasoning, tool calls, a grammar or typed events, is generated again, and the output
//! of the client is [compared and left out](transcript): a difference cuts the stream. The client sees one
//! response: the events of the new one get the identity of the first, and usage covers the whole.
//!
//! A server that does not respond, or refuses before it works, is followed by another one, as by the retries
//! of the shipped routes.
//!
//! [`Resumption`] is the course of one such request. It gets the chunks of each response in turn, and returns
//! the chunks for the client and the next request. A chunk of the first response costs two comparisons of
//! bytes while its events differ in [their texts only](plain_event).

mod api;
mod client_response;
mod config;
mod cut;
mod event;
mod identity;
mod lines;
mod plain_event;
mod request;
mod resumption;
mod statistics;
mod transcript;
mod typed_event;
mod unresumable;

pub use api::StreamApi;
pub use config::{ResumeConfig, ResumeConfigError};
pub use cut::Cut;
pub use request::{ResumableRequest, add_seed};
pub use resumption::{End, REFUSALS, Resumption};
pub use statistics::ResumeMetrics;
pub use unresumable::Unresumable;
