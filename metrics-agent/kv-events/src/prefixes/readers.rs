//! The messages for proxies that follow the prefixes of one pool.

use core::time::Duration;
use std::collections::{HashMap, HashSet};
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;

use endpoint_picker_wire::prefixes::{Blocks, CacheState, CachedPrefixes, Model};
use endpoint_picker_wire::{Bytes, Message, PREFIXES_FORMAT};
use parking_lot::Mutex;

use super::Prefixes;

/// Time for which the messages of everything serve other readers too. The log has the changes since.
const MAX_AGE: Duration = Duration::from_secs(10);

/// The bit of versions that name the next message of everything. The low bits are its number, and those
/// between the number of the whole.
const PART: u64 = 1 << 63;
const PART_BITS: u32 = 16;

/// The place up to which a reader has read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReaderPosition {
    /// The log of its last message.
    pub log: u64,
    /// The version of its last message.
    pub version: u64,
}

/// The result of a reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PrefixesRead {
    /// An encoded message.
    Message(Vec<u8>),
    /// Nothing of its pool has changed up to this version.
    Nothing(u64),
}

/// A reading whose message is not encoded. Encoding takes much of the time of a reading, and needs no lock of
/// the prefixes.
#[derive(Debug)]
pub enum UnencodedReading {
    /// A message, and further pairs of it.
    Message(Box<CachedPrefixes>, Option<Arc<EncodedPairs>>),
    /// As [`PrefixesRead::Nothing`].
    Nothing(u64),
}

impl UnencodedReading {
    /// Encodes the message.
    pub fn encode(self) -> PrefixesRead {
        match self {
            Self::Message(message, part) => {
                let mut bytes = message.encode_to_vec();
                if let Some(part) = part {
                    // A message is the fields of both.
                    bytes.extend_from_slice(&part.bytes());
                }
                PrefixesRead::Message(bytes)
            }
            Self::Nothing(version) => PrefixesRead::Nothing(version),
        }
    }
}

/// The pairs of a message of everything, which its first reader encodes.
#[derive(Debug)]
pub struct EncodedPairs(Mutex<Pairs>);

#[derive(Debug)]
enum Pairs {
    Unencoded(Box<CachedPrefixes>),
    Encoded(Bytes),
}

impl EncodedPairs {
    fn new(endpoints: &[u64], blocks: Blocks) -> Self {
        let message =
            CachedPrefixes { endpoints: endpoints.to_vec(), stored: some(blocks), ..Default::default() };
        Self(Mutex::new(Pairs::Unencoded(Box::new(message))))
    }

    fn bytes(&self) -> Bytes {
        let mut pairs = self.0.lock();
        let bytes = match &*pairs {
            Pairs::Unencoded(message) => message.encode_to_vec().into(),
            Pairs::Encoded(bytes) => bytes.clone(),
        };
        *pairs = Pairs::Encoded(bytes.clone());
        bytes
    }
}

/// The endpoints of a pool whose events are followed, now.
#[derive(Clone, Debug, Default)]
pub struct FollowedEndpoints {
    /// The address of each, by its key.
    pub addresses: Vec<(u64, SocketAddr)>,
    /// The state of each.
    pub caches: Vec<CacheState>,
    /// The models that they serve.
    pub models: Vec<Model>,
}

/// The readers of one pool.
#[derive(Debug)]
pub struct PoolReaders {
    log: u64,
    /// The endpoints at the last reading, and the version then.
    endpoints: HashSet<u64>,
    version: u64,
    models: Vec<Model>,
    models_version: u64,
    whole: Option<Whole>,
    next_whole: u64,
}

/// Everything at some time.
#[derive(Debug)]
struct Whole {
    number: u64,
    made: Duration,
    version: u64,
    /// The pairs of each message.
    parts: Vec<Arc<EncodedPairs>>,
}

impl Default for PoolReaders {
    /// No reader yet.
    fn default() -> Self {
        Self {
            log: random(),
            endpoints: HashSet::new(),
            version: 0,
            models: Vec::new(),
            models_version: 0,
            whole: None,
            next_whole: 0,
        }
    }
}

