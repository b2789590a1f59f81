//! Which messages of a publisher are applied: gaps, replays and restarts.
//!
//! A publisher numbers its messages from 0 for each process. Some keep the last ones, and send them again
//! from a number on. Without such a replay nothing is known about the messages before the first one, and
//! after a gap about what the cache had lost, so it counts as empty.

use bytes::Bytes;
use xxhash_rust::xxh64::xxh64;

/// A message of a publisher.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KvMessage {
    /// The number.
    pub sequence: u64,
    /// The events, or nothing after the last message of a replay.
    pub payload: Bytes,
}

/// The number after the last message of a replay.
const END: u64 = u64::MAX;

impl KvMessage {
    /// The message of these frames, published or sent again: the last two are number and payload. `None`:
    /// they are not such a message.
    pub fn of(frames: &[Bytes]) -> Option<Self> {
        let [.., sequence, payload] = frames else { return None };
        let sequence = u64::from_be_bytes(sequence.as_ref().try_into().ok()?);
        Some(Self { sequence, payload: payload.clone() })
    }

    /// Whether it marks the end of a replay.
    pub fn is_end(&self) -> bool {
        self.sequence == END
    }

    fn position(&self) -> MessagePosition {
        MessagePosition { sequence: self.sequence, digest: xxh64(&self.payload, 0) }
    }
}

/// A message by its number and its content. Another process has other content under the number, because a
/// payload contains the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct MessagePosition {
    sequence: u64,
    digest: u64,
}

/// The way in which a message is treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Apply it.
    Apply,
    /// Ignore it: it was applied, or a replay has it too.
    Ignore,
    /// Forget what the cache has, then apply it: messages before it are lost.
    ClearAndApply,
    /// Ask for a replay from this number on, which has it too.
    Replay(u64),
    /// Forget what the cache has, because it is another process; then ask for a replay from 0, which has it
    /// too.
    ClearAndReplay,
}

/// The messages of one publisher, over all connections to it.
#[derive(Clone, Debug)]
pub struct Sequence {
    can_replay: bool,
    /// The last message that was applied; all messages before it were too, from the first one after a loss
    /// on.
    applied: Option<MessagePosition>,
    /// The last message that was published on this connection.
    live: Option<u64>,
    replay: ReplayState,
    is_complete: bool,
}

/// The state of the last replay on a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplayState {
    /// It has yet to show that the publisher is still the process whose messages were applied.
    Unverified,
    /// It has shown that, or nothing was applied before.
    Verified,
    /// It follows a failed one, and has had no message yet.
    Retried,
    /// It is over, or there was none.
    Ended,
    /// It has failed.
    Failed,
}

impl Sequence {
    /// No message yet. `can_replay`: the publisher sends messages again.
    pub fn new(can_replay: bool) -> Self {
        Self { can_replay, applied: None, live: None, replay: ReplayState::Ended, is_complete: false }
    }

    /// Whether all that the cache has is known: all messages of the process were applied, or all since the
    /// cache was cleared.
    pub fn is_complete(&self) -> bool {
        self.is_complete && matches!(self.replay, ReplayState::Ended | ReplayState::Failed)
    }

    /// A connection was opened. Returns the number from which to ask for a replay; `None`: forget what the
    /// cache has.
    pub fn connected(&mut self) -> Option<u64> {
        self.live = None;
        if self.can_replay {
            return Some(self.begin_replay());
        }
        self.forget();
        None
    }

    /// Begins a replay with the last message that was applied, so that its content shows whether the process
    /// is the same.
    fn begin_replay(&mut self) -> u64 {
        self.replay = if self.applied.is_some() { ReplayState::Unverified } else { ReplayState::Verified };
        self.applied.map_or(0, |applied| applied.sequence)
    }

    fn forget(&mut self) {
        self.applied = None;
        self.is_complete = false;
    }

    /// The next published message.
    pub fn published(&mut self, message: &KvMessage) -> Step {
        let position = message.position();
        let before = self.live.replace(position.sequence);
        let is_repeated = before.is_some_and(|before| position.sequence <= before);
        let is_other = self.applied.is_some_and(|applied| {
            applied.sequence == position.sequence && applied.digest != position.digest
        });
        if is_repeated || is_other {
            self.forget();
            if self.can_replay {
                self.replay = ReplayState::Verified;
                return Step::ClearAndReplay;
            }
            return self.restart_at(position);
        }
        match self.applied {
            None if position.sequence > 0 && self.can_replay && self.replay != ReplayState::Failed => {
                Step::Replay(self.begin_replay())
            }
            Some(applied) if position.sequence <= applied.sequence => Step::Ignore,
            Some(applied) if position.sequence - applied.sequence == 1 => {
                self.applied = Some(position);
                Step::Apply
            }
            Some(_) if self.can_replay => Step::Replay(self.begin_replay()),
            None | Some(_) => self.restart_at(position),
        }
    }

