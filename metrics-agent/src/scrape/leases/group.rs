//! The endpoints of a pool that agents scrape for one another.

use core::time::Duration;
use std::collections::HashMap;
use std::sync::Arc;

use endpoint_picker_wire::changes::{StoredReading, StoredReadings};
use endpoint_picker_wire::{CHANGES_FORMAT, Message, reading_from_core, reading_into_core, v1};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::lease::{Lease, term};
use crate::runtime::clock::Clock;
use crate::scrape::slot::{Health, Slot};

/// Most leases, and most readings, in one round: the others follow in the next.
const MAX_AT_ONCE: usize = 1000;

/// Longest name of a metric from the store, in bytes.
const MAX_NAME_BYTES: usize = 256;

/// The endpoints of a pool, between their scrape tasks and the link to the store.
pub(super) struct Group {
    clock: Clock,
    state: Mutex<State>,
    /// Notified when there is something to send.
    pub(super) changed: Notify,
    /// Notified when the store has answered, or does not any more.
    answered: Notify,
}

#[derive(Default)]
struct State {
    is_connected: bool,
    /// By a hash of the endpoint and of how it is scraped.
    entries: HashMap<u64, Entry>,
}

struct Entry {
    slot: Arc<Slot>,
    interval: Duration,
    lease: Lease,
    /// The task waits for the lease.
    is_wanted: bool,
    /// The lease is given up.
    is_released: bool,
    /// The slot has a newer state than the store.
    is_newer: bool,
}

/// What is to be sent to the store.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// Leases to take or renew, with their terms.
    pub(super) claims: Vec<(u64, Duration)>,
    pub(super) released: Vec<u64>,
    pub(super) readings: Vec<StoredReading>,
}

impl Group {
    pub(super) fn new(clock: Clock) -> Self {
        Self { clock, state: Mutex::default(), changed: Notify::new(), answered: Notify::new() }
    }

    pub(super) fn set_connected(&self, is_connected: bool) {
        self.state.lock().is_connected = is_connected;
        self.answered.notify_waiters();
    }

    /// The time until leases have to be renewed next, at most.
    pub(super) fn renewal_pause(&self) -> Duration {
        let state = self.state.lock();
        let least = state.entries.values().map(|entry| entry.interval).min();
        least.unwrap_or(Duration::from_secs(1)) / 4
    }

    /// What is to be sent now.
    pub(super) fn next_round(&self) -> Round {
        let now = self.clock.now();
        let mut round = Round::default();
        for (&scrape, entry) in &mut self.state.lock().entries {
            if core::mem::take(&mut entry.is_released) {
                round.released.push(scrape);
            }
            let is_claimed = entry.is_wanted || entry.lease.is_due(now, entry.interval);
            if is_claimed && round.claims.len() < MAX_AT_ONCE {
                round.claims.push((scrape, term(entry.interval)));
            }
            if entry.is_newer && round.readings.len() < MAX_AT_ONCE {
                entry.is_newer = false;
                round.readings.push(stored(scrape, &entry.slot, now));
            }
        }
        round
    }

    /// Takes the store's answers to claims that were sent at this time: for each the time that another agent still holds the lease;
    /// zero: this agent does. Returns the number of leases that this agent holds.
    pub(super) fn answer(&self, claims: &[(u64, Duration)], held: &[Duration], sent: Duration) -> usize {
        let now = self.clock.now();
        let mut state = self.state.lock();
        for (&(scrape, term), &held) in claims.iter().zip(held) {
            let Some(entry) = state.entries.get_mut(&scrape) else { continue };
            entry.is_wanted = false;
            entry.lease =
                if held.is_zero() { Lease::Own(sent + term) } else { Lease::Other(now + held.min(term)) };
        }
        let own = state.entries.values().filter(|entry| entry.lease.is_own(now) == Some(true)).count();
        drop(state);
        self.answered.notify_waiters();
        own
    }

