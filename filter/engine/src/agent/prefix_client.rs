//! Polls the agent for the prefixes that the caches of a pool's servers have.

use core::fmt;
use core::time::Duration;

use endpoint_picker::period::Period;

use super::call::{AgentRequest, AgentResponse, CallError, path_of_pool};
use super::recent_errors::RecentErrors;
use super::snapshot_client::PollTimes;
use crate::prefix_caches::{CachesUpdate, UpdateError};

/// Minimum time from the start of one poll to the next, while the agent has no more.
const POLL_EVERY: Duration = Duration::from_millis(50);

/// Pause after a poll that failed. An agent that follows no events refuses every poll.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// Time between two checks whether the rules of a pool need prefixes, while they do not.
const IDLE: Duration = Duration::from_secs(1);

/// Polls the agent for the cached prefixes of one pool.
#[derive(Debug)]
pub struct PrefixClient {
    path: String,
    times: PollTimes,
    is_in_flight: bool,
    /// Minimum time since the start of the last poll.
    since_poll: Period,
    /// Pause before the next poll.
    pause: Period,
    /// The log and the version of the last update; `None`: everything is needed.
    position: Option<(u64, u64)>,
    errors: RecentErrors,
}

/// The outcome of a poll.
#[derive(Debug)]
pub enum PrefixOutcome {
    /// An update that is to be applied.
    Updated(Box<CachesUpdate>),
    /// The agent has nothing newer.
    Unchanged,
    /// The poll failed.
    Failed {
        /// The reason.
        error: PrefixError,
        /// Whether it did not occur lately.
        is_new: bool,
    },
}

/// Why a poll failed.
#[derive(Debug)]
pub enum PrefixError {
    /// The agent sent no response, or the proxy refused a call.
    Call(CallError),
    /// The agent responded with another status than 200 and 204.
    Status {
        /// The status.
        status: u16,
        /// The beginning of the body.
        body: String,
    },
    /// The response cannot be used.
    Update(UpdateError),
}

impl fmt::Display for PrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(error) => error.fmt(f),
            Self::Status { status, body } => write!(f, "the agent answered {status}: {body:?}"),
            Self::Update(error) => error.fmt(f),
        }
    }
}

impl core::error::Error for PrefixError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Call(error) => Some(error),
            Self::Update(error) => Some(error),
            Self::Status { .. } => None,
        }
    }
}

impl PrefixClient {
    /// The client of one pool, by its name at the agent.
    pub fn new(pool: &str, times: PollTimes) -> Self {
        Self {
            path: path_of_pool(pool, "cached-prefixes"),
            times,
            is_in_flight: false,
            since_poll: Period::default(),
            pause: Period::default(),
            position: None,
            errors: RecentErrors::default(),
        }
    }

    /// The poll to send now, if one is due. `is_needed`: the pool's rules read the caches.
    pub(crate) fn next_poll(&mut self, is_needed: bool, now: Duration) -> Option<AgentRequest> {
        if self.is_in_flight || self.pause.contains(now) {
            return None;
        }
        if !is_needed {
            self.pause = Period::new(now, IDLE);
            return None;
        }
        self.since_poll = Period::new(now, POLL_EVERY);
        self.is_in_flight = true;
        let position = self.position.map(|(log, version)| format!("&log={log}&version={version}"));
        let wait = self.times.wait.as_millis();
        let path = format!("{}?wait_ms={wait}{}", self.path, position.unwrap_or_default());
        Some(AgentRequest { path, body: None, timeout: self.times.timeout })
    }

    /// The time until the next poll may begin, if none is in flight.
    pub(crate) fn pause(&self, now: Duration) -> Duration {
        self.pause.left(now)
    }

    /// Takes the response to the poll in flight.
    pub(crate) fn finish(
        &mut self,
        response: Result<AgentResponse, CallError>,
        now: Duration,
    ) -> PrefixOutcome {
        self.is_in_flight = false;
        let update = response.map_err(PrefixError::Call).and_then(|response| match response.status {
            200 => CachesUpdate::read(&response.body).map(Some).map_err(PrefixError::Update),
            204 => Ok(None),
            status => Err(PrefixError::Status { status, body: response.reason() }),
        });
        match update {
            Ok(Some(update)) => {
                self.position = Some(update.position());
                self.pause = if update.has_more() { Period::default() } else { self.since_poll };
                PrefixOutcome::Updated(Box::new(update))
            }
            Ok(None) => {
                self.pause = self.since_poll;
                PrefixOutcome::Unchanged
            }
            Err(error) => {
                self.pause = Period::new(now, RETRY_AFTER);
                let is_new = self.errors.is_new(error.to_string(), now);
                PrefixOutcome::Failed { error, is_new }
            }
        }
    }

    /// Needs everything, because the work on an update was interrupted.
    pub(crate) fn reset(&mut self) {
        self.position = None;
    }
}
