//! One VM fetches snapshots for all: election by lease, then one long poll after another.

use core::time::Duration;

use endpoint_picker::period::Period;
use endpoint_picker_wire as wire;

use crate::board::{Board, Lease};
use crate::compiled::Compiled;
use crate::host;

/// How long a lease lasts. A VM that vanishes is replaced after this and [`LOOK_EVERY`] at most.
const LEASE: Duration = Duration::from_secs(1);

/// How often a VM looks at the lease: the owner to renew it, the others to take it over.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// How long the agent may hold a poll back while nothing changes.
const WAIT: Duration = Duration::from_secs(5);

/// How long a poll may take at all.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Least time from one poll to the next, however soon an answer comes: an agent publishes no more often, but of two each has readings
/// that the other does not know.
const POLL_EVERY: Duration = Duration::from_millis(20);

/// Pause after a poll that failed.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// So many bytes of a refusal are told on.
const MAX_SAID: usize = 256;

/// A VM's part in the fetching.
#[derive(Debug)]
pub(crate) struct Fetcher {
    vm: u64,
    path: String,
    cluster: String,
    /// Until the next look at the lease.
    look_pause: Period,
    /// Held by this VM.
    lease: Period,
    poll: Option<u32>,
    /// Since the last poll began.
    since_poll: Period,
    /// Until the next poll.
    pause: Period,
    /// Why the last poll failed; `None` if it did not.
    trouble: Option<String>,
    /// The last topology, if this filter cannot use it.
    refused: Option<Refused>,
}

/// A topology that the agent has and this filter cannot use.
#[derive(Debug)]
struct Refused {
    version: u64,
    reason: String,
}

/// What a finished poll brought.
pub(crate) enum Poll {
    /// A snapshot hangs on the board.
    News,
    /// Nothing newer yet.
    Nothing,
    /// It failed, for this reason; `is_new` unless the one before failed for the same.
    Failed { reason: String, is_new: bool },
    /// It was not this fetcher's.
    Unknown,
}

impl Fetcher {
    pub(crate) fn new(vm: u64, pool: &str, cluster: &str) -> Self {
        Self {
            vm,
            path: format!("/v1/pools/{pool}/snapshot"),
            cluster: cluster.to_owned(),
            look_pause: Period::default(),
            lease: Period::default(),
            poll: None,
            since_poll: Period::default(),
            pause: Period::default(),
            trouble: None,
            refused: None,
        }
    }

    /// Looks after the lease, and starts a poll if this VM holds it and none is in flight. `have` are the versions of
    /// topology and readings this VM has.
    pub(crate) fn run(&mut self, board: &Board, have: Option<(u64, u64)>, now: Duration) -> host::Result<()> {
        if !self.look_pause.contains(now) {
            self.look_pause = Period::new(now, LOOK_EVERY);
            self.look_at_lease(board, now)?;
        }
        if self.holds_lease(now) && self.poll.is_none() && !self.pause.contains(now) {
            let versions = self.versions_to_name(have);
            let path = format!("{}?wait_ms={}{versions}", self.path, WAIT.as_millis());
            // Not again at once if Envoy refuses to send it, as it does while it knows no such cluster.
            self.pause = Period::new(now, RETRY_AFTER);
            self.since_poll = Period::new(now, POLL_EVERY);
            self.poll = Some(host::get(&self.cluster, &path, TIMEOUT)?);
        }
        Ok(())
    }

    /// The query that names the versions this VM has. A refused topology is named too, so that the agent sends another one or none.
    fn versions_to_name(&self, have: Option<(u64, u64)>) -> String {
        let topology =
            self.refused.as_ref().map(|refused| refused.version).or(have.map(|(topology, _)| topology));
        let topology = topology.map(|version| format!("&topology={version}"));
        let readings = have.map(|(_, version)| format!("&readings={version}"));
        [topology, readings].into_iter().flatten().collect()
    }

    /// Whether this VM speaks with the agent for all.
    pub(crate) fn holds_lease(&self, now: Duration) -> bool {
        self.lease.contains(now)
    }

    fn look_at_lease(&mut self, board: &Board, now: Duration) -> host::Result<()> {
        let (lease, cas) = board.lease()?;
        let is_others =
            |lease: Lease| lease.owner != self.vm && Period::new(lease.renewed, LEASE).contains(now);
        if lease.is_some_and(is_others) {
            self.lease = Period::default();
        } else if board.swap_lease(Lease { owner: self.vm, renewed: now }, cas)? {
            self.lease = Period::new(now, LEASE);
        }
        Ok(())
    }

    /// Takes the answer to a poll and publishes a snapshot for all VMs, if this filter can use it. `have` as for [`Self::run`].
    pub(crate) fn finish(
        &mut self,
        token: u32,
        board: &Board,
        have: Option<(u64, u64)>,
        now: Duration,
    ) -> Poll {
        if self.poll != Some(token) {
            return Poll::Unknown;
        }
        self.poll = None;
        match self.publish(board, have.map(|(topology, _)| topology), now) {
            Ok(fresh) => {
                self.trouble = None;
                self.pause = self.since_poll;
                if fresh { Poll::News } else { Poll::Nothing }
            }
            Err(reason) => {
                self.pause = Period::new(now, RETRY_AFTER);
                let is_new = self.trouble.replace(reason.clone()).as_ref() != Some(&reason);
                Poll::Failed { reason, is_new }
            }
        }
    }

    /// Publishes the snapshot in the answer being delivered; false if there was none.
    fn publish(&mut self, board: &Board, topology: Option<u64>, now: Duration) -> Result<bool, String> {
        let failed = |error: host::HostError| error.to_string();
        match host::call_status().map_err(failed)? {
            Some(200) => {}
            Some(204) => return Ok(false),
            Some(status) => {
                let mut said = host::call_body().map_err(failed)?;
                said.truncate(MAX_SAID);
                return Err(format!("the agent answered {status}: {:?}", String::from_utf8_lossy(&said)));
            }
            None => return Err("the agent did not answer".to_owned()),
        }
        let bytes = host::call_body().map_err(failed)?;
        let snapshot = wire::decode(&bytes).map_err(|error| error.to_string())?;
        let version = snapshot.topology_version;
        let has_topology = snapshot.topology.is_some();
        if let Some(topology) = snapshot.topology {
            // Every VM is going to compile it: what one refuses must not reach them.
            self.refused = Compiled::new(topology).err().map(|reason| Refused { version, reason });
        }
        if let Some(Refused { reason, .. }) =
            self.refused.as_ref().filter(|refused| refused.version == version)
        {
            return Err(format!("the agent's endpoints and policy cannot be used: {reason}"));
        }
        if !has_topology && topology != Some(version) {
            return Err("the agent left out endpoints and policy that this filter does not have".to_owned());
        }
        board.publish(&bytes, snapshot.readings_version, has_topology, now).map_err(failed)?;
        Ok(true)
    }
}
