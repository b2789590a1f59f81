//! Messages for the store, until it has taken them.

use core::time::Duration;
use std::collections::VecDeque;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Most bytes that wait while the store is away; older messages are dropped.
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
#[derive(Debug, Default)]
pub(in crate::sharing) struct Outgoing {
    queue: Mutex<Queue>,
    added: Notify,
}

#[derive(Debug, Default)]
struct Queue {
    messages: VecDeque<OutgoingMessage>,
    bytes: usize,
}

impl Outgoing {
    /// Adds a message. Returns how many older ones were dropped for it.
    pub(in crate::sharing) fn push(&self, message: OutgoingMessage) -> u64 {
        let mut queue = self.queue.lock();
        queue.bytes += message.changes.len();
        queue.messages.push_back(message);
        let mut dropped = 0;
        while queue.bytes > MAX_BYTES {
            let Some(oldest) = queue.messages.pop_front() else { break };
            queue.bytes -= oldest.changes.len();
            dropped += 1;
        }
        drop(queue);
        self.added.notify_one();
        dropped
    }

    /// Waits for messages and takes up to `most` of them.
    pub(super) async fn take(&self, most: usize) -> Vec<OutgoingMessage> {
        loop {
            let taken = self.take_now(most);
            if !taken.is_empty() {
                return taken;
            }
            self.added.notified().await;
        }
    }

    fn take_now(&self, most: usize) -> Vec<OutgoingMessage> {
        let mut queue = self.queue.lock();
        let count = queue.messages.len().min(most);
        let taken: Vec<_> = queue.messages.drain(..count).collect();
        queue.bytes -= taken.iter().map(|message| message.changes.len()).sum::<usize>();
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(sender: u64, bytes: usize) -> OutgoingMessage {
        OutgoingMessage {
            sender,
            arrived: Duration::ZERO,
            age: Duration::ZERO,
            changes: vec![0; bytes].into(),
        }
    }

    #[tokio::test]
    async fn messages_wait_in_their_order_and_the_oldest_are_dropped() {
        let outgoing = Outgoing::default();
        assert_eq!(outgoing.push(message(1, MAX_BYTES / 2)), 0);
        assert_eq!(outgoing.push(message(2, MAX_BYTES / 2)), 0);
        assert_eq!(outgoing.push(message(3, 1)), 1);
        assert_eq!(outgoing.take(1).await, [message(2, MAX_BYTES / 2)]);
        assert_eq!(outgoing.take(9).await, [message(3, 1)]);
    }

    #[tokio::test]
    async fn a_message_wakes_the_one_that_waits() {
        let outgoing = std::sync::Arc::new(Outgoing::default());
        let waiting = tokio::spawn({
            let outgoing = std::sync::Arc::clone(&outgoing);
            async move { outgoing.take(9).await }
        });
        tokio::task::yield_now().await;
        outgoing.push(message(1, 1));
        assert_eq!(waiting.await.unwrap(), [message(1, 1)]);
    }
}
