//! Messages with this proxy's own changes.

use core::time::Duration;

use endpoint_picker::period::Period;
use endpoint_picker::pool::load::Load;
use endpoint_picker_wire::CHANGES_FORMAT;
use endpoint_picker_wire::changes::{BoundSession, Changes, EndpointLoad, Failure, SentCold, SentPrompt};
use hashbrown::HashMap;

use super::identity::Identity;
use super::importer::MAX_FAILURE_AGE;
use crate::ledger::{Change, ChangeKind};

/// Time between two messages while nothing changes.
const HEARTBEAT: Duration = Duration::from_millis(250);

/// Time between two messages that have all loads, for proxies that have missed some.
const ALL_LOADS: Duration = Duration::from_secs(1);

/// Makes messages with this proxy's own changes.
#[derive(Debug)]
pub(super) struct Exporter {
    identity: Identity,
    sequence: u64,
    /// The loads of the other proxies, by endpoint.
    loads: HashMap<u64, Load>,
    /// Until the next message, if nothing changes before.
    heartbeat: Period,
    /// Until the next message with all loads.
    all_loads: Period,
    resyncs: u64,
    has_resync: bool,
}

impl Exporter {
    /// The first message requests a resync: a proxy that starts has missed everything.
    pub(super) fn new(identity: Identity) -> Self {
        Self {
            identity,
            sequence: 0,
            loads: HashMap::new(),
            heartbeat: Period::default(),
            all_loads: Period::default(),
            resyncs: 1,
            has_resync: true,
        }
    }

    /// Has the other proxies send in full what they would leave out because they sent it a moment ago.
    pub(super) fn request_resync(&mut self) {
        self.resyncs += 1;
        self.has_resync = true;
    }

    /// The next message; `None` while nothing has changed and no heartbeat is due. `own` has the loads of this proxy, not zero.
    pub(super) fn next(
        &mut self,
        changes: Vec<Change>,
        own: impl Iterator<Item = (u64, Load)>,
        now: Duration,
    ) -> Option<Changes> {
        let has_all_loads = !self.all_loads.contains(now);
        let loads = self.loads(own, has_all_loads);
        let is_due = has_all_loads || self.has_resync || !self.heartbeat.contains(now);
        if changes.is_empty() && loads.is_empty() && !is_due {
            return None;
        }
        if has_all_loads {
            self.all_loads = Period::new(now, ALL_LOADS);
        }
        self.heartbeat = Period::new(now, HEARTBEAT);
        self.has_resync = false;
        self.sequence += 1;
        let mut message = Changes {
            format: CHANGES_FORMAT,
            sender: self.identity.sender,
            epoch: self.identity.epoch,
            sequence: self.sequence,
            resyncs: self.resyncs,
            has_all_loads,
            loads,
            ..Changes::default()
        };
        for change in changes {
            add(&mut message, change, now);
        }
        Some(message)
    }

    /// The loads that have changed since the last message, or all.
    fn loads(&mut self, own: impl Iterator<Item = (u64, Load)>, all: bool) -> Vec<EndpointLoad> {
        let mut older = core::mem::take(&mut self.loads);
        let mut loads = Vec::new();
        for (endpoint, load) in own {
            if older.remove(&endpoint) != Some(load) || all {
                loads.push(wire_load(endpoint, load));
            }
            self.loads.insert(endpoint, load);
        }
        if !all {
            // In order, so that simulations with a seed repeat: how much of a change is deferred depends on those before it.
            let mut ended: Vec<_> = older.into_keys().collect();
            ended.sort_unstable();
            loads.extend(ended.into_iter().map(|endpoint| wire_load(endpoint, Load::default())));
        }
        loads
    }
}

fn wire_load(endpoint: u64, Load { requests, tokens }: Load) -> EndpointLoad {
    EndpointLoad { endpoint, requests, tokens }
}

