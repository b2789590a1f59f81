//! One worker's copy of the ledger, kept equal to those of all other workers.

use core::time::Duration;
use std::sync::Arc;

use endpoint_picker::pipeline::Pipeline;
use endpoint_picker::pool::Endpoints;
use endpoint_picker::pool::load::Load;
use endpoint_picker::pool::reading::Reading;
use endpoint_picker::state::ChangedReadings;
use endpoint_picker::state::in_flight::is_other_proxy;
use endpoint_picker_engine::ledger::{Change, ChangeList, Ledger, LedgerStore};
use endpoint_picker_engine::sharing::{Imported, Outbox, OwnChanges, PeerLedger};

use crate::entry::{Content, Entry, write_change, write_loads, write_passed};
use crate::membership::{Membership, MembershipUpdate};
use crate::shared_data::SharedData;
use crate::shared_log::SharedLog;

/// How often an append is tried before it is left for the next time.
const TRIES: u32 = 4;

/// Bytes of pending entries of other proxies that are appended at once, about those of a chunk.
const LARGE: usize = 4 * 1024;

/// One worker's copy of the ledger, kept equal to those of all other workers by their log in shared data.
///
/// Changes are applied when they are read from the log, own changes too. When shared data fails, own changes
/// stay pending and are appended with the next call.
#[derive(Debug)]
pub struct Replica<S> {
    data: S,
    worker: u64,
    ledger: Ledger,
    log: SharedLog,
    membership: Membership,
    /// Whether there is a pool. Before, no endpoint of an entry is known, so the log is not read.
    has_pool: bool,
    /// Whether this worker has to append everything that it has in flight.
    owes_loads: bool,
    /// Changes of all workers for other proxies; open in the worker that sends them.
    outbox: Outbox,
}

impl<S: SharedData> Replica<S> {
    /// The copy of a new worker, which has this [number](crate::next_worker_number).
    pub fn new(data: S, pool: &str, worker: u64) -> Result<Self, S::Error> {
        Ok(Self {
            log: SharedLog::new(&data, pool)?,
            membership: Membership::new(&data, pool, worker)?,
            data,
            worker,
            ledger: Ledger::default(),
            has_pool: false,
            owes_loads: false,
            outbox: Outbox::default(),
        })
    }

    /// The ledger as it was read last.
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    /// Shared data, for values other than the ledger.
    pub fn data(&self) -> &S {
        &self.data
    }

    /// Keeps up with the other workers, also while there are no requests: to be called at every tick.
    ///
    /// Returns an error when the heartbeat fails; all other steps are still taken.
    pub fn keep_up(&mut self, now: Duration) -> Result<(), S::Error> {
        if self.has_pool {
            self.sync();
            if self.log.take_missed() {
                self.membership.request_resync();
            }
        }
        // Without a pool too: a worker that sends no heartbeat would count as departed.
        let heartbeat = self.membership.heartbeat(&self.data, now);
        if self.has_pool {
            if let Ok(Some(update)) = &heartbeat {
                self.follow(update);
            }
            self.append_owed_loads();
        }
        heartbeat.map(drop)
    }

    fn follow(&mut self, update: &MembershipUpdate) {
        let workers = self.ledger.senders().filter(|sender| !is_other_proxy(*sender));
        let departed: Vec<u64> = workers.filter(|sender| !update.members.contains(sender)).collect();
        // Every worker finds departures in the membership, so no entry of the log is needed.
        for worker in departed {
            self.ledger.forget_sender(worker);
        }
        if update.must_resync {
            self.owes_loads = true;
            self.ledger.resend();
        }
    }

    fn append_owed_loads(&mut self) {
        // A pending change is not in the ledger yet: loads without it, appended behind it, would revert it.
        if self.owes_loads && self.log.is_settled() {
            self.owes_loads = false;
            let loads = self.ledger.loads_of(self.worker);
            let loads: Vec<_> =
                loads.map(|(endpoint, Load { requests, tokens })| [endpoint, requests, tokens]).collect();
            self.log.push(|log| write_loads(self.worker, &loads, log));
            self.flush();
        }
    }

    fn push(&mut self, changes: &[Change]) {
        let worker = self.worker;
        self.log.push(|log| changes.iter().for_each(|change| write_change(worker, change, log)));
    }

    /// Applies the entries of other workers, then appends the pending ones.
    fn sync(&mut self) {
        let Self { data, log, ledger, outbox, .. } = self;
        if let Err(error) = log.read(data, |entry| apply(ledger, outbox, entry)) {
            log::error!("{error}; changes of other workers are missing until the next read");
        }
        self.flush();
    }

    /// Appends the pending entries. When other workers are faster several times in a row, they stay pending.
    fn flush(&mut self) {
        self.append(|_, _| true);
    }

    /// Appends the pending entries if they are many: chunks of the log have a bounded size.
    fn flush_large(&mut self) {
        if self.log.mark() > LARGE {
            self.flush();
        }
    }

