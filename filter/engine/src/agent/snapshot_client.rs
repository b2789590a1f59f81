//! Polls the agent for snapshots: one long poll after another.

use core::fmt;
use core::time::Duration;
use std::sync::Arc;

use endpoint_picker::period::Period;
use endpoint_picker_wire::{self as wire, Bytes, OTHER_FORMAT_STATUS, SnapshotError};

use super::call::{AgentRequest, AgentResponse, CallError, path_of_pool};
use super::recent_errors::RecentErrors;
use crate::pool_view::snapshot::{self, ReadError};
use crate::pool_view::{PoolView, Topology, TopologyRefusal, Versions};
use crate::proxy::Result;

/// The times of a poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollTimes {
    /// The time that the agent may hold a poll back while nothing changes.
    pub wait: Duration,
    /// The time that a poll may take, its wait included.
    pub timeout: Duration,
}

/// Minimum time from the start of one poll to the next. One agent publishes no more often; but each of two
/// agents has readings that the other lacks, so polls that alternate between them would find news without a
/// pause.
const POLL_EVERY: Duration = Duration::from_millis(20);

/// Pause after a poll that failed.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// Polls the agent for snapshots of one pool.
#[derive(Debug)]
pub struct SnapshotClient {
    path: String,
    times: PollTimes,
    /// Whether a poll is in flight.
    is_in_flight: bool,
    /// Minimum time since the start of the last poll.
    since_poll: Period,
    /// Pause before the next poll.
    pause: Period,
    errors: RecentErrors,
    refused: Option<RefusedTopology>,
}

/// A topology of the agent that this build cannot use.
#[derive(Debug)]
struct RefusedTopology {
    version: u64,
    reason: TopologyRefusal,
}

/// A snapshot that this build can use.
#[derive(Debug)]
pub struct NewSnapshot<'a> {
    /// The snapshot, encoded.
    pub bytes: &'a [u8],
    /// The view of it.
    pub view: PoolView,
    /// Whether it has endpoints and policy.
    pub has_topology: bool,
}

/// The outcome of a poll.
#[derive(Debug)]
pub enum PollOutcome {
    /// A snapshot was published.
    Published,
    /// The agent has nothing newer.
    Unchanged,
    /// The poll failed.
    Failed {
        /// The reason.
        error: PollError,
        /// Whether it did not occur lately.
        is_new: bool,
    },
}

/// Why a poll failed.
#[derive(Debug)]
pub enum PollError {
    /// The agent sent no response, or the proxy refused a call.
    Call(CallError),
    /// The agent responded with another status than 200 and 204.
    Status {
        /// The status.
        status: u16,
        /// The beginning of the body.
        body: String,
    },
    /// The response is not a snapshot.
    Malformed(SnapshotError),
    /// The agent's endpoints and policy cannot be used.
    Refused(TopologyRefusal),
    /// The response lacks endpoints and policy of a version that this worker does not have.
    NoTopology,
}

impl From<ReadError> for PollError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Proxy(error) => Self::Call(error.into()),
            ReadError::Malformed(error) => Self::Malformed(error),
            ReadError::Refused(reason) => Self::Refused(reason),
        }
    }
}

impl PollError {
    /// Whether the agent has responded in another format than this build's, or refused a request because of
    /// it: it is of another version.
    pub fn is_of_other_format(&self) -> bool {
        matches!(
            self,
            Self::Malformed(SnapshotError::UnknownFormat(_))
                | Self::Status { status: OTHER_FORMAT_STATUS, .. }
        )
    }
}

impl fmt::Display for PollError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Call(error) => error.fmt(f),
            Self::Status { status, body } => write!(f, "the agent answered {status}: {body:?}"),
            Self::Malformed(error) => error.fmt(f),
            Self::Refused(reason) => write!(f, "the agent's endpoints and policy cannot be used: {reason}"),
            Self::NoTopology => {
                f.write_str("the agent left out endpoints and policy that this filter does not have")
            }
        }
    }
}

impl core::error::Error for PollError {
    fn source(&self) -> Option<&(dyn core::error::Error + 'static)> {
        match self {
            Self::Call(error) => Some(error),
            Self::Malformed(error) => Some(error),
            Self::Refused(error) => Some(error),
            Self::Status { .. } | Self::NoTopology => None,
        }
    }
}

