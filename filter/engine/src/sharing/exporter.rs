//! Messages with this proxy's own changes.

use core::time::Duration;

use endpoint_picker::period::Period;
use endpoint_picker::pool::load::Load;
use endpoint_picker::state::StateChange;
use endpoint_picker_wire::CHANGES_FORMAT;
use endpoint_picker_wire::changes::{self, Changes, EndpointLoad, Failure, Recovery};
use hashbrown::HashMap;

use super::importer::MAX_FAILURE_AGE;
use super::sender::Identity;
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
    /// Pause before the next message, if nothing changes.
    heartbeat: Period,
    /// Pause before the next message with all loads.
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

    /// Requests a resync: the other proxies send prompts in full again, also blocks that they have sent
    /// lately.
    pub(super) fn request_resync(&mut self) {
        self.resyncs += 1;
        self.has_resync = true;
    }

    /// The next message; `None` while nothing has changed and no heartbeat is due. `own` has the loads of
    /// this proxy, not zero.
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
        // In a message with all loads, an endpoint that is absent has none.
        if !all {
            // Sorted, so that simulations with a seed repeat: the deferred part of a change depends on
            // earlier changes.
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
fn add(message: &mut Changes, change: Change, now: Duration) {
    let age = |at: Duration| now.saturating_sub(at);
    let age_ms = |at| u64::try_from(age(at).as_millis()).unwrap_or(u64::MAX);
    match change {
        Change::State(StateChange { plugin, endpoint, at, words }) => {
            // Keys of plugins have 64 bits, so a message lists each once and changes name its place.
            let plugin = place(&mut message.plugins, plugin);
            let words = words.into_vec();
            message.states.push(changes::StateChange { endpoint, plugin, age_ms: age_ms(at), words });
        }
        Change::Endpoint { endpoint, kind: ChangeKind::Failed { at } } if age(at) <= MAX_FAILURE_AGE => {
            message.failures.push(Failure { endpoint, age_ms: age_ms(at) });
        }
        Change::Endpoint { endpoint, kind: ChangeKind::Recovered { at } } if age(at) <= MAX_FAILURE_AGE => {
            let failures_before = u32::try_from(message.failures.len()).unwrap_or(u32::MAX);
            message.recoveries.push(Recovery { endpoint, age_ms: age_ms(at), failures_before });
        }
        // Failures and recoveries that are too old. The outbox collects no other kind.
        Change::Endpoint { .. } => {}
    }
}

/// The place of a plugin in a message's list, which it is added to.
fn place(plugins: &mut Vec<u64>, plugin: u64) -> u32 {
    let known = plugins.iter().position(|&known| known == plugin);
    let place = known.unwrap_or_else(|| {
        plugins.push(plugin);
        plugins.len() - 1
    });
    u32::try_from(place).unwrap_or(u32::MAX)
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
        let state = |plugin, at, words: Vec<u64>| {
            Change::State(StateChange { plugin, endpoint: 1, at, words: words.into() })
        };
        let failed = |at| Change::Endpoint { endpoint: 1, kind: ChangeKind::Failed { at } };
        let recovered = |at| Change::Endpoint { endpoint: 1, kind: ChangeKind::Recovered { at } };
        let changes = vec![
            state(4, at(7), vec![1, 2]),
            state(5, at(0), vec![]),
            state(4, at(10), vec![3]),
            failed(at(9)),
            failed(at(0).saturating_sub(MAX_FAILURE_AGE)),
            recovered(at(10)),
            recovered(at(0).saturating_sub(MAX_FAILURE_AGE)),
        ];
        let message = exporter().next(changes, [].into_iter(), at(10)).unwrap();
        let state = |plugin, age_ms, words| changes::StateChange { endpoint: 1, plugin, age_ms, words };
        assert_eq!(message.plugins, [4, 5]);
        assert_eq!(message.states, [state(0, 3, vec![1, 2]), state(1, 10, vec![]), state(0, 0, vec![3])]);
        assert_eq!(message.failures, [Failure { endpoint: 1, age_ms: 1 }]);
        assert_eq!(message.recoveries, [Recovery { endpoint: 1, age_ms: 0, failures_before: 1 }]);
    }
}