    /// The next message of a replay.
    pub fn replayed(&mut self, message: &KvMessage) -> Step {
        let position = message.position();
        if self.replay == ReplayState::Unverified {
            self.replay = ReplayState::Verified;
            if self.applied == Some(position) {
                return Step::Ignore;
            }
            self.forget();
            return Step::ClearAndReplay;
        }
        if self.replay == ReplayState::Retried {
            self.replay = ReplayState::Verified;
            return self.restart_at(position);
        }
        let expected = self.applied.map_or(0, |applied| applied.sequence.saturating_add(1));
        if position.sequence < expected {
            return Step::Ignore;
        }
        if position.sequence > expected {
            return self.restart_at(position);
        }
        self.is_complete |= position.sequence == 0;
        self.applied = Some(position);
        Step::Apply
    }

    /// A replay has ended. Returns true if the publisher is another process, so that the cache has to be
    /// forgotten and a replay from 0 has to follow.
    pub fn replay_ended(&mut self) -> bool {
        let is_other = self.replay == ReplayState::Unverified;
        self.replay = ReplayState::Ended;
        if is_other {
            self.forget();
            self.replay = ReplayState::Verified;
        }
        is_other
    }

    /// A replay has failed. Returns whether the contents of the cache are to be forgotten.
    pub fn replay_failed(&mut self) -> bool {
        let forgets = self.replay != ReplayState::Retried;
        if forgets {
            self.forget();
        }
        self.replay = ReplayState::Failed;
        forgets
    }

    /// Begins a replay of everything some time after one has failed. Returns the number from which to ask for
    /// it. What was applied since stays until the replay has a message.
    pub fn retry(&mut self) -> u64 {
        self.replay = ReplayState::Retried;
        0
    }

    /// The cache was cleared, so that all that it has is known.
    pub fn cleared(&mut self) {
        self.is_complete = true;
    }

