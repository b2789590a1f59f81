//! Imports the changes of other proxies into this proxy's ledger.

use core::fmt;
use core::time::Duration;

use endpoint_picker::period::Period;
use endpoint_picker::pool::load::Load;
use endpoint_picker::state::StateChange;
use endpoint_picker::state::in_flight::{is_other_proxy, sender_of_proxy};
use endpoint_picker_wire::changes::{self, Changes, Delivery, EndpointLoad, Failure, Recovery};
use endpoint_picker_wire::{CHANGES_FORMAT, DecodeError, Message};
use hashbrown::HashMap;

use super::seen::Seen;
use crate::ledger::{Change, ChangeKind, Ledger};

/// The loads of a proxy that was not read from for this long are dropped. Proxies send every 250 ms at least.
const EXPIRY: Duration = Duration::from_millis(1500);

/// Failures and recoveries that are older do not count: an endpoint is avoided for no longer than about that.
pub(super) const MAX_FAILURE_AGE: Duration = Duration::from_millis(500);

/// Maximum number of other proxies.
const MAX_SENDERS: usize = 256;

/// Maximum number of requests, or tokens, in flight from one sender at an endpoint; a larger number is
/// clamped. The sum over [`MAX_SENDERS`] fits in 64 bits.
const MAX_LOAD: u64 = 1 << 48;

/// Changes of one sender, for the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Imported {
    /// Changes to apply.
    Changes {
        /// The sender's number in the ledger.
        sender: u64,
        /// The changes.
        changes: Vec<Change>,
    },
    /// All loads of the sender, which replace its former loads.
    Loads {
        /// The sender's number in the ledger.
        sender: u64,
        /// Keys of endpoints with the load there, each once and not zero.
        loads: Vec<(u64, Load)>,
    },
    /// This time has passed, for the [deferred](endpoint_picker::state::deferred_load) part of other proxies'
    /// loads.
    Passed(Duration),
}

impl Imported {
    /// Applies the changes to a ledger.
    pub fn apply_to(&self, ledger: &mut Ledger) {
        match self {
            Self::Changes { sender, changes } => {
                for change in changes {
                    ledger.apply(*sender, change);
                }
            }
            Self::Loads { sender, loads } => ledger.set_loads(*sender, loads.iter().copied()),
            Self::Passed(time) => ledger.pass(*time),
        }
    }
}

/// Why a message is passed over.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Unreadable {
    Malformed(DecodeError),
    Format(u32),
    TooManySenders,
    /// A change names a plugin by a place at which the message lists none.
    NoPlugin(u32),
    /// A plugin's state cannot read the words of a change.
    Words {
        plugin: u64,
        words: usize,
    },
}

impl fmt::Display for Unreadable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(error) => write!(f, "changes of another proxy are malformed: {error}"),
            Self::Format(found) => write!(
                f,
                "changes of another proxy have format {found}, this one reads format {CHANGES_FORMAT}: update the older side"
            ),
            Self::NoPlugin(place) => {
                write!(f, "changes of another proxy are of a plugin at place {place}, which they do not list")
            }
            Self::Words { plugin, words } => write!(
                f,
                "another proxy has changed the state of plugin {plugin:016x} by {words} words that this one cannot read: update the older side"
            ),
            Self::TooManySenders => write!(f, "more than {MAX_SENDERS} proxies share changes"),
        }
    }
}

/// Importer of messages of other proxies, in any order and more than once.
#[derive(Debug)]
pub(super) struct Importer {
    /// This proxy's number in the ledgers of others.
    own: u64,
    /// The other proxies, by their numbers in the ledger.
    senders: HashMap<u64, Sender>,
    must_resend: bool,
    /// The time that deferred loads have reached.
    passed: Option<Duration>,
}

/// Another proxy.
#[derive(Debug, Default)]
struct Sender {
    epoch: u64,
    seen: Seen,
    resyncs: u64,
    /// When it made the newest message that was read, on this proxy's clock.
    heartbeat: Duration,
    /// The sequence number of the last message with all loads.
    all_loads: u64,
    /// Loads of later messages, each with its sequence number; zero among them.
    loads: HashMap<u64, (u64, Load)>,
}

/// When a message was made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    /// Its age.
    pub(super) age: Duration,
    /// Its time on the agent's clock, on which the marks of restarts are too. This proxy's clock may differ:
    /// the native module reads the wall clock only when it starts.
    pub(super) at: Duration,
}

impl Importer {
    /// `own` is this proxy's number as a sender.
    pub(super) fn new(own: u64) -> Self {
        Self { own: sender_of_proxy(own), senders: HashMap::new(), must_resend: false, passed: None }
    }

