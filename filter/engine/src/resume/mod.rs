//! Streams that survive the death of their server.
//!
//! The proxy has the request and has seen every chunk of the response. When a streamed response of chat
//! completions or completions ends before `[DONE]`, the same request is sent again with the text so far: as
//! the last message, which the server [continues](request::ResumableRequest::continuation), or behind the
//! prompt. The client sees one response: the events of the new one get the identity of the first, and their
//! usage is summed.
//!
//! A server that does not respond, or refuses before it works, is followed by another one, as by the retries
//! of the shipped routes.
//!
//! [`Resumption`] is the course of one such request. It gets the chunks of each response in turn, and returns
//! the chunks for the client and the next request. A chunk of the first response costs two comparisons of
//! bytes while its events differ in [their texts only](plain_event).

mod client_response;
mod config;
mod event;
mod lines;
mod plain_event;
mod request;
mod resumption;
mod statistics;

pub use config::{ResumeConfig, ResumeConfigError};
pub use request::{ResumableRequest, StreamApi, Unresumable};
pub use resumption::{Cut, End, REFUSALS, Resumption};
pub use statistics::ResumeMetrics;
