//! The recent messages of a pool's proxies.

use core::hash::BuildHasher;
use core::time::Duration;
use std::collections::{HashMap, VecDeque};
use std::hash::RandomState;

use bytes::Bytes;
use endpoint_picker_wire::changes::{Delivery, Position};
use parking_lot::Mutex;

use metrics_agent_support::runtime::Clock;

/// Bounds of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeedLimits {
    /// Maximum number of messages.
    pub messages: usize,
    /// Maximum number of bytes of messages.
    pub bytes: usize,
    /// Maximum size of a message in bytes; larger ones are refused.
    pub message_bytes: usize,
    /// Age from which a message is dropped.
    pub age: Duration,
    /// Bytes after which a response carries no further message.
    pub answer_bytes: usize,
    /// Maximum number of proxies whose positions are kept.
    pub readers: usize,
}

impl Default for FeedLimits {
    fn default() -> Self {
        Self {
            messages: 1 << 16,
            bytes: 32 << 20,
            message_bytes: MAX_MESSAGE_BYTES,
            age: Duration::from_secs(600),
            answer_bytes: 256 << 10,
            readers: 256,
        }
    }
}

/// Maximum size of a proxy's message in bytes.
pub const MAX_MESSAGE_BYTES: usize = 1 << 20;

/// Maximum overhead of a message in a response, in bytes.
const DELIVERY_BYTES: usize = 20;

/// Age from which a reader counts as gone.
const READER_AGE: Duration = Duration::from_secs(10);

/// The recent messages of a pool's proxies, oldest first. Each has a position; positions only grow.
#[derive(Debug)]
pub struct PoolFeed {
    clock: Clock,
    /// Distinguishes it from the feed of another agent, or of an earlier run.
    id: u64,
    limits: FeedLimits,
    state: Mutex<FeedState>,
}

#[derive(Debug, Default)]
struct FeedState {
    /// The position of the oldest message.
    first: u64,
    messages: VecDeque<SentMessage>,
    bytes: usize,
    /// Readers by their numbers as senders.
    readers: HashMap<u64, FeedReader>,
}

#[derive(Debug)]
struct SentMessage {
    sender: u64,
    arrived: Duration,
    /// Its age then. It may have been made before the agent started.
    age: Duration,
    changes: Bytes,
}

#[derive(Clone, Debug)]
struct FeedReader {
    proxy: String,
    at: Duration,
    next: u64,
    missed: u64,
}

/// How far behind a proxy is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReaderStatus {
    /// The proxy's name.
    pub proxy: String,
    /// Messages that it has not read.
    pub unread: u64,
    /// The time for which the oldest of them has waited.
    pub behind: Duration,
    /// Messages that were dropped before it read them.
    pub missed: u64,
}

impl PoolFeed {
    /// An empty feed.
    pub fn new(clock: Clock, limits: FeedLimits) -> Self {
        // The standard library seeds its maps at random.
        let id = RandomState::new().hash_one(clock.now());
        Self { clock, id, limits, state: Mutex::default() }
    }

    /// Adds a message of a proxy, which was made this long ago. The oldest messages are dropped when there
    /// are too many. Returns false for a message that is too large: a response with it could exceed the limit
    /// of proxies, and they would request it again without end.
    pub fn push(&self, sender: u64, age: Duration, changes: Bytes) -> bool {
        if changes.len() > self.limits.message_bytes {
            return false;
        }
        let now = self.clock.now();
        let mut state = self.state.lock();
        state.bytes += changes.len();
        state.messages.push_back(SentMessage { sender, arrived: now, age, changes });
        while state.messages.len() > self.limits.messages || state.bytes > self.limits.bytes {
            state.drop_oldest();
        }
        state.drop_older_than(now.saturating_sub(self.limits.age));
        true
    }