    /// Takes readings of another agent, which were added this long ago. Returns their number. Those of endpoints that this agent scrapes
    /// are left out.
    pub(super) fn take(&self, readings: StoredReadings, since_added: Duration) -> u64 {
        let now = self.clock.now();
        let added = now.saturating_sub(since_added);
        let mut taken = 0;
        let mut state = self.state.lock();
        for StoredReading { scrape, reading, failing, kv_usage_metric } in readings.readings {
            let Some(entry) = state.entries.get_mut(&scrape) else { continue };
            let is_own = entry.lease.is_own(now) == Some(true);
            let Ok(reading) = v1::Reading::decode(reading) else { continue };
            if is_own || kv_usage_metric.len() > MAX_NAME_BYTES {
                continue;
            }
            entry.lease = Lease::Other(added + term(entry.interval));
            let reading = reading_into_core(reading, added);
            let slot = &entry.slot;
            slot.set_ready(reading.ready);
            slot.set_failing(failing);
            if let Some(updated) = reading.updated {
                slot.set_values(reading, updated);
                let metric = (!kv_usage_metric.is_empty()).then(|| kv_usage_metric.into());
                slot.set_kv_usage_metric(metric);
            }
            slot.mark_scraped();
            slot.notify_readers();
            taken += 1;
        }
        taken
    }
}

fn stored(scrape: u64, slot: &Slot, now: Duration) -> StoredReading {
    StoredReading {
        scrape,
        reading: reading_from_core(&slot.reading(), now).encode_to_vec().into(),
        failing: slot.health() == Health::Failing,
        kv_usage_metric: slot.kv_usage_metric().map_or_else(String::new, |metric| metric.as_ref().to_owned()),
    }
}

/// The entry of a stream with these readings.
pub(super) fn entry(agent: u64, readings: Vec<StoredReading>) -> Vec<u8> {
    StoredReadings { format: CHANGES_FORMAT, agent, readings }.encode_to_vec()
}

/// One endpoint that agents scrape for one another, for its scrape task.
pub(in crate::scrape) struct SharedScrape {
    group: Arc<Group>,
    scrape: u64,
    interval: Duration,
}

impl SharedScrape {
    pub(super) fn new(group: &Arc<Group>, scrape: u64, interval: Duration, slot: &Arc<Slot>) -> Self {
        let entry = Entry {
            slot: Arc::clone(slot),
            interval,
            lease: Lease::Free,
            is_wanted: false,
            is_released: false,
            is_newer: false,
        };
        group.state.lock().entries.insert(scrape, entry);
        Self { group: Arc::clone(group), scrape, interval }
    }

    /// Whether this agent scrapes the endpoint now. While no lease of another agent is valid, it asks the store, and it scrapes if the store does
    /// not answer within an interval.
    pub(in crate::scrape) async fn is_own_turn(&self) -> bool {
        timeout(self.interval, self.lease()).await.unwrap_or(true)
    }

    async fn lease(&self) -> bool {
        loop {
            let answered = self.group.answered.notified();
            tokio::pin!(answered);
            answered.as_mut().enable();
            if let Some(is_own) = self.claim() {
                return is_own;
            }
            answered.await;
        }
    }

    /// Whether this agent scrapes the endpoint; `None`: the store is asked.
    fn claim(&self) -> Option<bool> {
        let mut state = self.group.state.lock();
        if !state.is_connected {
            return Some(true);
        }
        let Some(entry) = state.entries.get_mut(&self.scrape) else { return Some(true) };
        let is_own = entry.lease.is_own(self.group.clock.now());
        if is_own.is_none() && !entry.is_wanted {
            entry.is_wanted = true;
            self.group.changed.notify_one();
        }
        is_own
    }

    /// Has the other agents take the endpoint's state, after a scrape.
    pub(in crate::scrape) fn publish(&self) {
        if let Some(entry) = self.group.state.lock().entries.get_mut(&self.scrape) {
            entry.is_newer = true;
        }
        self.group.changed.notify_one();
    }

    /// Has another agent try, after a scrape that failed: it may reach a server that this one does not.
    pub(in crate::scrape) fn release(&self) {
        if let Some(entry) = self.group.state.lock().entries.get_mut(&self.scrape) {
            entry.is_released = matches!(entry.lease, Lease::Own(_));
            entry.lease = Lease::Free;
        }
        self.group.changed.notify_one();
    }
}

impl Drop for SharedScrape {
    fn drop(&mut self) {
        self.group.state.lock().entries.remove(&self.scrape);
    }
}