    /// Decodes a message and checks its format.
    pub(super) fn read(delivery: &Delivery) -> Result<Changes, Unreadable> {
        let changes = Changes::decode(delivery.changes.clone()).map_err(Unreadable::Malformed)?;
        match changes.format {
            CHANGES_FORMAT => Ok(changes),
            format => Err(Unreadable::Format(format)),
        }
    }

    /// Takes a message in. Returns its changes for the ledger.
    pub(super) fn take(
        &mut self,
        mut message: Changes,
        made: Made,
        ledger: &Ledger,
        now: Duration,
    ) -> Result<Vec<Imported>, Unreadable> {
        let age = made.age;
        let number = sender_of_proxy(message.sender);
        // The agent leaves out this proxy's own messages; one that came would count its loads twice.
        if number == self.own {
            return Ok(Vec::new());
        }
        self.make_room(number, now)?;
        // Read before any state changes: a refused message must have no effect.
        let changes = events(&mut message, made, ledger, now)?;
        let mut imported = Vec::new();
        let sender = self.senders.entry(number).or_default();
        // The loads of an old message have changed since; its prompts, sessions and cold requests still hold.
        let is_live = age < EXPIRY;
        // Another worker of that proxy sends now. It numbers its messages from 1 again, and nothing that it
        // sends ends loads that only the worker before has sent.
        if message.epoch > sender.epoch || is_live && sender.has_begun_again(&message, now) {
            *sender = Sender { epoch: message.epoch, ..Sender::default() };
            imported.push(Imported::Loads { sender: number, loads: Vec::new() });
        }
        // Sequence numbers of an older epoch cannot show a repetition, so its changes may be applied twice,
        // which is harmless.
        let is_current = message.epoch == sender.epoch;
        if is_current && !sender.seen.insert(message.sequence) {
            return Ok(Vec::new());
        }
        if is_current && is_live {
            sender.keep_alive(now.saturating_sub(age), now);
            if message.resyncs > sender.resyncs {
                sender.resyncs = message.resyncs;
                self.must_resend = true;
            }
            imported.extend(sender.take_loads(number, &message, ledger));
        }
        if !changes.is_empty() {
            imported.push(Imported::Changes { sender: number, changes });
        }
        Ok(imported)
    }

    /// Makes room for a sender that is new: at the limit, senders that have vanished are removed.
    fn make_room(&mut self, number: u64, now: Duration) -> Result<(), Unreadable> {
        if self.senders.len() >= MAX_SENDERS && !self.senders.contains_key(&number) {
            self.senders.retain(|_, sender| sender.lives(now));
            if self.senders.len() >= MAX_SENDERS {
                return Err(Unreadable::TooManySenders);
            }
        }
        Ok(())
    }

    /// Drops the loads of senders that have vanished, and lets time pass for deferred loads.
    pub(super) fn pass(&mut self, ledger: &Ledger, now: Duration) -> Vec<Imported> {
        let mut imported = Vec::new();
        let passed = self.passed.replace(now).map_or(Duration::ZERO, |since| now.saturating_sub(since));
        if ledger.has_deferred() && !passed.is_zero() {
            imported.push(Imported::Passed(passed));
        }
        for number in ledger.senders().filter(|sender| is_other_proxy(*sender)) {
            let unknown = || Sender { heartbeat: now, ..Sender::default() };
            // Another worker of this proxy may have taken it in: from now on it has the full time to send.
            let sender = self.senders.entry(number).or_insert_with(unknown);
            if !sender.lives(now) {
                // Dropped loads must not come back with a late message that has all loads.
                sender.loads.clear();
                imported.push(Imported::Loads { sender: number, loads: Vec::new() });
            }
        }
        imported
    }

    /// The number of other proxies that send.
    pub(super) fn peers(&self, now: Duration) -> usize {
        self.senders.values().filter(|sender| sender.lives(now)).count()
    }

    /// Whether another proxy has missed changes since the last call.
    pub(super) fn take_must_resend(&mut self) -> bool {
        core::mem::take(&mut self.must_resend)
    }

    /// Whether this proxy has missed changes since the last call.
    pub(super) fn take_missed(&mut self) -> bool {
        let mut has_missed = false;
        for sender in self.senders.values_mut() {
            has_missed |= sender.seen.take_missed();
        }
        has_missed
    }
}

impl Sender {
    /// Whether its loads count.
    fn lives(&self, now: Duration) -> bool {
        Period::new(self.heartbeat, EXPIRY).contains(now)
    }

    /// Whether a live message of a sender whose heartbeat is over has a number that it has sent before. Then
    /// the sender counts from 1 again. Or another client has sent high numbers under its name, which must not
    /// silence the sender for good.
    fn has_begun_again(&self, message: &Changes, now: Duration) -> bool {
        !self.lives(now) && (message.epoch, message.sequence) <= (self.epoch, self.seen.newest())
    }

