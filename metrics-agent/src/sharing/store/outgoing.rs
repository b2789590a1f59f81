//! Messages for the store, until it has taken them.

use core::time::Duration;
use std::collections::VecDeque;

use bytes::Bytes;
use parking_lot::Mutex;
use prometheus_client::metrics::counter::Counter;
use tokio::sync::Notify;

/// Maximum number of bytes that wait while the store is away; older messages are dropped.
const MAX_BYTES: usize = 4 << 20;

/// A message for the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::sharing) struct OutgoingMessage {
    pub(in crate::sharing) sender: u64,
    /// When it arrived, on the agent's clock.
    pub(in crate::sharing) arrived: Duration,
    /// Its age then.
    pub(in crate::sharing) age: Duration,
    pub(in crate::sharing) changes: Bytes,
}

/// Messages for the store, oldest first.
#[derive(Debug)]
pub(in crate::sharing) struct Outgoing {
    queue: Mutex<OutgoingQueue>,
    added: Notify,
    /// Messages that were dropped because there were too many.
    dropped: Counter,
}

#[derive(Debug, Default)]
struct OutgoingQueue {
    messages: VecDeque<OutgoingMessage>,
    bytes: usize,
}

/// Messages that wait for the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::sharing) struct WaitingMessages {
    pub(in crate::sharing) messages: usize,
    /// The time for which the oldest has waited.
    pub(in crate::sharing) longest: Duration,
}

/// Messages that are being written. Unless they are [`Self::written`], they wait again. The store may then
/// have them twice; readers skip the second.
pub(super) struct OutgoingBatch<'a> {
    outgoing: &'a Outgoing,
    messages: Vec<OutgoingMessage>,
}

impl Outgoing {
    /// No messages. `dropped` counts those that are dropped because there are too many.
    pub(in crate::sharing) fn new(dropped: Counter) -> Self {
        Self { queue: Mutex::default(), added: Notify::new(), dropped }
    }

    /// Adds a message. Older ones may be dropped for it.
    pub(in crate::sharing) fn push(&self, message: OutgoingMessage) {
        let mut queue = self.queue.lock();
        queue.bytes += message.changes.len();
        queue.messages.push_back(message);
        self.dropped.inc_by(queue.drop_oldest());
        drop(queue);
        self.added.notify_one();
    }

    /// Waits for messages and takes up to `most` of them.
    pub(super) async fn take(&self, most: usize) -> OutgoingBatch<'_> {
        loop {
            let messages = self.queue.lock().take(most);
            if !messages.is_empty() {
                return OutgoingBatch { outgoing: self, messages };
            }
            self.added.notified().await;
        }
    }

    /// The messages that wait at `now`, a time on the agent's clock.
    pub(in crate::sharing) fn waiting(&self, now: Duration) -> WaitingMessages {
        let queue = self.queue.lock();
        let oldest = queue.messages.front();
        WaitingMessages {
            messages: queue.messages.len(),
            longest: oldest.map_or(Duration::ZERO, |oldest| now.saturating_sub(oldest.arrived)),
        }
    }
}

impl OutgoingQueue {
    fn take(&mut self, most: usize) -> Vec<OutgoingMessage> {
        let count = self.messages.len().min(most);
        let taken: Vec<_> = self.messages.drain(..count).collect();
        self.bytes -= taken.iter().map(|message| message.changes.len()).sum::<usize>();
        taken
    }

    /// Puts messages that were taken before all others.
    fn put_back(&mut self, messages: Vec<OutgoingMessage>) {
        for message in messages.into_iter().rev() {
            self.bytes += message.changes.len();
            self.messages.push_front(message);
        }
    }

    /// Drops the oldest messages while there are too many. Returns their number.
    fn drop_oldest(&mut self) -> u64 {
        let mut dropped = 0;
        while self.bytes > MAX_BYTES {
            let Some(oldest) = self.messages.pop_front() else { break };
            self.bytes -= oldest.changes.len();
            dropped += 1;
        }
        dropped
    }
}

impl OutgoingBatch<'_> {
    pub(super) fn messages(&self) -> &[OutgoingMessage] {
        &self.messages
    }

    /// The store has taken the messages.
    pub(super) fn written(mut self) {
        self.messages.clear();
    }
}