    /// Reads the messages of other proxies from the position that the reader has in this feed, if it has one,
    /// and the position behind them. A position that was dropped meanwhile counts as the oldest.
    pub fn read(&self, sender: u64, proxy: &str, positions: &[Position]) -> (Position, Vec<Delivery>) {
        let now = self.clock.now();
        let mut state = self.state.lock();
        state.drop_older_than(now.saturating_sub(self.limits.age));
        let known = positions.iter().find(|position| position.feed == self.id);
        let end = state.end();
        let next = known.map_or(0, |position| position.next).clamp(state.first, end);
        let missed = known.map_or(0, |position| state.first.saturating_sub(position.next));
        let skipped = usize::try_from(next - state.first).unwrap_or(usize::MAX);
        let (mut deliveries, mut bytes, mut read) = (Vec::new(), 0, 0);
        for message in state.messages.iter().skip(skipped) {
            if bytes >= self.limits.answer_bytes {
                break;
            }
            // The reader's own messages count as read, though they are not delivered.
            read += 1;
            if message.sender != sender {
                bytes += message.changes.len() + DELIVERY_BYTES;
                let age = message.age.saturating_add(now.saturating_sub(message.arrived));
                let age_ms = u64::try_from(age.as_millis()).unwrap_or(u64::MAX);
                deliveries.push(Delivery { age_ms, changes: message.changes.clone() });
            }
        }
        let next = next + read;
        let reader = FeedReader { proxy: proxy.to_owned(), at: now, next, missed };
        state.note_reader(sender, reader, self.limits.readers);
        (Position { feed: self.id, next }, deliveries)
    }

    /// How far behind each proxy is that reads the feed.
    pub fn readers(&self) -> Vec<ReaderStatus> {
        let now = self.clock.now();
        let mut state = self.state.lock();
        state.drop_gone_readers(now);
        let status = |reader: &FeedReader| {
            let skipped = usize::try_from(reader.next.saturating_sub(state.first)).unwrap_or(usize::MAX);
            let oldest = state.messages.get(skipped);
            ReaderStatus {
                proxy: reader.proxy.clone(),
                unread: state.end().saturating_sub(reader.next),
                behind: oldest.map_or(Duration::ZERO, |oldest| now.saturating_sub(oldest.arrived)),
                missed: reader.missed,
            }
        };
        let mut readers: Vec<_> = state.readers.values().map(status).collect();
        readers.sort_by(|a, b| a.proxy.cmp(&b.proxy));
        readers
    }
}

impl FeedState {
    /// The position of the next message.
    fn end(&self) -> u64 {
        self.first + self.messages.len() as u64
    }

    fn drop_oldest(&mut self) {
        if let Some(oldest) = self.messages.pop_front() {
            self.bytes -= oldest.changes.len();
            self.first += 1;
        }
    }

    fn drop_older_than(&mut self, arrived: Duration) {
        while self.messages.front().is_some_and(|oldest| oldest.arrived < arrived) {
            self.drop_oldest();
        }
    }

    /// Notes what a reader has read, and adds up what it has missed.
    fn note_reader(&mut self, sender: u64, reader: FeedReader, most: usize) {
        if self.readers.len() >= most && !self.readers.contains_key(&sender) {
            self.drop_gone_readers(reader.at);
        }
        if let Some(before) = self.readers.get_mut(&sender) {
            let missed = before.missed.saturating_add(reader.missed);
            *before = FeedReader { missed, ..reader };
        } else if self.readers.len() < most {
            self.readers.insert(sender, reader);
        }
    }

