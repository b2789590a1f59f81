//! Which VMs there are: each signs in again and again, and one that stops is gone.

use core::time::Duration;

use endpoint_picker::period::Period;
use endpoint_picker_wire::Message;
use endpoint_picker_wire::membership;
use endpoint_picker_wire::shared::{self, Member};

use crate::board;
use crate::host::{self, Result};

/// How often a VM signs in.
const EVERY: Duration = Duration::from_millis(250);

/// After this without signing in a VM counts as gone.
const GONE_AFTER: Duration = Duration::from_millis(1500);

/// How often signing in is tried before it is left for the next time.
const TRIES: u32 = 4;

/// One VM's view of the roster.
#[derive(Debug)]
pub(crate) struct Roster {
    key: String,
    vm: u64,
    /// Until the next heartbeat.
    pause: Period,
    asked: u64,
    /// How often all VMs together had asked when this one answered last.
    answered: u64,
}

/// What signing in told.
pub(crate) struct News {
    /// The VMs there are.
    pub(crate) members: Vec<u64>,
    /// One of them has missed something, and asks the others for all they have in flight and to tell prompts in full again.
    pub(crate) is_asked: bool,
}

impl Roster {
    pub(crate) fn new(pool: &str, vm: u64) -> Self {
        Self { key: board::key(pool, "roster"), vm, pause: Period::default(), asked: 1, answered: 0 }
    }

    /// Asks the other VMs for what this one may have missed, with the next signing in.
    pub(crate) fn ask(&mut self) {
        self.asked += 1;
        self.pause = Period::default();
    }

    /// Signs in, if it is time to.
    pub(crate) fn sign_in(&mut self, now: Duration) -> Result<Option<News>> {
        if self.pause.contains(now) {
            return Ok(None);
        }
        self.pause = Period::new(now, EVERY);
        for _ in 0..TRIES {
            let (bytes, version) = host::shared_get(&self.key)?;
            let roster = shared::Roster::decode(bytes.as_slice()).unwrap_or_default();
            let heartbeat_ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
            let own = Member { vm: self.vm, heartbeat_ns, asked: self.asked };
            let roster = membership::after_heartbeat(roster, own, GONE_AFTER);
            if host::shared_swap(&self.key, &roster.encode_to_vec(), version)? {
                return Ok(Some(self.news(&roster.members)));
            }
        }
        Ok(None)
    }

    fn news(&mut self, members: &[Member]) -> News {
        // Numbers are never used twice, so any change of the sum that is no loss of a member is a question; a loss may
        // look like one, and an answer too many does no harm.
        let asked: u64 = members.iter().map(|member| member.asked).sum();
        let is_asked = core::mem::replace(&mut self.answered, asked) != asked;
        News { members: members.iter().map(|member| member.vm).collect(), is_asked }
    }
}
