//! Follows the events of one cache.

use core::convert::Infallible;
use core::time::Duration;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use metrics_agent_status::pool::StreamState;
use tokio::sync::Notify;
use tokio::time::{self, sleep, sleep_until, timeout};

use super::batch::Batch;
use super::connection::{EventConnection, Failure};
use super::event::KvEvent;
use super::sequence::{KvMessage, Sequence, Step};
use super::share::ServerShare;
use super::sources::EventSource;
use super::{CacheStatus, KvEvents};

/// Time between two connections, and between the end of a replay and the next one.
const PAUSE: Duration = Duration::from_secs(1);

/// Maximum time between two messages of a replay. vLLM looks for requests ten times a second, and between the
/// steps of its engine.
const REPLAY_SILENCE: Duration = Duration::from_secs(5);

/// Maximum time of a replay. By default servers keep 10 000 messages.
const REPLAY_TIME: Duration = Duration::from_secs(60);

/// Time after which a failed replay is tried again; it doubles with each failure, up to [`LAST_RETRY`].
const FIRST_RETRY: Duration = Duration::from_secs(5);
const LAST_RETRY: Duration = Duration::from_secs(600);

/// After this time of reading messages a follower pauses for [`IDLE`] times as long, so that a flood takes a
/// quarter of a thread at most. Meanwhile its messages wait at the server.
const BUSY: Duration = Duration::from_millis(5);
const IDLE: u32 = 3;

/// Follows the events of one cache until dropped.
pub(super) struct EventFollower {
    events: Arc<KvEvents>,
    status: Arc<CacheStatus>,
    source: EventSource,
    share: Arc<ServerShare>,
    sequence: Sequence,
    /// Notified when a connection has ended.
    ended: Arc<Notify>,
    busy: Duration,
    last_replay: Option<Instant>,
    /// Replays that have failed since one succeeded, and when the next one follows.
    failed_replays: u32,
    retry: Option<time::Instant>,
}

impl Drop for EventFollower {
    fn drop(&mut self) {
        self.events.update(|index| index.remove_cache(self.status.id));
    }
}

impl EventFollower {
    /// Follows a cache that the index has.
    pub(super) fn new(
        events: Arc<KvEvents>,
        status: Arc<CacheStatus>,
        source: EventSource,
        share: Arc<ServerShare>,
        ended: Arc<Notify>,
    ) -> Self {
        let sequence = Sequence::new(source.replay.is_some());
        let (busy, last_replay, failed_replays, retry) = (Duration::ZERO, None, 0, None);
        Self { events, status, source, share, sequence, ended, busy, last_replay, failed_replays, retry }
    }

    pub(super) async fn run(mut self) {
        loop {
            let Err(failure) = self.follow().await;
            // With a replay the next connection shows whether the cache is still the same.
            if self.source.replay.is_none() {
                self.clear();
            }
            self.set_problem(Some(failure.to_string()));
            if self.set_state(StreamState::Disconnected) != StreamState::Disconnected {
                tracing::warn!(address = %self.source.events, %failure, "the connection for KV-cache events has ended");
            }
            self.ended.notify_one();
            sleep(PAUSE).await;
        }
    }

    /// Follows one connection until it ends.
    async fn follow(&mut self) -> Result<Infallible, Failure> {
        let mut connection = EventConnection::subscribe(self.source.events, &self.share).await?;
        self.set_problem(None);
        self.set_state(StreamState::Partial);
        match self.sequence.connected() {
            Some(from) => self.replay(from).await,
            None => self.clear(),
        }
        loop {
            let retry = self.retry;
            let frames = tokio::select! {
                frames = connection.receive() => frames?,
                () = sleep_until(retry.unwrap_or_else(time::Instant::now)), if retry.is_some() => {
                    let from = self.sequence.retry();
                    self.replay(from).await;
                    continue;
                }
            };
            let started = Instant::now();
            let message = self.message(&frames);
            let step = message.as_ref().map_or(Step::Ignore, |message| self.sequence.published(message));
            self.pace(started).await;
            let Some(message) = message else { continue };
            match step {
                Step::Apply => self.apply(&message).await,
                Step::Ignore => {}
                Step::ClearAndApply => {
                    self.clear();
                    self.apply(&message).await;
                }
                Step::Replay(from) => {
                    self.events.metrics.gaps.inc();
                    self.replay(from).await;
                }
                Step::ClearAndReplay => {
                    self.restart();
                    self.replay(0).await;
                }
            }
        }
    }