    fn keep_alive(&mut self, heartbeat: Duration, now: Duration) {
        // A later heartbeat that still counts is of a message that overtook this message; a later heartbeat
        // that does not count is from before the clock was set back.
        if heartbeat > self.heartbeat || !self.lives(now) {
            self.heartbeat = heartbeat;
        }
    }

    /// Takes the loads of a message in. A load stays in force until one of a later message replaces it.
    fn take_loads(&mut self, number: u64, message: &Changes, ledger: &Ledger) -> Option<Imported> {
        let sequence = message.sequence;
        let in_pool = |load: &&EndpointLoad| ledger.pool().index_of(load.endpoint).is_some();
        let loads = message.loads.iter().filter(in_pool).map(|load| (load.endpoint, bounded(load)));
        if message.has_all_loads {
            if sequence <= self.all_loads {
                return None;
            }
            self.all_loads = sequence;
            // Messages with higher numbers have overtaken this message, so their loads stay.
            self.loads.retain(|_, (later, _)| *later > sequence);
            let mut all: HashMap<u64, Load> = loads.collect();
            // Newer loads replace those of this message.
            all.extend(self.loads.iter().map(|(&endpoint, &(_, load))| (endpoint, load)));
            all.retain(|_, load| *load != Load::default());
            return Some(Imported::Loads { sender: number, loads: all.into_iter().collect() });
        }
        let mut changes = Vec::new();
        // A load of zero is kept with its sequence number too: an older message must not bring back an ended
        // load.
        for (endpoint, load) in loads {
            let known = self.loads.get(&endpoint).map_or(self.all_loads, |(later, _)| *later);
            if sequence > known.max(self.all_loads) {
                self.loads.insert(endpoint, (sequence, load));
                changes.push(Change::Endpoint { endpoint, kind: ChangeKind::InFlight(load) });
            }
        }
        (!changes.is_empty()).then_some(Imported::Changes { sender: number, changes })
    }
}

fn bounded(load: &EndpointLoad) -> Load {
    Load { requests: load.requests.min(MAX_LOAD), tokens: load.tokens.min(MAX_LOAD) }
}

/// Takes the changes of states, the failures and the recoveries out of a message. Changes of an endpoint's
/// state before its caches were empty do not count.
fn events(
    message: &mut Changes,
    made: Made,
    ledger: &Ledger,
    now: Duration,
) -> Result<Vec<Change>, Unreadable> {
    // Two clocks: `at` is on this proxy's clock, for the ledger; `sent` is on the agent's clock, as restarts
    // are.
    let at = |age: Duration| now.saturating_sub(made.age).saturating_sub(age);
    let mut changes = Vec::new();
    let mut add = |age: Duration, change: Change| {
        let (endpoint, sent) = (change.endpoint(), made.at.saturating_sub(age));
        let is_cached = ledger.cached_since(endpoint).is_none_or(|since| sent >= since);
        // The ledger has no place for endpoints that only the other proxy knows.
        if is_cached && ledger.pool().index_of(endpoint).is_some() {
            changes.push(change);
        }
    };
    for changes::StateChange { endpoint, plugin: place, age_ms, words } in message.states.drain(..) {
        let plugin = usize::try_from(place).ok().and_then(|place| message.plugins.get(place));
        let &plugin = plugin.ok_or(Unreadable::NoPlugin(place))?;
        let age = Duration::from_millis(age_ms);
        let change: StateChange = StateChange { plugin, endpoint, at: at(age), words: words.into() };
        if !ledger.states().can_read(&change) {
            return Err(Unreadable::Words { plugin, words: change.words.len() });
        }
        add(age, Change::State(change));
    }
    let mut add_event = |endpoint, age_ms, kind: fn(Duration) -> ChangeKind| {
        let age = Duration::from_millis(age_ms);
        let at = at(age);
        if now.saturating_sub(at) <= MAX_FAILURE_AGE {
            add(age, Change::Endpoint { endpoint, kind: kind(at) });
        }
    };
    let mut recoveries = message.recoveries.iter().peekable();
    for (place, &Failure { endpoint, age_ms }) in message.failures.iter().enumerate() {
        let is_before =
            |it: &&Recovery| usize::try_from(it.failures_before).is_ok_and(|count| count <= place);
        while let Some(&Recovery { endpoint, age_ms, .. }) = recoveries.next_if(is_before) {
            add_event(endpoint, age_ms, |at| ChangeKind::Recovered { at });
        }
        add_event(endpoint, age_ms, |at| ChangeKind::Failed { at });
    }
    for &Recovery { endpoint, age_ms, .. } in recoveries {
        add_event(endpoint, age_ms, |at| ChangeKind::Recovered { at });
    }
    Ok(changes)
}
