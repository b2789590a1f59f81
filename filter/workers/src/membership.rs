//! The workers of a proxy: each sends heartbeats, and a worker whose heartbeats stop has departed.
//!
//! The value of `…/members` has three words for each worker: its number, its last heartbeat in nanoseconds
//! since the epoch, and how many times it has requested a resync.

use core::time::Duration;

use endpoint_picker::period::Period;

use crate::shared_data::{SharedData, Versioned, create, key};
use crate::words::{bytes, nanoseconds, words};

/// Time between two heartbeats of a worker.
const HEARTBEAT_PERIOD: Duration = Duration::from_millis(250);

/// A worker whose last heartbeat is older has departed.
const DEPARTED_AFTER: Duration = Duration::from_millis(1500);

/// How often a heartbeat is tried before it is left for the next time.
const TRIES: u32 = 4;

/// One worker's part in the membership.
#[derive(Debug)]
pub(crate) struct Membership {
    key: String,
    worker: u64,
    /// Pause before the next heartbeat.
    pause: Period,
    resync_requests: u64,
    /// The members after the last heartbeat of this worker, with their resync requests; empty before the
    /// first heartbeat.
    seen: Vec<(u64, u64)>,
}

/// The members after a heartbeat.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MembershipUpdate {
    /// The numbers of all workers.
    pub(crate) members: Vec<u64>,
    /// Whether this worker has to append everything that it has in flight, and to send prompts in full again:
    /// another worker has missed changes, or others have counted this worker as departed.
    pub(crate) must_resync: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ListedWorker {
    worker: u64,
    heartbeat_ns: u64,
    resync_requests: u64,
}

impl Membership {
    /// A new worker requests a resync, because it has missed all changes so far.
    pub(crate) fn new<S: SharedData>(data: &S, pool: &str, worker: u64) -> Result<Self, S::Error> {
        let key = key(pool, "members");
        create(data, &key, &[])?;
        Ok(Self { key, worker, pause: Period::default(), resync_requests: 1, seen: Vec::new() })
    }

    /// Requests, with the next heartbeat, the changes that this worker has missed.
    pub(crate) fn request_resync(&mut self) {
        self.resync_requests += 1;
        // Due at once: until the others append their state again, decisions are made without it.
        self.pause = Period::default();
    }

    /// Sends a heartbeat if it is due.
    pub(crate) fn heartbeat<S: SharedData>(
        &mut self,
        data: &S,
        now: Duration,
    ) -> Result<Option<MembershipUpdate>, S::Error> {
        if self.pause.contains(now) {
            return Ok(None);
        }
        // If all tries fail, the next heartbeat is one period later; a worker departs after six periods.
        self.pause = Period::new(now, HEARTBEAT_PERIOD);
        let Self { worker, resync_requests, .. } = *self;
        let own = ListedWorker { worker, heartbeat_ns: nanoseconds(now), resync_requests };
        for _ in 0..TRIES {
            let Versioned { bytes: value, version } = data.get(&self.key)?;
            let before = decode(&value);
            let after = after_heartbeat(&before, own);
            if data.compare_and_swap(&self.key, &encode(&after), version)? {
                return Ok(Some(self.update(&before, &after)));
            }
        }
        Ok(None)
    }

    fn update(&mut self, before: &[ListedWorker], after: &[ListedWorker]) -> MembershipUpdate {
        // Without an entry here, the others count this worker as departed and have dropped its loads.
        let was_dropped = before.iter().all(|member| member.worker != self.worker);
        let now_seen: Vec<_> = after.iter().map(|member| (member.worker, member.resync_requests)).collect();
        // Pairs are compared, not a sum of requests: a member that departs takes its requests with it.
        let is_requested = now_seen.iter().any(|member| !self.seen.contains(member));
        self.seen = now_seen;
        MembershipUpdate {
            members: after.iter().map(|member| member.worker).collect(),
            must_resync: is_requested || was_dropped,
        }
    }
}

/// The members after the heartbeat of `own`, whose time counts as now. Departed workers are removed.
///
/// A heartbeat that is later than now was sent before the wall clock was set back. It counts as sent now: a
/// worker that lives stays, and a worker that does not live departs in time. Without this, load of live
/// workers would be dropped.
fn after_heartbeat(members: &[ListedWorker], own: ListedWorker) -> Vec<ListedWorker> {
    let now = own.heartbeat_ns;
    let others = members.iter().filter(|member| member.worker != own.worker);
    let others = others.map(|member| ListedWorker { heartbeat_ns: member.heartbeat_ns.min(now), ..*member });
    let present = others.filter(|member| now - member.heartbeat_ns <= nanoseconds(DEPARTED_AFTER));
    present.chain([own]).collect()
}

