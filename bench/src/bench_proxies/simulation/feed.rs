//! The messages of proxies on their way to the others.

use bytes::Bytes;
use endpoint_picker_wire::CHANGES_FORMAT;
use endpoint_picker_wire::changes::{Delivery, Exchange, Feed, Position};
use std::time::Duration;

const FEED: u64 = 9;

/// All messages, in the order of their arrival. An agent or a store keeps more than a round has.
#[derive(Debug, Default)]
pub(super) struct Messages(Vec<Message>);

#[derive(Debug)]
struct Message {
    sender: u64,
    arrived: Duration,
    changes: Bytes,
}

impl Messages {
    /// Takes a proxy's message, and answers with those of others that arrived at least `delay` ago.
    pub(super) fn exchange(&mut self, exchange: &Exchange, now: Duration, delay: Duration) -> Feed {
        if let Some(changes) = &exchange.changes {
            let changes = changes.clone();
            self.0.push(Message { sender: exchange.sender, arrived: now, changes });
        }
        let known = exchange.positions.iter().find(|position| position.feed == FEED);
        let first = known.map_or(0, |position| position.next);
        let first = usize::try_from(first).unwrap_or(usize::MAX);
        let messages = self.0.iter().skip(first).take_while(|message| message.arrived + delay <= now);
        let readable: Vec<&Message> = messages.collect();
        let position = Position { feed: FEED, next: (first + readable.len()) as u64 };
        let others = readable.into_iter().filter(|message| message.sender != exchange.sender);
        let delivery = |message: &Message| Delivery {
            age_ms: u64::try_from(now.saturating_sub(message.arrived).as_millis()).unwrap_or(u64::MAX),
            changes: message.changes.clone(),
        };
        Feed {
            format: CHANGES_FORMAT,
            position: Some(position),
            deliveries: others.map(delivery).collect(),
            since_epoch_ms: u64::try_from(now.as_millis()).unwrap_or(u64::MAX),
        }
    }
}
