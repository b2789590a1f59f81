//! The requests to the agent that carry changes, one after another.

use core::time::Duration;

use endpoint_picker::period::Period;
use endpoint_picker_wire::changes::{Delivery, Feed, Sync};
use endpoint_picker_wire::{Bytes, CHANGES_FORMAT, Message};

use super::exporter::Exporter;
use super::importer::{Importer, Made, Unreadable};
use super::outcome::{SharingError, SyncOutcome};
use super::peer::{OwnChanges, PeerLedger};
use super::sender::{Identity, Positions};
use crate::agent::{AgentRequest, AgentResponse, CallError, RecentErrors, path_of_pool};
use crate::metrics::SharingCounts;

/// Time from one sync to the next, and the maximum time that a change waits.
const SYNC_EVERY: Duration = Duration::from_millis(20);

/// Time from one sync to the next while no other proxy has sent anything for [`COMPANY`].
const SYNC_ALONE_EVERY: Duration = Duration::from_millis(250);

/// How long syncs stay frequent after another proxy has sent something, and after the start.
const COMPANY: Duration = Duration::from_secs(5);

/// Pause after a sync that failed.
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// Pause after a response of an agent that does not share.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// Time limit of a sync. A shell that waits for the response drops loads of vanished proxies only afterwards.
const TIMEOUT: Duration = Duration::from_millis(400);

/// Minimum time between two requests for a resync: after each, the others send prompts in full for a while.
const RESYNC_EVERY: Duration = Duration::from_secs(5);

/// Exchanges changes with other proxies through the agent, for all workers of this proxy.
#[derive(Debug)]
pub struct SharingClient {
    path: String,
    proxy: String,
    sender: u64,
    positions: Positions,
    exporter: Exporter,
    importer: Importer,
    /// The message that the agent has not taken yet.
    unsent: Option<Unsent>,
    /// Whether a sync is in flight.
    is_in_flight: bool,
    /// When the last sync began.
    began: Duration,
    /// Period of frequent syncs: it begins with each message of another proxy, and with the first sync;
    /// `None` before the first sync.
    company: Option<Period>,
    /// Pause before the next sync.
    pause: Period,
    /// Whether the agent shares; `None` before its first response.
    is_on: Option<bool>,
    /// Pause before the next request for a resync.
    resync_pause: Period,
    errors: RecentErrors,
    counts: SharingCounts,
}

#[derive(Debug)]
struct Unsent {
    changes: Bytes,
    made: Duration,
}

impl SharingClient {
    /// The client of one pool, by its name at the agent. `proxy` is the proxy's name. `positions` are the
    /// positions that the worker that synced before has stored.
    pub fn new(pool: &str, proxy: String, identity: Identity, positions: Positions) -> Self {
        Self {
            path: path_of_pool(pool, "changes"),
            proxy,
            sender: identity.sender,
            positions,
            exporter: Exporter::new(identity),
            importer: Importer::new(identity.sender),
            unsent: None,
            is_in_flight: false,
            began: Duration::ZERO,
            company: None,
            pause: Period::default(),
            is_on: None,
            resync_pause: Period::default(),
            errors: RecentErrors::default(),
            counts: SharingCounts::default(),
        }
    }

    /// How far this proxy has read.
    pub fn positions(&self) -> &Positions {
        &self.positions
    }

    /// The counts since the last call.
    pub fn take_counts(&mut self) -> SharingCounts {
        core::mem::take(&mut self.counts)
    }

    /// The number of other proxies whose changes arrive.
    pub fn peers(&self, now: Duration) -> usize {
        self.importer.peers(now)
    }

    /// The sync to send now, if there is one. Lets time pass for the deferred loads of other proxies, and
    /// drops the loads of vanished proxies. To be called every 20 ms.
    ///
    /// None is due until [`Self::finish`] is called, also with the error of a proxy that refuses to send it.
    pub fn next_sync(&mut self, ledger: &mut impl PeerLedger, now: Duration) -> Option<AgentRequest> {
        ledger.import(|ledger| self.importer.pass(ledger, now));
        // Changes about endpoints that are not known yet would be lost.
        let has_pool = ledger.read(|ledger| !ledger.pool().as_slice().is_empty());
        if !has_pool || self.is_in_flight || self.pause.contains(now) {
            return None;
        }
        // A defect in what follows is not repeated at once; a response sets another pause.
        self.pause = Period::new(now, RETRY_AFTER);
        self.began = now;
        self.make_message(ledger, now);
        let sync = Sync {
            format: CHANGES_FORMAT,
            sender: self.sender,
            proxy: self.proxy.clone(),
            positions: self.positions.to_wire(),
            changes: self.unsent.as_ref().map(|unsent| unsent.changes.clone()),
            age_ms: self.unsent.as_ref().map_or(0, |unsent| millis(now.saturating_sub(unsent.made))),
        };
        let body = Some(sync.encode_to_vec());
        self.is_in_flight = true;
        Some(AgentRequest { path: self.path.clone(), body, timeout: TIMEOUT })
    }

    /// The time until the next sync may begin, if none is in flight.
    pub fn pause(&self, now: Duration) -> Duration {
        self.pause.left(now)
    }

