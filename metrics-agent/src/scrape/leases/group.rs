//! The endpoints of a pool that agents scrape for one another.

use core::time::Duration;
use std::collections::HashMap;
use std::sync::Arc;

use endpoint_picker_wire::changes::{StoredReading, StoredReadings};
use endpoint_picker_wire::{CHANGES_FORMAT, Message, reading_from_core, reading_into_core, v1};
use metrics_agent_support::runtime::Clock;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::{Agents, ReadLease, SHOWN_EVERY, term};
use crate::scrape::slot::{ReadingOrigin, Slot};

/// Maximum number of leases, and of readings, in one round; the others follow in the next.
const MAX_AT_ONCE: usize = 1000;

/// The time for which an agent leaves an endpoint to others after a failed scrape.
const YIELD: Duration = Duration::from_secs(10);

/// Maximum length of the name of a metric or an engine from the store, in bytes.
const MAX_NAME_BYTES: usize = 256;

/// The endpoints of a pool, between their scrape tasks and the link to the store.
pub(super) struct LeaseGroup {
    clock: Clock,
    state: Mutex<LeasesState>,
    /// Notified when there is something to send.
    pub(super) changed: Notify,
    /// Notified when the store has responded to claims, and when its connection begins or ends.
    answered: Notify,
}

struct LeasesState {
    is_connected: bool,
    agents: Agents,
    /// Time from which it has read entries of all others since it connected.
    knows_from: Duration,
    /// Time until which it knows the entries of the others, because it has just read one.
    knows_until: Duration,
    /// Time until this agent has to show itself to the others again.
    shown_until: Duration,
    /// Leases by a hash of the endpoint and of how it is scraped.
    entries: HashMap<u64, LeaseEntry>,
}

struct LeaseEntry {
    slot: Arc<Slot>,
    interval: Duration,
    lease: ReadLease,
    /// The agent that should scrape it.
    preferred: u64,
    /// After a failure this agent does not take the lease from another agent until this time.
    yields_until: Duration,
    /// The task waits for the lease.
    is_wanted: bool,
    /// The lease is given up.
    is_released: bool,
    /// The slot has a newer state than the store.
    is_newer: bool,
}

impl LeaseGroup {
    /// The endpoints of this agent, by its number. There are none yet.
    pub(super) fn new(clock: Clock, agent: u64) -> Self {
        let state = LeasesState {
            is_connected: false,
            agents: Agents::new(agent),
            knows_from: Duration::ZERO,
            knows_until: Duration::ZERO,
            shown_until: Duration::ZERO,
            entries: HashMap::new(),
        };
        Self { clock, state: Mutex::new(state), changed: Notify::new(), answered: Notify::new() }
    }

    pub(super) fn set_connected(&self, is_connected: bool) {
        let mut state = self.state.lock();
        state.is_connected = is_connected;
        state.knows_from = self.clock.now() + SHOWN_EVERY;
        drop(state);
        self.answered.notify_waiters();
    }

    /// The time until leases have to be renewed next, at most.
    pub(super) fn renewal_pause(&self) -> Duration {
        let state = self.state.lock();
        let least = state.entries.values().map(|entry| entry.interval).min();
        (least.unwrap_or(SHOWN_EVERY) / 4).min(SHOWN_EVERY / 4)
    }

    /// Messages to send now.
    pub(super) fn next_round(&self) -> Round {
        let now = self.clock.now();
        let mut state = self.state.lock();
        if state.agents.drop_gone(now) {
            state.prefer();
        }
        // An agent that has not read the others' entries would seem preferred for every endpoint, and must
        // not take their leases.
        let knows_others = (state.knows_from..state.knows_until).contains(&now);
        let mut round = Round::default();
        let LeasesState { agents, entries, .. } = &mut *state;
        for (&scrape, entry) in entries {
            if core::mem::take(&mut entry.is_released) {
                round.released.push(scrape);
            }
            let is_forced = knows_others && agents.is_own(entry.preferred) && entry.can_be_taken(now);
            let is_claimed = is_forced || entry.is_wanted || entry.lease.is_due(now, entry.interval);
            if is_claimed && round.claims.len() < MAX_AT_ONCE {
                round.claims.push(Claim { scrape, term: term(entry.interval), is_forced });
            }
            if entry.is_newer && round.readings.len() < MAX_AT_ONCE {
                entry.is_newer = false;
                round.readings.push(stored(scrape, &entry.slot, now));
            }
        }
        round.is_shown = !round.readings.is_empty() || state.shown_until <= now;
        if round.is_shown {
            state.shown_until = now + SHOWN_EVERY;
        }
        round
    }

    /// Takes the store's response to claims that were sent at this time: for each the time for which another
    /// agent still holds the lease; zero: this agent holds it. Returns the number of leases that this agent
    /// holds.
    pub(super) fn answer(&self, claims: &[Claim], held: &[Duration], sent: Duration) -> usize {
        let now = self.clock.now();
        let mut state = self.state.lock();
        for (&Claim { scrape, term, .. }, &held) in claims.iter().zip(held) {
            let Some(entry) = state.entries.get_mut(&scrape) else { continue };
            entry.is_wanted = false;
            // An own lease counts from the sending of the claim, so it never ends here after it ends in the
            // store.
            entry.lease = if held.is_zero() {
                ReadLease::Own(sent + term)
            } else {
                ReadLease::Other(now + held.min(term))
            };
        }
        let own = state.entries.values().filter(|entry| entry.lease.is_own(now) == Some(true)).count();
        drop(state);
        self.answered.notify_waiters();
        own
    }