impl SnapshotClient {
    /// The client of one pool, by its name at the agent.
    pub fn new(pool: &str, times: PollTimes) -> Self {
        Self {
            path: path_of_pool(pool, "snapshot"),
            times,
            is_in_flight: false,
            since_poll: Period::default(),
            pause: Period::default(),
            errors: RecentErrors::default(),
            refused: None,
        }
    }

    /// The poll to send now, if there is one. `have` are the versions that this worker has.
    ///
    /// None is due until [`Self::finish`] is called, also with the error of a proxy that refuses to send it.
    pub fn next_poll(&mut self, have: Option<Versions>, now: Duration) -> Option<AgentRequest> {
        if self.is_in_flight || self.pause.contains(now) {
            return None;
        }
        self.since_poll = Period::new(now, POLL_EVERY);
        self.is_in_flight = true;
        let path = format!("{}?wait_ms={}{}", self.path, self.times.wait.as_millis(), self.query(have));
        Some(AgentRequest { path, body: None, timeout: self.times.timeout })
    }

    /// The time until the next poll may begin, if none is in flight.
    pub fn pause(&self, now: Duration) -> Duration {
        self.pause.left(now)
    }

    /// The versions that this worker has. A refused topology is among them, so that the agent sends another
    /// one or none.
    fn query(&self, have: Option<Versions>) -> String {
        let refused = self.refused.as_ref().map(|refused| refused.version);
        let topology = refused.or(have.map(|have| have.topology));
        let topology = topology.map(|version| format!("&topology={version}"));
        let readings = have.map(|have| format!("&readings={}", have.readings));
        [topology, readings].into_iter().flatten().collect()
    }

    /// Takes the response to the poll in flight, and publishes its snapshot for all workers if this build can
    /// use it. `have` is the view that this worker has.
    pub fn finish(
        &mut self,
        response: core::result::Result<AgentResponse, CallError>,
        have: &Arc<PoolView>,
        now: Duration,
        publish: impl FnOnce(NewSnapshot<'_>) -> Result<()>,
    ) -> PollOutcome {
        self.is_in_flight = false;
        let result =
            response.map_err(PollError::Call).and_then(|response| self.take(response, have, now, publish));
        match result {
            Ok(outcome) => {
                self.pause = self.since_poll;
                outcome
            }
            Err(error) => {
                self.pause = Period::new(now, RETRY_AFTER);
                let is_new = self.errors.is_new(error.to_string(), now);
                PollOutcome::Failed { error, is_new }
            }
        }
    }

    fn take(
        &mut self,
        response: AgentResponse,
        have: &Arc<PoolView>,
        now: Duration,
        publish: impl FnOnce(NewSnapshot<'_>) -> Result<()>,
    ) -> core::result::Result<PollOutcome, PollError> {
        match response.status {
            200 => {}
            204 => return Ok(PollOutcome::Unchanged),
            status => return Err(PollError::Status { status, body: response.reason() }),
        }
        let bytes = Bytes::from(response.body);
        let mut snapshot = wire::decode_partly(bytes.clone()).map_err(PollError::Malformed)?;
        let version = snapshot.topology_version;
        let topology = snapshot.topology.take();
        let has_topology = topology.is_some();
        if let Some(topology) = topology {
            // Every worker compiles a published topology, so it is compiled here once to see whether it can
            // be used.
            let refusal = Topology::check(topology).err();
            self.refused = refusal.map(|reason| RefusedTopology { version, reason });
        }
        // Readings without a topology are refused too while their topology is the refused one.
        if let Some(refused) = self.refused.as_ref().filter(|refused| refused.version == version) {
            return Err(PollError::Refused(refused.reason.clone()));
        }
        // Readings cannot be used without the topology whose endpoints they list.
        if !has_topology && have.versions().map(|have| have.topology) != Some(version) {
            return Err(PollError::NoTopology);
        }
        let view = snapshot::follow(have, snapshot, now, || Ok(bytes.to_vec()))?;
        let view = view.ok_or(PollError::NoTopology)?;
        publish(NewSnapshot { bytes: &bytes, view, has_topology })
            .map_err(|error| PollError::Call(error.into()))?;
        Ok(PollOutcome::Published)
    }
}