    /// Makes the next message, unless the last one is to be sent again.
    fn make_message(&mut self, ledger: &mut impl PeerLedger, now: Duration) {
        // A message that failed is sent again unchanged: by its sequence number, proxies that have it ignore
        // it.
        if self.is_on == Some(false) || self.unsent.is_some() {
            return;
        }
        // Changes are collected before the first response already, in case the agent shares.
        if self.is_on.is_none() {
            ledger.collect(true);
        }
        let OwnChanges { mut changes, has_lost } = ledger.take_own();
        ledger.read(|ledger| changes.retain(|change| ledger.is_shared(change)));
        // Later prompts must not leave out blocks of dropped ones, which the other proxies never got.
        if has_lost {
            ledger.resend();
        }
        let own: Vec<_> = ledger.read(|ledger| ledger.own_loads_by_key().collect());
        let message = self.exporter.next(changes, own.into_iter(), now);
        self.unsent = message.map(|message| Unsent { changes: message.encode_to_vec().into(), made: now });
    }

    /// Takes the response to the sync in flight, and applies the changes of other proxies.
    pub fn finish(
        &mut self,
        response: Result<AgentResponse, CallError>,
        ledger: &mut impl PeerLedger,
        now: Duration,
    ) -> SyncOutcome {
        self.is_in_flight = false;
        match response.map_err(SharingError::Call).and_then(read) {
            Ok(Some(feed)) => {
                self.counts.sent += u64::from(self.unsent.take().is_some());
                // The agent shares again; changes were not collected in between.
                if self.is_on == Some(false) {
                    ledger.collect(true);
                    ledger.resend();
                }
                self.is_on = Some(true);
                let passed_over = self.apply(&feed, ledger, now);
                // From the start of the sync, so that its duration does not make syncs rarer.
                self.pause = Period::new(self.began, self.sync_every(now));
                SyncOutcome::Synced { passed_over }
            }
            Ok(None) => {
                self.pause = Period::new(now, ASK_AGAIN_AFTER);
                self.unsent = None;
                self.is_on = Some(false);
                ledger.collect(false);
                SyncOutcome::Off
            }
            Err(error) => {
                self.counts.failed += 1;
                self.pause = Period::new(now, RETRY_AFTER);
                if let SharingError::Status { status: 400..=499, .. } = error {
                    // The agent refuses the message: it would refuse it again.
                    self.unsent = None;
                }
                let is_new = self.errors.is_new(error.to_string(), now);
                SyncOutcome::Failed { error, is_new }
            }
        }
    }

    /// Time from one sync to the next.
    fn sync_every(&mut self, now: Duration) -> Duration {
        if self.importer.peers(now) > 0 {
            self.company = Some(Period::new(now, COMPANY));
        }
        let company = self.company.get_or_insert(Period::new(now, COMPANY));
        if company.contains(now) { SYNC_EVERY } else { SYNC_ALONE_EVERY }
    }

    /// Applies a feed. Returns why a message was passed over, if that is new.
    fn apply(&mut self, feed: &Feed, ledger: &mut impl PeerLedger, now: Duration) -> Option<String> {
        let mut passed_over = None;
        let agent_now = match feed.since_epoch_ms {
            // An older agent does not send its time.
            0 => now,
            since_epoch => Duration::from_millis(since_epoch),
        };
        for delivery in &feed.deliveries {
            self.counts.received += 1;
            if let Err(reason) = self.take(delivery, agent_now, ledger, now) {
                self.counts.unreadable += 1;
                passed_over.get_or_insert_with(|| reason.to_string());
            }
        }
        // Also after messages that were passed over: they would be unreadable again.
        if let Some(position) = feed.position {
            self.positions.set(position);
        }
        if self.importer.take_must_resend() {
            ledger.resend();
        }
        // During the pause, what was missed stays noted in the importer.
        if !self.resync_pause.contains(now) && self.importer.take_missed() {
            self.resync_pause = Period::new(now, RESYNC_EVERY);
            self.exporter.request_resync();
        }
        passed_over.filter(|reason| self.errors.is_new(reason.clone(), now))
    }

    fn take(
        &mut self,
        delivery: &Delivery,
        agent_now: Duration,
        ledger: &mut impl PeerLedger,
        now: Duration,
    ) -> Result<(), Unreadable> {
        // Decoded before the ledger is read, which may be behind a lock.
        let message = Importer::read(delivery)?;
        let age = Duration::from_millis(delivery.age_ms);
        let made = Made { age, at: agent_now.saturating_sub(age) };
        let mut result = Ok(());
        ledger.import(|ledger| match self.importer.take(message, made, ledger, now) {
            Ok(imported) => imported,
            Err(reason) => {
                result = Err(reason);
                Vec::new()
            }
        });
        result
    }
}

/// The feed of a response; `None`: the agent does not share.
fn read(response: AgentResponse) -> Result<Option<Feed>, SharingError> {
    match response.status {
        200 => {}
        404 => return Ok(None),
        status => return Err(SharingError::Status { status, body: response.reason() }),
    }
    let feed = Feed::decode(response.body.as_slice()).map_err(SharingError::Malformed)?;
    match feed.format {
        CHANGES_FORMAT => Ok(Some(feed)),
        format => Err(SharingError::Format(format)),
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