    /// Begins with this message.
    fn restart_at(&mut self, position: MessagePosition) -> Step {
        self.is_complete = position.sequence == 0;
        self.applied = Some(position);
        Step::ClearAndApply
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(process: u8, sequence: u64) -> KvMessage {
        let payload = [&[process][..], &sequence.to_be_bytes()].concat().into();
        KvMessage { sequence, payload }
    }

    #[test]
    fn frames_are_read_with_and_without_a_topic() {
        let number = Bytes::copy_from_slice(&7_u64.to_be_bytes());
        let (topic, payload) = (Bytes::from_static(b"kv@a@m"), Bytes::from_static(b"p"));
        let expected = Some(KvMessage { sequence: 7, payload: payload.clone() });
        assert_eq!(KvMessage::of(&[topic.clone(), number.clone(), payload.clone()]), expected);
        assert_eq!(KvMessage::of(&[Bytes::new(), topic.clone(), number.clone(), payload.clone()]), expected);
        assert_eq!(KvMessage::of(&[Bytes::new(), number.clone(), payload]), expected);
        assert_eq!(KvMessage::of(&[topic.clone(), topic, number]), None);
        assert_eq!(KvMessage::of(&[]), None);
        let end = [Bytes::new(), Bytes::new(), Bytes::from_static(&[0xff; 8]), Bytes::new()];
        assert!(KvMessage::of(&end).unwrap().is_end());
    }

    #[test]
    fn without_replay_the_cache_is_forgotten_at_a_connection_a_gap_and_a_restart() {
        let mut sequence = Sequence::new(false);
        assert_eq!(sequence.connected(), None);
        assert_eq!(sequence.published(&message(1, 0)), Step::ClearAndApply);
        assert!(sequence.is_complete(), "it is the first message of the process");
        assert_eq!(sequence.published(&message(1, 1)), Step::Apply);
        assert_eq!(sequence.published(&message(1, 3)), Step::ClearAndApply);
        assert!(!sequence.is_complete());
        sequence.cleared();
        assert!(sequence.is_complete());
        assert_eq!(sequence.published(&message(2, 0)), Step::ClearAndApply, "another process");
        assert_eq!(sequence.connected(), None);
        assert_eq!(sequence.published(&message(2, 1)), Step::ClearAndApply);
        assert!(!sequence.is_complete());
    }

    /// Replays the messages of a process from this number on.
    fn replay(sequence: &mut Sequence, process: u8, numbers: impl IntoIterator<Item = u64>) -> Vec<Step> {
        numbers.into_iter().map(|number| sequence.replayed(&message(process, number))).collect()
    }

    #[test]
    fn a_replay_at_the_connection_makes_the_cache_complete() {
        let mut sequence = Sequence::new(true);
        assert_eq!(sequence.connected(), Some(0));
        assert_eq!(replay(&mut sequence, 1, 0..3), [Step::Apply; 3]);
        assert!(!sequence.replay_ended() && sequence.is_complete());
        // Published since the subscription, and in the replay too.
        assert_eq!(sequence.published(&message(1, 1)), Step::Ignore);
        assert_eq!(sequence.published(&message(1, 2)), Step::Ignore);
        assert_eq!(sequence.published(&message(1, 3)), Step::Apply);
        assert_eq!(sequence.published(&message(1, 6)), Step::Replay(3), "two are missing");
        assert_eq!(replay(&mut sequence, 1, 3..=6), [Step::Ignore, Step::Apply, Step::Apply, Step::Apply]);
        assert!(!sequence.replay_ended() && sequence.is_complete());
        assert_eq!(sequence.published(&message(1, 7)), Step::Apply);
    }

    #[test]
    fn what_a_replay_no_longer_has_is_lost() {
        let mut sequence = Sequence::new(true);
        sequence.connected();
        assert_eq!(replay(&mut sequence, 1, 5..7), [Step::ClearAndApply, Step::Apply]);
        assert!(!sequence.replay_ended() && !sequence.is_complete());
        assert_eq!(sequence.published(&message(1, 9)), Step::Replay(6));
        assert_eq!(replay(&mut sequence, 1, [6, 8, 9]), [Step::Ignore, Step::ClearAndApply, Step::Apply]);
    }

    #[test]
    fn another_process_is_noticed_after_a_connection_whatever_its_numbers() {
        let mut sequence = Sequence::new(true);
        sequence.connected();
        replay(&mut sequence, 1, 0..3);
        sequence.replay_ended();
        // Fewer messages than before.
        let mut fewer = sequence.clone();
        assert_eq!(fewer.connected(), Some(2));
        assert!(fewer.replay_ended(), "the replay has no message 2");
        assert_eq!(fewer.connected(), Some(0));
        // More messages than before.
        assert_eq!(sequence.connected(), Some(2));
        assert_eq!(replay(&mut sequence, 2, [2]), [Step::ClearAndReplay]);
        assert_eq!(sequence.connected(), Some(0));
        assert_eq!(replay(&mut sequence, 2, 0..4), [Step::Apply; 4]);
        assert!(!sequence.replay_ended() && sequence.is_complete());
        // Without a new connection, as behind a proxy.
        assert_eq!(sequence.published(&message(2, 4)), Step::Apply);
        assert_eq!(sequence.published(&message(3, 0)), Step::ClearAndReplay);
        assert_eq!(replay(&mut sequence, 3, 0..1), [Step::Apply]);
        assert!(!sequence.replay_ended());
        assert_eq!(sequence.published(&message(3, 1)), Step::Apply);
    }

    #[test]
    fn after_a_failed_replay_messages_are_applied_from_the_next_one_on() {
        let mut sequence = Sequence::new(true);
        sequence.connected();
        assert!(sequence.replay_failed());
        assert_eq!(sequence.published(&message(1, 4)), Step::ClearAndApply);
        assert!(!sequence.is_complete());
        assert_eq!(sequence.published(&message(1, 5)), Step::Apply);
        assert_eq!(sequence.published(&message(1, 8)), Step::Replay(5));
    }

    #[test]
    fn a_replay_after_a_failed_one_adds_what_was_before() {
        let mut sequence = Sequence::new(true);
        sequence.connected();
        assert!(sequence.replay_failed());
        assert_eq!(sequence.published(&message(1, 4)), Step::ClearAndApply);
        assert_eq!(sequence.retry(), 0);
        assert!(!sequence.replay_failed(), "it has failed before its first message");
        assert_eq!(sequence.published(&message(1, 5)), Step::Apply);
        assert_eq!(sequence.retry(), 0);
        let mut again = vec![Step::ClearAndApply];
        again.extend([Step::Apply; 6]);
        assert_eq!(replay(&mut sequence, 1, 0..7), again);
        assert!(!sequence.replay_ended() && sequence.is_complete());
        assert_eq!(sequence.published(&message(1, 6)), Step::Ignore);
        assert_eq!(sequence.published(&message(1, 7)), Step::Apply);
        // It fails later, or has nothing.
        sequence.retry();
        replay(&mut sequence, 1, 0..3);
        assert!(sequence.replay_failed());
        assert_eq!(sequence.published(&message(1, 8)), Step::ClearAndApply);
        sequence.retry();
        assert!(!sequence.replay_ended() && !sequence.is_complete());
        assert_eq!(sequence.published(&message(1, 9)), Step::Apply);
    }

    #[test]
    fn a_process_without_messages_has_an_empty_replay() {
        let mut sequence = Sequence::new(true);
        assert_eq!(sequence.connected(), Some(0));
        assert!(!sequence.replay_ended());
        assert_eq!(sequence.published(&message(1, 0)), Step::ClearAndApply);
        assert!(sequence.is_complete());
    }
}