    /// Takes an entry of an agent, which was added this long ago. Returns the number of readings, without
    /// readings of endpoints that this agent scrapes. An own entry shows that this agent reads the entries of
    /// all.
    pub(super) fn take(&self, readings: StoredReadings, since_added: Duration) -> u64 {
        let now = self.clock.now();
        let added = now.saturating_sub(since_added);
        let mut taken = 0;
        let mut state = self.state.lock();
        state.knows_until = now + 2 * SHOWN_EVERY;
        if state.agents.is_own(readings.agent) {
            return 0;
        }
        if state.agents.note(readings.agent, now) {
            state.prefer();
        }
        for StoredReading { scrape, reading, failing, kv_usage_metric, engine } in readings.readings {
            let Some(entry) = state.entries.get_mut(&scrape) else { continue };
            let is_own = entry.lease.is_own(now) == Some(true);
            let Ok(reading) = v1::Reading::decode(reading) else { continue };
            if is_own || kv_usage_metric.len().max(engine.len()) > MAX_NAME_BYTES {
                continue;
            }
            // The holder of a lease publishes the readings, so a reading shows that the lease is held,
            // without a claim.
            entry.lease = ReadLease::Other(added + term(entry.interval));
            let reading = reading_into_core(reading, added);
            let slot = &entry.slot;
            slot.set_ready(reading.ready);
            slot.set_failing(failing);
            if let Some(updated) = reading.updated {
                slot.set_values(reading, updated);
                let name = |name: String| (!name.is_empty()).then(|| name.into());
                slot.set_origin(ReadingOrigin {
                    engine: name(engine),
                    kv_usage_metric: name(kv_usage_metric),
                });
            }
            slot.set_scrape_failure(None);
            slot.mark_tried(now);
            slot.notify_readers();
            taken += 1;
        }
        taken
    }
}

impl LeasesState {
    /// Computes for each endpoint which agent should scrape it.
    fn prefer(&mut self) {
        for (&scrape, entry) in &mut self.entries {
            entry.preferred = self.agents.preferred(scrape);
        }
    }
}

impl LeaseEntry {
    /// Whether another agent holds the lease, and this agent may take it.
    fn can_be_taken(&self, now: Duration) -> bool {
        self.yields_until <= now && self.lease.is_own(now) == Some(false)
    }
}

/// One endpoint that agents scrape for one another, for its scrape task.
pub(in crate::scrape) struct SharedScrape {
    group: Arc<LeaseGroup>,
    scrape: u64,
    interval: Duration,
}

impl SharedScrape {
    pub(super) fn new(group: &Arc<LeaseGroup>, scrape: u64, interval: Duration, slot: &Arc<Slot>) -> Self {
        let mut state = group.state.lock();
        let entry = LeaseEntry {
            slot: Arc::clone(slot),
            interval,
            lease: ReadLease::Free,
            preferred: state.agents.preferred(scrape),
            yields_until: Duration::ZERO,
            is_wanted: false,
            is_released: false,
            is_newer: false,
        };
        state.entries.insert(scrape, entry);
        drop(state);
        Self { group: Arc::clone(group), scrape, interval }
    }

    /// Whether this agent scrapes the endpoint now. While no lease of another agent is valid, it asks the
    /// store, and it scrapes if the store does not respond within an interval.
    pub(in crate::scrape) async fn is_own_turn(&self) -> bool {
        timeout(self.interval, self.lease()).await.unwrap_or(true)
    }

    async fn lease(&self) -> bool {
        loop {
            let answered = self.group.answered.notified();
            tokio::pin!(answered);
            // Registered before the claim, so that a response in between is not missed.
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

    /// Publishes the endpoint's state to the other agents, after a scrape.
    pub(in crate::scrape) fn publish(&self) {
        if let Some(entry) = self.group.state.lock().entries.get_mut(&self.scrape) {
            entry.is_newer = true;
        }
        self.group.changed.notify_one();
    }

    /// Lets another agent try after a failed scrape: it may reach a server that this agent does not reach.
    pub(in crate::scrape) fn release(&self) {
        if let Some(entry) = self.group.state.lock().entries.get_mut(&self.scrape) {
            entry.is_released = matches!(entry.lease, ReadLease::Own(_));
            entry.lease = ReadLease::Free;
            entry.yields_until = self.group.clock.now() + YIELD;
        }
        self.group.changed.notify_one();
    }
}

impl Drop for SharedScrape {
    fn drop(&mut self) {
        self.group.state.lock().entries.remove(&self.scrape);
    }
}

/// Messages to send to the store.
#[derive(Debug, Default)]
pub(super) struct Round {
    pub(super) claims: Vec<Claim>,
    pub(super) released: Vec<u64>,
    pub(super) readings: Vec<StoredReading>,
    /// Whether an entry is added, also without readings.
    pub(super) is_shown: bool,
}

/// A lease to take or to renew.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) scrape: u64,
    pub(super) term: Duration,
    /// Whether the lease is taken from another agent too.
    pub(super) is_forced: bool,
}

/// The state of an endpoint, as others take it.
pub(super) fn stored(scrape: u64, slot: &Slot, now: Duration) -> StoredReading {
    let ReadingOrigin { engine, kv_usage_metric } = slot.origin();
    let name = |name: Option<Arc<str>>| name.as_deref().unwrap_or_default().to_owned();
    StoredReading {
        scrape,
        reading: reading_from_core(&slot.reading(), now).encode_to_vec().into(),
        failing: slot.is_failing(),
        kv_usage_metric: name(kv_usage_metric),
        engine: name(engine),
    }
}

/// The entry of a stream with these readings.
pub(super) fn entry(agent: u64, readings: Vec<StoredReading>) -> Vec<u8> {
    StoredReadings { format: CHANGES_FORMAT, agent, readings }.encode_to_vec()
}