    fn drop_gone_readers(&mut self, now: Duration) {
        self.readers.retain(|_, reader| now.saturating_sub(reader.at) < READER_AGE);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: FeedLimits = FeedLimits {
        messages: 4,
        bytes: 100,
        message_bytes: 98,
        age: Duration::from_secs(60),
        answer_bytes: 100,
        readers: 2,
    };

    fn feed() -> PoolFeed {
        PoolFeed::new(Clock::start(), LIMITS)
    }

    fn push(feed: &PoolFeed, sender: u64, text: &'static str) {
        assert!(feed.push(sender, Duration::ZERO, Bytes::from_static(text.as_bytes())));
    }

    /// Reads as a proxy with this number. Returns the messages.
    fn read(feed: &PoolFeed, sender: u64, positions: &mut Vec<Position>) -> Vec<String> {
        let (position, deliveries) = feed.read(sender, &format!("envoy-{sender}"), positions);
        *positions = vec![position];
        deliveries.iter().map(|it| String::from_utf8(it.changes.to_vec()).unwrap()).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn each_proxy_reads_the_messages_of_the_others_once() {
        let feed = feed();
        push(&feed, 1, "a");
        push(&feed, 2, "b");
        let (mut one, mut two) = (vec![], vec![]);
        assert_eq!(read(&feed, 1, &mut one), ["b"]);
        assert_eq!(read(&feed, 2, &mut two), ["a"]);
        push(&feed, 1, "c");
        assert!(read(&feed, 1, &mut one).is_empty());
        assert_eq!(read(&feed, 2, &mut two), ["c"]);
        assert!(read(&feed, 2, &mut two).is_empty());
        assert_eq!(read(&feed, 3, &mut vec![]), ["a", "b", "c"], "one that starts reads all");
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_carries_its_age() {
        let feed = feed();
        assert!(feed.push(1, Duration::from_millis(30), Bytes::from_static(b"a")));
        tokio::time::advance(Duration::from_millis(12)).await;
        assert_eq!(feed.read(2, "two", &[]).1[0].age_ms, 42);
    }

    #[tokio::test(start_paused = true)]
    async fn a_feed_is_bounded_by_messages_bytes_and_age() {
        let feed = feed();
        let mut positions = vec![];
        read(&feed, 2, &mut positions);
        for text in ["a", "b", "c", "d", "e"] {
            push(&feed, 1, text);
        }
        assert_eq!(read(&feed, 2, &mut positions), ["b", "c", "d", "e"], "its position was dropped");
        assert!(feed.push(1, Duration::ZERO, Bytes::from_static(&[b'f'; 98])));
        assert_eq!(read(&feed, 3, &mut vec![])[0], "d");
        tokio::time::advance(Duration::from_secs(61)).await;
        assert!(read(&feed, 3, &mut vec![]).is_empty());
        push(&feed, 1, "g");
        assert_eq!(read(&feed, 2, &mut positions), ["g"]);
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_bounded_and_the_next_one_goes_on() {
        let feed = PoolFeed::new(Clock::start(), FeedLimits { answer_bytes: 60, ..LIMITS });
        for text in ["aaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbb", "c"] {
            push(&feed, 1, text);
        }
        let mut positions = vec![];
        assert_eq!(read(&feed, 2, &mut positions).len(), 2);
        assert_eq!(read(&feed, 2, &mut positions), ["c"]);
        for _ in 0..4 {
            push(&feed, 1, "");
        }
        assert_eq!(read(&feed, 2, &mut positions).len(), 3, "empty messages take space too");
    }

    #[tokio::test(start_paused = true)]
    async fn a_message_that_is_too_large_is_refused_and_drops_no_other() {
        let feed = feed();
        push(&feed, 1, "a");
        assert!(!feed.push(1, Duration::ZERO, Bytes::from_static(&[b'x'; 99])));
        assert_eq!(read(&feed, 2, &mut vec![]), ["a"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_position_of_another_feed_or_beyond_the_end_is_harmless() {
        let (feed, other) = (feed(), feed());
        push(&feed, 1, "a");
        let position = other.read(2, "two", &[]).0;
        assert_ne!(position.feed, feed.id);
        assert_eq!(feed.read(2, "two", &[position]).1.len(), 1);
        let beyond = Position { feed: feed.id, next: u64::MAX };
        let (position, deliveries) = feed.read(2, "two", &[beyond]);
        assert_eq!((position.next, deliveries.len()), (1, 0));
    }

    #[tokio::test(start_paused = true)]
    async fn readers_show_how_far_behind_they_are() {
        let feed = feed();
        read(&feed, 1, &mut vec![]);
        push(&feed, 1, "a");
        tokio::time::advance(Duration::from_secs(2)).await;
        push(&feed, 1, "b");
        read(&feed, 2, &mut vec![]);
        read(&feed, 3, &mut vec![]);
        let status = |proxy: &str, unread, behind| ReaderStatus {
            proxy: proxy.to_owned(),
            unread,
            behind: Duration::from_secs(behind),
            missed: 0,
        };
        assert_eq!(
            feed.readers(),
            [status("envoy-1", 2, 2), status("envoy-2", 0, 0)],
            "the third is one too many"
        );
        tokio::time::advance(Duration::from_secs(9)).await;
        read(&feed, 3, &mut vec![]);
        assert_eq!(feed.readers(), [status("envoy-2", 0, 0), status("envoy-3", 0, 0)]);
    }

    #[tokio::test(start_paused = true)]
    async fn readers_show_what_they_have_missed_since_they_read_first() {
        let feed = feed();
        push(&feed, 1, "a");
        let mut positions = vec![];
        read(&feed, 2, &mut positions);
        for _ in 0..2 {
            for text in ["b", "c", "d", "e", "f", "g"] {
                push(&feed, 1, text);
            }
            read(&feed, 2, &mut positions);
        }
        read(&feed, 3, &mut vec![]);
        let missed: Vec<_> = feed.readers().iter().map(|reader| reader.missed).collect();
        assert_eq!(missed, [4, 0], "one that starts has missed nothing");
    }
}