    /// Appends the pending entries, unless other workers have appended entries that make the pending decision
    /// worse; then it returns false. If the log was read right before the decision, only routed requests do
    /// so; otherwise all entries do.
    fn commit(&mut self, was_read_now: bool) -> bool {
        let (routed, place) = (self.ledger.routed(), self.log.place());
        if !was_read_now && self.log.is_flushed() {
            // A decision without changes appends nothing, so no swap shows whether the tail was the newest.
            self.sync();
            return self.log.place() == place;
        }
        self.append(|ledger, log| if was_read_now { ledger.routed() == routed } else { log.place() == place })
    }

    /// Appends the pending entries. When other workers append first, `allows` decides whether to try again.
    /// Returns false if it does not.
    fn append(&mut self, allows: impl Fn(&Ledger, &SharedLog) -> bool) -> bool {
        let Self { data, log, ledger, outbox, .. } = self;
        for _ in 0..TRIES {
            match log.try_append(data, |entry| apply(ledger, outbox, entry)) {
                Ok(true) => break,
                Ok(false) if allows(ledger, log) => {}
                Ok(false) => return false,
                Err(error) => {
                    log::error!("{error}; the changes of this worker stay pending");
                    break;
                }
            }
        }
        // When all tries fail, the entries stay pending and the decision stands.
        true
    }
}

impl<S: SharedData> LedgerStore for Replica<S> {
    fn read<T>(&self, read: impl FnOnce(&Ledger) -> T) -> T {
        read(&self.ledger)
    }

    fn transact<T>(&mut self, mut decide: impl FnMut(&Ledger) -> (T, ChangeList)) -> T {
        // While no other worker appends, reading the log first would find nothing.
        let reads_first = !(self.log.is_quiet() && self.log.is_flushed());
        if reads_first {
            self.sync();
        }
        let mark = self.log.mark();
        let (result, changes) = decide(&self.ledger);
        self.push(&changes);
        if self.commit(reads_first) {
            return result;
        }
        // Another worker has decided at the same time, maybe for the same endpoint. Deciding again once is
        // enough: where this happens all the time, one request more or less makes no difference.
        self.log.withdraw(mark);
        let (result, changes) = decide(&self.ledger);
        self.push(&changes);
        self.flush();
        result
    }

    fn apply(&mut self, changes: ChangeList) {
        self.push(&changes);
        if self.log.is_flushed() {
            return;
        }
        // A stale tail makes the swap fail, so the log is read first while other workers append.
        if self.log.is_quiet() {
            self.flush();
        } else {
            self.sync();
        }
    }

    fn observe(&mut self, readings: &[Reading], changed: ChangedReadings<'_>) {
        self.ledger.observe(readings, changed);
        let mut restarts = self.ledger.restarts_in(readings, changed);
        if restarts.is_empty() {
            return;
        }
        // Other workers have the same readings, and may have appended the same restarts.
        self.sync();
        self.ledger.keep_unapplied_restarts(&mut restarts);
        self.push(&restarts);
        self.flush();
    }

    fn adopt<'a>(
        &mut self,
        pool: Arc<Endpoints>,
        pipelines: impl IntoIterator<Item = &'a Pipeline>,
        avoid_failing: Duration,
    ) {
        self.ledger.adopt(pool, pipelines, avoid_failing);
        self.has_pool = true;
        // Other workers may have had the new endpoints for longer, and appended changes that meant nothing
        // here.
        self.membership.request_resync();
    }
}

impl<S: SharedData> PeerLedger for Replica<S> {
    fn read<T>(&self, read: impl FnOnce(&Ledger) -> T) -> T {
        read(&self.ledger)
    }

    fn collect(&mut self, is_on: bool) {
        self.outbox.open(is_on);
    }

    fn take_own(&mut self) -> OwnChanges {
        self.outbox.take()
    }

    fn import(&mut self, make: impl FnOnce(&Ledger) -> Vec<Imported>) {
        for imported in make(&self.ledger) {
            match imported {
                Imported::Changes { sender, changes } => {
                    for change in &changes {
                        self.log.push(|log| write_change(sender, change, log));
                        self.flush_large();
                    }
                }
                Imported::Loads { sender, loads } => {
                    let words = |&(endpoint, load): &(u64, Load)| [endpoint, load.requests, load.tokens];
                    let loads: Vec<_> = loads.iter().map(words).collect();
                    self.log.push(|log| write_loads(sender, &loads, log));
                }
                Imported::Passed(time) => self.log.push(|log| write_passed(self.worker, time, log)),
            }
        }
        if !self.log.is_flushed() {
            self.flush();
        }
    }

    fn resend(&mut self) {
        // Every worker leaves blocks out that any worker has sent lately, so all have to send prompts in
        // full.
        self.membership.request_resync();
    }
}

/// Applies an entry of the log, and keeps a change of this proxy for others.
fn apply(ledger: &mut Ledger, outbox: &mut Outbox, entry: Entry<'_>) {
    match entry.content {
        Content::Change(change) => {
            ledger.apply(entry.worker, &change);
            if outbox.is_open() && !is_other_proxy(entry.worker) && Outbox::wants(&change) {
                outbox.push(change.into_owned());
            }
        }
        Content::Loads(loads) => {
            let load = |&[endpoint, requests, tokens]: &[u64; 3]| (endpoint, Load { requests, tokens });
            ledger.set_loads(entry.worker, loads.iter().map(load));
        }
        Content::Passed(time) => ledger.pass(time),
    }
}
