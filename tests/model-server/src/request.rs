//! Requests as they arrived, and how a server treats them.

use super::protocol::BEHAVE;
use bytes::Bytes;
use hyper::{HeaderMap, Method, StatusCode, Uri, Version};
use std::time::Duration;

/// How a server treats a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Behaviour {
    /// Answers it.
    #[default]
    Answer,
    /// Answers it, with a completion where it posts to a path that is not known.
    Complete,
    /// Answers it, with this pause before every chunk of the body.
    SlowChunks(Duration),
    /// Responds to it, with the body in chunks of this many bytes and this pause before each.
    Pieces(usize, Duration),
    /// Answers this status and an OpenAI error object.
    Status(StatusCode),
    /// Answers requests without a body, and an error in a stream of events with status 200 to others.
    ErrorEvent,
    /// Sends the body back as it comes, and records the request without it. A tunnel is opened.
    Echo,
    /// Answers it as far as this byte of the body, and then fails like this.
    Fails(Failure, usize),
    /// Reads it and never responds.
    Hang,
    /// Reads it and resets the connection.
    Reset,
}

/// How a response fails in the middle of its body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The connection is closed.
    Close,
    /// The connection is reset.
    Reset,
    /// The body ends as if it were complete.
    End,
    /// Nothing more comes.
    Stall,
}

/// A request as it arrived, complete.
#[derive(Clone, Debug)]
pub struct ReceivedRequest {
    /// The method.
    pub method: Method,
    /// Path and query.
    pub uri: Uri,
    /// HTTP version.
    pub version: Version,
    /// All header fields.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

impl ReceivedRequest {
    /// The behaviour that this request's own header sets.
    pub(crate) fn behaviour(&self) -> Option<Behaviour> {
        Some(match self.header(BEHAVE)? {
            "hang" => Behaviour::Hang,
            "reset" => Behaviour::Reset,
            "slow" => Behaviour::SlowChunks(Duration::from_millis(10)),
            status => Behaviour::Status(status.parse().ok()?),
        })
    }

    /// A header field's value as text; `None` when it is absent or not text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}
