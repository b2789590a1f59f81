//! The agent of many proxies.

use core::time::Duration;
use std::collections::VecDeque;

use endpoint_picker_wire::changes::{Exchange, Feed, Position};
use endpoint_picker_wire::{Bytes, CHANGES_FORMAT};

use crate::fixture::delivery;

/// The bounds of an agent's feed: messages, their bytes, and the bytes after which an answer carries no further message.
const MAX_MESSAGES: usize = 1 << 16;
const MAX_BYTES: usize = 32 << 20;
const ANSWER_BYTES: usize = 256 << 10;

const FEED: u64 = 9;

/// A feed with the bounds of an agent's, and what passed through it.
#[derive(Default)]
pub(super) struct Agent {
    first: u64,
    messages: VecDeque<(u64, Duration, Bytes)>,
    bytes: usize,
    /// Messages that were dropped before a proxy read them, added up over the proxies.
    pub(super) missed: u64,
    /// The longest wait of a message that a proxy read, except those from before its start.
    pub(super) longest_wait: Duration,
}

impl Agent {
    pub(super) fn take(&mut self, exchange: &Exchange, now: Duration) -> Feed {
        if let Some(changes) = &exchange.changes {
            self.bytes += changes.len();
            let made = now.saturating_sub(Duration::from_millis(exchange.age_ms));
            self.messages.push_back((exchange.sender, made, changes.clone()));
            while self.messages.len() > MAX_MESSAGES || self.bytes > MAX_BYTES {
                let (_, _, oldest) = self.messages.pop_front().unwrap();
                self.bytes -= oldest.len();
                self.first += 1;
            }
        }
        let known = exchange.positions.iter().find(|position| position.feed == FEED);
        self.missed += known.map_or(0, |position| self.first.saturating_sub(position.next));
        let mut next = known.map_or(0, |position| position.next).max(self.first);
        let (mut deliveries, mut bytes) = (Vec::new(), 0);
        for (sender, made, changes) in self.messages.range(usize::try_from(next - self.first).unwrap()..) {
            if bytes >= ANSWER_BYTES {
                break;
            }
            next += 1;
            if *sender != exchange.sender {
                bytes += changes.len();
                let waited = now.saturating_sub(*made);
                self.longest_wait = self.longest_wait.max(waited);
                deliveries.push(delivery(changes.clone(), waited));
            }
        }
        let position = Some(Position { feed: FEED, next });
        Feed { format: CHANGES_FORMAT, position, deliveries, ..Feed::default() }
    }
}