fn decode(value: &[u8]) -> Vec<ListedWorker> {
    let words: Vec<u64> = words(value).collect();
    let member = |&[worker, heartbeat_ns, resync_requests]: &[u64; 3]| ListedWorker {
        worker,
        heartbeat_ns,
        resync_requests,
    };
    words.as_chunks().0.iter().map(member).collect()
}

fn encode(members: &[ListedWorker]) -> Vec<u8> {
    bytes(members.iter().flat_map(|member| [member.worker, member.heartbeat_ns, member.resync_requests]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;
    const NOW: u64 = 1_000_000 * SECOND;

    fn member(worker: u64, heartbeat_ns: u64) -> ListedWorker {
        ListedWorker { worker, heartbeat_ns, resync_requests: 0 }
    }

    fn heartbeat(members: &[ListedWorker], worker: u64, now: u64) -> Vec<ListedWorker> {
        after_heartbeat(members, member(worker, now))
    }

    fn workers(members: &[ListedWorker]) -> Vec<u64> {
        members.iter().map(|member| member.worker).collect()
    }

    #[test]
    fn a_worker_without_heartbeats_departs_after_its_time() {
        let members = heartbeat(&[member(1, NOW), member(2, NOW)], 1, NOW + SECOND);
        assert_eq!(workers(&members), [2, 1]);
        assert_eq!(workers(&heartbeat(&members, 1, NOW + 2 * SECOND)), [1]);
    }

    #[test]
    fn when_the_clock_is_set_back_the_living_stay_and_the_others_depart_in_time() {
        let back = NOW - 3600 * SECOND;
        let mut members = heartbeat(&[1, 2, 3].map(|worker| member(worker, NOW)), 1, back);
        assert_eq!(workers(&members), [2, 3, 1], "the others have not had their turn");
        for quarters in 1..=8 {
            for worker in [1, 2] {
                members = heartbeat(&members, worker, back + quarters * SECOND / 4);
            }
        }
        assert_eq!(workers(&members), [1, 2], "3 has stopped");
    }

    #[test]
    fn members_are_read_as_they_were_written() {
        let members =
            [member(1, NOW), ListedWorker { worker: u64::MAX, heartbeat_ns: 0, resync_requests: 7 }];
        assert_eq!(decode(&encode(&members)), members);
        assert_eq!(decode(&encode(&members)[..40]), members[..1], "cut off");
    }

    /// The update of worker 1, whose membership is `own`, after these others.
    fn update(own: &mut Membership, before: &[ListedWorker]) -> (Vec<u64>, bool) {
        let after =
            after_heartbeat(before, ListedWorker { resync_requests: own.resync_requests, ..member(1, NOW) });
        let MembershipUpdate { members, must_resync } = own.update(before, &after);
        (members, must_resync)
    }

    #[test]
    fn every_request_is_answered_once_and_a_departure_is_not_a_request() {
        let key = String::new();
        let mut own =
            Membership { key, worker: 1, pause: Period::default(), resync_requests: 1, seen: vec![] };
        let requests = |worker, resync_requests| ListedWorker { resync_requests, ..member(worker, NOW) };
        assert_eq!(update(&mut own, &[requests(2, 5)]), (vec![2, 1], true), "the first heartbeat");
        let own_again = requests(1, 1);
        assert_eq!(update(&mut own, &[requests(2, 5), own_again]), (vec![2, 1], false));
        assert_eq!(update(&mut own, &[requests(2, 6), own_again]), (vec![2, 1], true));
        assert_eq!(update(&mut own, &[own_again]), (vec![1], false), "2 has departed");
        assert_eq!(update(&mut own, &[requests(3, 6), own_again]), (vec![3, 1], true), "3 in its place");
        assert_eq!(update(&mut own, &[requests(3, 6)]), (vec![3, 1], true), "others counted 1 as departed");
        assert_eq!(update(&mut own, &[requests(3, 6), own_again]), (vec![3, 1], false));
    }
}
