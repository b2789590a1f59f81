//! Sessions: requests of one client that follow each other, and when sessions begin.

use super::request::SimulatedRequest;
use std::sync::Arc;
use std::time::Duration;

/// Requests of one client, each sent some time after the end of the response before.
#[derive(Clone, Debug)]
pub struct Session {
    /// At least one.
    pub turns: Vec<Turn>,
}

/// One request of a session.
#[derive(Clone, Debug)]
pub struct Turn {
    /// The request.
    pub request: Arc<SimulatedRequest>,
    /// Time from the end of the response before, or from the beginning of the session.
    pub pause: Duration,
}

impl Session {
    /// A session of one request.
    pub fn single(request: SimulatedRequest) -> Self {
        Self { turns: vec![Turn { request: Arc::new(request), pause: Duration::ZERO }] }
    }
}

/// A session, and the time at which it begins.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Time from the start.
    pub at: Duration,
    /// The session; the first of its turns may have passed before the start.
    pub session: Session,
}