impl Drop for OutgoingBatch<'_> {
    fn drop(&mut self) {
        let mut queue = self.outgoing.queue.lock();
        queue.put_back(core::mem::take(&mut self.messages));
        self.outgoing.dropped.inc_by(queue.drop_oldest());
    }
}

/// Approximate maximum size of a stream, in bytes, from which the maximum number of entries follows.
const MAX_STREAM_BYTES: usize = 64 << 20;

/// Bounds of the number of entries.
const MIN_ENTRIES: usize = 1 << 10;
const MAX_ENTRIES: usize = 1 << 16;

/// The size of entries, averaged over the last hundred or so.
#[derive(Default)]
pub(super) struct AverageSize(f64);

impl AverageSize {
    /// Adds the size of an entry to the average. Returns the maximum number of entries of the stream.
    pub(super) fn take(&mut self, bytes: usize) -> usize {
        const SHARE: f64 = 0.01;
        let bytes = bytes as f64;
        self.0 = if self.0 == 0.0 { bytes } else { self.0 + SHARE * (bytes - self.0) };
        // Not negative, and far below 2^53.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped below")]
        let entries = (MAX_STREAM_BYTES as f64 / self.0.max(1.0)) as usize;
        entries.clamp(MIN_ENTRIES, MAX_ENTRIES)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(sender: u64, bytes: usize) -> OutgoingMessage {
        OutgoingMessage {
            sender,
            arrived: Duration::from_secs(sender),
            age: Duration::ZERO,
            changes: vec![0; bytes].into(),
        }
    }

    async fn write(outgoing: &Outgoing, most: usize) -> Vec<OutgoingMessage> {
        let batch = outgoing.take(most).await;
        let messages = batch.messages().to_vec();
        batch.written();
        messages
    }

    #[tokio::test]
    async fn messages_wait_in_their_order_and_the_oldest_are_dropped() {
        let outgoing = Outgoing::new(Counter::default());
        outgoing.push(message(1, MAX_BYTES / 2));
        outgoing.push(message(2, MAX_BYTES / 2));
        assert_eq!(outgoing.dropped.get(), 0);
        outgoing.push(message(3, 1));
        assert_eq!(outgoing.dropped.get(), 1);
        let waiting = outgoing.waiting(Duration::from_secs(7));
        assert_eq!(waiting, WaitingMessages { messages: 2, longest: Duration::from_secs(5) });
        assert_eq!(write(&outgoing, 1).await, [message(2, MAX_BYTES / 2)]);
        assert_eq!(write(&outgoing, 9).await, [message(3, 1)]);
        assert_eq!(outgoing.waiting(Duration::from_secs(7)), WaitingMessages::default());
    }

    #[tokio::test]
    async fn messages_that_were_not_written_are_taken_again_before_later_ones() {
        let outgoing = Outgoing::new(Counter::default());
        outgoing.push(message(1, MAX_BYTES / 2));
        outgoing.push(message(2, MAX_BYTES / 4));
        let batch = outgoing.take(9).await;
        outgoing.push(message(3, MAX_BYTES / 2));
        drop(batch);
        assert_eq!(outgoing.dropped.get(), 1, "the oldest, as there are too many");
        assert_eq!(write(&outgoing, 9).await, [message(2, MAX_BYTES / 4), message(3, MAX_BYTES / 2)]);
    }

    #[tokio::test]
    async fn a_message_wakes_the_one_that_waits() {
        let outgoing = std::sync::Arc::new(Outgoing::new(Counter::default()));
        let waiting = tokio::spawn({
            let outgoing = std::sync::Arc::clone(&outgoing);
            async move { write(&outgoing, 9).await }
        });
        tokio::task::yield_now().await;
        outgoing.push(message(1, 1));
        assert_eq!(waiting.await.unwrap(), [message(1, 1)]);
    }

    #[test]
    fn a_stream_has_fewer_entries_the_larger_they_are() {
        let mut average = AverageSize::default();
        assert_eq!(average.take(100), MAX_ENTRIES);
        let mut average = AverageSize::default();
        assert_eq!(average.take(8 << 10), 8 << 10);
        assert_eq!(average.take(1 << 30), MIN_ENTRIES);
        for _ in 0..2_000 {
            average.take(8 << 10);
        }
        assert!((8_000..=8_192).contains(&average.take(8 << 10)));
    }
}