    /// Asks for a replay. If it fails, the cache counts as empty, unless the replay was to add to it; another
    /// one follows.
    async fn replay(&mut self, from: u64) {
        if let Some(pause) = self.last_replay.and_then(|last| PAUSE.checked_sub(last.elapsed())) {
            sleep(pause).await;
        }
        let replaying = async {
            if !self.replay_once(from).await? {
                // The first replay has shown that it is another process; the second has all its messages.
                self.replay_once(0).await?;
            }
            Ok(())
        };
        let replayed = timeout(REPLAY_TIME, replaying).await.unwrap_or(Err(Failure::Timeout(REPLAY_TIME)));
        self.events.metrics.replays.count(replayed.is_ok());
        match replayed {
            Ok(()) => {
                (self.failed_replays, self.retry) = (0, None);
                self.set_problem(None);
                self.set_state(self.state());
            }
            Err(failure) => {
                tracing::warn!(address = ?self.source.replay, %failure, "a replay of KV-cache events has failed");
                let pause = FIRST_RETRY.saturating_mul(1 << self.failed_replays.min(16)).min(LAST_RETRY);
                self.failed_replays += 1;
                self.retry = Some(time::Instant::now() + pause);
                if self.sequence.replay_failed() {
                    self.clear();
                }
                self.set_problem(Some(format!("a replay failed: {failure}")));
                self.set_state(StreamState::Partial);
            }
        }
        self.last_replay = Some(Instant::now());
    }

    /// Returns false if the messages are of another process than those applied before. Then the cache has
    /// been emptied.
    async fn replay_once(&mut self, from: u64) -> Result<bool, Failure> {
        let Some(address) = self.source.replay else { return Ok(true) };
        let mut connection =
            EventConnection::request(address, &[b"", &from.to_be_bytes()], &self.share).await?;
        loop {
            let received = timeout(REPLAY_SILENCE, connection.receive()).await;
            let frames = received.unwrap_or(Err(Failure::Timeout(REPLAY_SILENCE)))?;
            let started = Instant::now();
            let Some(message) = self.message(&frames) else {
                self.pace(started).await;
                continue;
            };
            if message.is_end() {
                let is_other = self.sequence.replay_ended();
                if is_other {
                    self.restart();
                }
                return Ok(!is_other);
            }
            let step = self.sequence.replayed(&message);
            self.pace(started).await;
            match step {
                Step::Apply => self.apply(&message).await,
                Step::ClearAndApply => {
                    self.clear();
                    self.apply(&message).await;
                }
                Step::ClearAndReplay => {
                    self.restart();
                    return Ok(false);
                }
                Step::Ignore | Step::Replay(_) => {}
            }
        }
    }

    fn message(&self, frames: &[Bytes]) -> Option<KvMessage> {
        let message = KvMessage::of(frames);
        let counter =
            if message.is_some() { &self.events.metrics.messages } else { &self.events.metrics.unreadable };
        counter.inc();
        message
    }

    /// Applies the events of a message.
    async fn apply(&mut self, message: &KvMessage) {
        let share = Arc::clone(&self.share);
        let _turn = share.turn().await;
        let mut started = Instant::now();
        let now = self.events.clock.now();
        self.status.stream.lock().updated = Some(now);
        // Before the events, so that blocks are not shown with the state before a gap.
        self.set_state(self.state());
        if let Some(batch) = Batch::read(&message.payload) {
            self.count("unusable", batch.unusable);
            for event in &batch.events {
                self.apply_event(event, now);
                // An event of few bytes may change many blocks, as when a cache is cleared.
                self.pace(started).await;
                started = Instant::now();
            }
        } else {
            self.events.metrics.unreadable.inc();
        }
        self.pace(started).await;
    }

    fn apply_event(&mut self, event: &KvEvent, now: Duration) {
        let evicted = self.events.update(|index| {
            let evicted = index.totals().evicted;
            // A duration of 136 years.
            index.apply(self.status.id, event, u32::try_from(now.as_secs()).unwrap_or(u32::MAX));
            index.totals().evicted - evicted
        });
        self.events.metrics.evicted.inc_by(evicted);
        match event {
            KvEvent::Stored(stored) => self.count("stored", stored.blocks.len()),
            KvEvent::Removed(removed) => self.count("removed", removed.blocks.len()),
            KvEvent::Cleared => {
                self.count("cleared", 1);
                self.sequence.cleared();
                self.set_state(self.state());
            }
        }
    }

    fn count(&self, kind: &'static str, number: usize) {
        self.events.metrics.events.get_or_create(&[("kind", kind)]).inc_by(number as u64);
    }

    fn state(&self) -> StreamState {
        if self.sequence.is_complete() { StreamState::Complete } else { StreamState::Partial }
    }

    fn restart(&self) {
        self.events.metrics.restarts.inc();
        self.clear();
    }

    fn clear(&self) {
        self.events.update(|index| index.clear(self.status.id));
    }

    /// Returns the state before.
    fn set_state(&self, state: StreamState) -> StreamState {
        let before = core::mem::replace(&mut self.status.stream.lock().state, state);
        if before != state {
            self.events.advance();
        }
        before
    }

    fn set_problem(&self, problem: Option<String>) {
        self.status.stream.lock().problem = problem;
    }

    /// Counts the time since `started` as time of reading, and pauses if it is due. The time must not contain
    /// any waiting.
    async fn pace(&mut self, started: Instant) {
        self.busy += started.elapsed();
        if self.busy >= BUSY {
            sleep(core::mem::take(&mut self.busy).saturating_mul(IDLE)).await;
        }
    }
}