impl PoolReaders {
    /// Reads for a reader at this position. `is_last`: if nothing has changed, but the version, it gets a
    /// message with the version.
    pub fn read(
        &mut self,
        prefixes: &mut Prefixes,
        followed: FollowedEndpoints,
        reader: Option<ReaderPosition>,
        is_last: bool,
        now: Duration,
    ) -> UnencodedReading {
        self.update(prefixes, &followed, now);
        let FollowedEndpoints { addresses, caches, .. } = followed;
        let by_address = (0..).zip(&addresses).map(|(at, (_, address))| (*address, at)).collect();
        let keys: Vec<_> = addresses.iter().map(|(key, _)| *key).collect();
        let reader = reader.filter(|reader| reader.log == self.log).map(|reader| reader.version);
        let part = reader.and_then(|version| self.part(version));
        let delta = match reader {
            _ if part.is_some() => None,
            Some(version) if version == prefixes.version() => return UnencodedReading::Nothing(version),
            Some(version) => prefixes.delta(version, &by_address),
            None => None,
        };
        let mut message =
            CachedPrefixes { format: PREFIXES_FORMAT, log: self.log, caches, ..CachedPrefixes::default() };
        if let Some((version, delta)) = reader.zip(delta) {
            message.models_changed = version < self.models_version;
            let is_empty = delta.is_empty() && !message.models_changed;
            if is_empty && !is_last {
                return UnencodedReading::Nothing(delta.version);
            }
            message.version = delta.version;
            message.more = delta.version < prefixes.version();
            message.endpoints = keys;
            message.stored = some(delta.stored);
            message.removed = some(delta.removed);
            return self.message(message, None);
        }
        let part = part.unwrap_or(0);
        let whole = match self.whole.take() {
            Some(whole) if part > 0 => whole,
            Some(whole)
                if now.saturating_sub(whole.made) <= MAX_AGE && prefixes.has_changes_since(whole.version) =>
            {
                whole
            }
            _ => self.make_whole(prefixes, &by_address, &keys, now),
        };
        message.whole = part == 0;
        message.models_changed = part == 0;
        message.more = part + 1 < whole.parts.len();
        message.version =
            if message.more { PART | whole.number << PART_BITS | (part as u64 + 1) } else { whole.version };
        let pairs = whole.parts.get(part).cloned();
        self.whole = Some(whole);
        self.message(message, pairs)
    }

    /// Applies changes of endpoints and models, and drops an old message of everything.
    fn update(&mut self, prefixes: &mut Prefixes, followed: &FollowedEndpoints, now: Duration) {
        let is_gap = |(key, address): &(u64, SocketAddr)| {
            !self.endpoints.contains(key) && !prefixes.is_new_since(*address, self.version)
        };
        if followed.addresses.iter().any(is_gap) {
            // The log lacks the prefixes that the endpoint's server had before the endpoint was added.
            self.log = random();
            self.whole = None;
        }
        self.endpoints = followed.addresses.iter().map(|(key, _)| *key).collect();
        if self.models != followed.models {
            self.models.clone_from(&followed.models);
            prefixes.advance();
            self.models_version = prefixes.version();
        }
        self.version = prefixes.version();
        if self.whole.as_ref().is_some_and(|whole| now.saturating_sub(whole.made) > 3 * MAX_AGE) {
            self.whole = None;
        }
    }

    /// The number of the message of everything that a version names, if there still is one.
    fn part(&self, version: u64) -> Option<usize> {
        let whole = self.whole.as_ref().filter(|_| version & PART != 0)?;
        let part = usize::try_from(version & ((1 << PART_BITS) - 1)).ok()?;
        let is_own = (version & !PART) >> PART_BITS == whole.number;
        (is_own && part < whole.parts.len()).then_some(part)
    }

    /// Collects everything.
    fn make_whole(
        &mut self,
        prefixes: &Prefixes,
        by_address: &HashMap<SocketAddr, u32>,
        keys: &[u64],
        now: Duration,
    ) -> Whole {
        let part = |blocks| Arc::new(EncodedPairs::new(keys, blocks));
        let parts = prefixes.whole(by_address).into_iter().map(part).collect();
        self.next_whole += 1;
        Whole { number: self.next_whole, made: now, version: prefixes.version(), parts }
    }

    /// A message with the models, if they have changed, and with further pairs.
    fn message(&self, mut message: CachedPrefixes, pairs: Option<Arc<EncodedPairs>>) -> UnencodedReading {
        if message.models_changed {
            message.models.clone_from(&self.models);
        }
        UnencodedReading::Message(Box::new(message), pairs)
    }
}

fn some(blocks: Blocks) -> Option<Blocks> {
    (!blocks.keys.is_empty()).then_some(blocks)
}

fn random() -> u64 {
    // A number of its own for each state.
    RandomState::new().hash_one(0)
}