/// Adds a change to a message. Loads are not added: the message has their sums.
fn add(message: &mut Changes, Change { endpoint, kind }: Change, now: Duration) {
    let age = |at: Duration| now.saturating_sub(at);
    let age_ms = |at| u64::try_from(age(at).as_millis()).unwrap_or(u64::MAX);
    match kind {
        ChangeKind::SentPrompt { plugin, capacity, hashes } => {
            message.prompts.push(SentPrompt { endpoint, plugin, capacity, hashes });
        }
        ChangeKind::SentCold { plugin, at } => {
            message.cold_requests.push(SentCold { endpoint, plugin, age_ms: age_ms(at) });
        }
        ChangeKind::BoundSession { plugin, session, at } => {
            message.sessions.push(BoundSession { endpoint, plugin, session, age_ms: age_ms(at) });
        }
        ChangeKind::Failed { at } => {
            if age(at) <= MAX_FAILURE_AGE {
                message.failures.push(Failure { endpoint, age_ms: age_ms(at) });
            }
        }
        ChangeKind::Started(_)
        | ChangeKind::Ended(_)
        | ChangeKind::Moved { .. }
        | ChangeKind::InFlight(_)
        | ChangeKind::Answered { .. }
        | ChangeKind::Served { .. }
        | ChangeKind::Restarted { .. } => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Duration = Duration::from_secs(1_000);
    const ONE: Load = Load { requests: 1, tokens: 100 };

    fn exporter() -> Exporter {
        Exporter::new(Identity { sender: 7, epoch: 3 })
    }

    fn at(ms: u64) -> Duration {
        START + Duration::from_millis(ms)
    }

    fn loads(message: &Changes) -> Vec<(u64, u64)> {
        let mut loads: Vec<_> = message.loads.iter().map(|load| (load.endpoint, load.requests)).collect();
        loads.sort_unstable();
        loads
    }

    #[test]
    fn loads_are_sent_when_they_change_and_all_once_a_second() {
        let mut exporter = exporter();
        let mut next = |own: &[(u64, Load)], ms| exporter.next(vec![], own.iter().copied(), at(ms));
        let first = next(&[(1, ONE), (2, ONE)], 0).unwrap();
        assert_eq!((first.sender, first.epoch, first.sequence), (7, 3, 1));
        assert_eq!((loads(&first), first.has_all_loads), (vec![(1, 1), (2, 1)], true));
        assert_eq!(next(&[(2, ONE), (1, ONE)], 20), None);
        let changed = next(&[(2, ONE), (3, ONE)], 40).unwrap();
        assert_eq!((loads(&changed), changed.has_all_loads), (vec![(1, 0), (3, 1)], false));
        let heartbeat = next(&[(2, ONE), (3, ONE)], 290).unwrap();
        assert_eq!((loads(&heartbeat), heartbeat.sequence), (vec![], 3));
        let all = next(&[(3, ONE)], 1000).unwrap();
        assert_eq!((loads(&all), all.has_all_loads), (vec![(3, 1)], true));
        assert_eq!(next(&[(3, ONE)], 1020), None);
    }

    #[test]
    fn a_resync_is_requested_at_the_start_and_then_at_once() {
        let mut exporter = exporter();
        let resyncs =
            |exporter: &mut Exporter, ms| exporter.next(vec![], [].into_iter(), at(ms)).map(|it| it.resyncs);
        assert_eq!(resyncs(&mut exporter, 0), Some(1));
        assert_eq!(resyncs(&mut exporter, 20), None);
        exporter.request_resync();
        assert_eq!(resyncs(&mut exporter, 40), Some(2));
        assert_eq!(resyncs(&mut exporter, 60), None);
    }

    #[test]
    fn changes_have_their_ages_and_old_failures_are_left_out() {
        let kinds = [
            ChangeKind::SentPrompt { plugin: 4, capacity: 9, hashes: vec![1, 2] },
            ChangeKind::SentCold { plugin: 5, at: at(7) },
            ChangeKind::BoundSession { plugin: 6, session: 8, at: at(0) },
            ChangeKind::Failed { at: at(9) },
            ChangeKind::Failed { at: at(0).saturating_sub(MAX_FAILURE_AGE) },
        ];
        let changes = kinds.map(|kind| Change { endpoint: 1, kind }).into();
        let message = exporter().next(changes, [].into_iter(), at(10)).unwrap();
        assert_eq!(message.prompts, [SentPrompt { endpoint: 1, plugin: 4, capacity: 9, hashes: vec![1, 2] }]);
        assert_eq!(message.cold_requests, [SentCold { endpoint: 1, plugin: 5, age_ms: 3 }]);
        assert_eq!(message.sessions, [BoundSession { endpoint: 1, plugin: 6, session: 8, age_ms: 10 }]);
        assert_eq!(message.failures, [Failure { endpoint: 1, age_ms: 1 }]);
    }
}
