//! This proxy as a sender of changes to other proxies: the state that a worker that sends passes on to the
//! next.
//!
//! The value of `…/sender` has the proxy's number as a sender, the number of workers that have sent so far
//! (its *epoch*), and two words for each feed: the feed and the next position in it.

use endpoint_picker_engine::sharing::{Identity, Positions};

use crate::shared_data::{SharedData, Versioned, create, key};
use crate::words::{bytes, words};

/// A worker's turn at sending the proxy's changes, and reading those of others.
#[derive(Debug)]
pub struct SharedSender {
    key: String,
    identity: Identity,
    /// As they were stored last.
    positions: Positions,
}

impl SharedSender {
    /// Takes the turn over. `seed` becomes the proxy's number if it has none yet.
    ///
    /// The turn of the worker before ends with its lease. If it still sends a message, that has an older
    /// epoch.
    pub fn take_over<S: SharedData>(data: &S, pool: &str, seed: u64) -> Result<Self, S::Error> {
        let key = key(pool, "sender");
        create(data, &key, &[])?;
        loop {
            let Versioned { bytes: value, version } = data.get(&key)?;
            let (before, positions) = decode(&value);
            // All epochs have one number, so that other proxies replace the loads of the worker before.
            let sender = before.map_or(seed, |before| before.sender);
            let identity = Identity { sender, epoch: before.map_or(1, |before| before.epoch + 1) };
            if data.compare_and_swap(&key, &encode(identity, &positions), version)? {
                return Ok(Self { key, identity, positions });
            }
        }
    }

    /// The proxy as a sender, while this worker sends.
    pub fn identity(&self) -> Identity {
        self.identity
    }

    /// How far the feeds were read.
    pub fn positions(&self) -> &Positions {
        &self.positions
    }

    /// Stores how far the feeds were read. Positions that are stored already cost nothing. After another
    /// worker has taken over, the call has no effect.
    pub fn store<S: SharedData>(&mut self, data: &S, positions: &Positions) -> Result<(), S::Error> {
        if *positions == self.positions {
            return Ok(());
        }
        let Versioned { bytes: value, version } = data.get(&self.key)?;
        if decode(&value).0 == Some(self.identity) {
            // If the swap fails, another worker has taken over.
            data.compare_and_swap(&self.key, &encode(self.identity, positions), version)?;
        }
        // Also when nothing was stored: then another worker sends, and these positions no longer count.
        self.positions = positions.clone();
        Ok(())
    }
}

fn decode(value: &[u8]) -> (Option<Identity>, Positions) {
    let words: Vec<u64> = words(value).collect();
    let [sender, epoch, positions @ ..] = words.as_slice() else { return (None, Positions::default()) };
    (Some(Identity { sender: *sender, epoch: *epoch }), Positions::from_numbers(positions.as_chunks().0))
}

fn encode(Identity { sender, epoch }: Identity, positions: &Positions) -> Vec<u8> {
    bytes([sender, epoch].into_iter().chain(positions.numbers().flatten()))
}
