//! The requests to the agent that carry entries of the record.

use core::time::Duration;

use endpoint_picker::period::Period;

use super::outbox::{EntryMessage, RecordOutbox};
use crate::agent::{AgentRequest, CallError, RecentErrors, ReportProblem, path_of_pool};

/// Maximum time for which entries wait, unless a message is in flight.
const SEND_EVERY: Duration = Duration::from_millis(500);

/// Bytes of entries that are sent at once.
const FULL_BYTES: usize = 256 << 10;

/// The time that a message may take.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Sends the entries of one pool's record to the agent. A message that fails is not repeated.
#[derive(Debug)]
pub struct RecordClient {
    path: String,
    /// The number of requests in the message in flight; `None`: none is.
    in_flight: Option<u64>,
    pause: Period,
    errors: RecentErrors,
}

impl RecordClient {
    /// The client of one pool, by its name at the agent.
    pub fn new(pool: &str) -> Self {
        Self {
            path: path_of_pool(pool, "records"),
            in_flight: None,
            pause: Period::default(),
            errors: RecentErrors::default(),
        }
    }

    /// The message to send now, if there is one. None is due until [`Self::finish`] is called, also with the
    /// error of a proxy that refuses to send it.
    pub fn next_message(&mut self, outbox: &RecordOutbox, now: Duration) -> Option<AgentRequest> {
        let bytes = outbox.bytes();
        let waits = bytes < FULL_BYTES && self.pause.contains(now);
        if bytes == 0 || waits || self.in_flight.is_some() {
            return None;
        }
        self.pause = Period::new(now, SEND_EVERY);
        let now_us = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
        let EntryMessage { body, requests } = outbox.take(now_us);
        self.in_flight = Some(requests);
        Some(AgentRequest { path: self.path.clone(), body: Some(body), timeout: TIMEOUT })
    }

    /// Takes the status of the response to the message in flight. Returns a problem to log: one that did not
    /// occur lately.
    pub fn finish(
        &mut self,
        status: Result<u16, CallError>,
        outbox: &RecordOutbox,
        now: Duration,
    ) -> Option<ReportProblem> {
        let requests = self.in_flight.take()?;
        let problem = match status {
            Ok(204) => return None,
            Ok(status) => ReportProblem::Status(status),
            Err(error) => ReportProblem::Call(error),
        };
        outbox.count_dropped(requests);
        self.errors.is_new(problem.to_string(), now).then_some(problem)
    }
}
