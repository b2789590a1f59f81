//! The log in which the VMs of one Envoy tell each other what they did.
//!
//! Every VM reads what all VMs say, so this is read many times for each request. It therefore needs no decoding: a log is a
//! sequence of 64-bit words, in bytes little-endian, and entries are read where they stand. An entry is
//!
//! | words | what |
//! |---|---|
//! | 1 | its kind (upper half) and the number of words of its content (lower half) |
//! | 1 | the VM that says so |
//! | 1 | the key of the endpoint it is about |
//! | any | its content: the numbers of [`What`], in their order |
//!
//! Indices mean nothing to a VM with another topology, so entries name endpoints and plugins by their keys. A log never leaves
//! the process, and all its readers are of one version of the filter.

use core::fmt;
use core::time::Duration;

use endpoint_picker::cycle::Load;
use endpoint_picker::plugin_state::{Change, Event};
use endpoint_picker::pool::Pool;

/// What one VM says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The VM that says so.
    pub vm: u64,
    /// The key of the endpoint it is about.
    pub endpoint: u64,
    /// What happened there.
    pub what: What<'a>,
}

/// What happened at an endpoint. Times are those since the epoch, in nanoseconds until the year 2554.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What<'a> {
    /// A request, or a part of it, is in flight there.
    Started(Load),
    /// ... and over.
    Ended(Load),
    /// A request that was in flight there is so at another endpoint instead.
    Moved {
        /// The key of the other endpoint.
        to: u64,
        /// What was in flight.
        load: Load,
    },
    /// Everything the VM has in flight anywhere, in place of what was said before: keys of endpoints, each with requests and
    /// tokens. The entry's endpoint means nothing.
    Loads(&'a [[u64; 3]]),
    /// It refused a connection, broke one off or answered with an error before the answer's first byte.
    Failed {
        /// When.
        at: Duration,
    },
    /// It answered a request, after it had failed others.
    Answered {
        /// When.
        at: Duration,
    },
    /// It has restarted, and its caches are empty.
    Restarted {
        /// Since when it has the caches it has now.
        since: Duration,
    },
    /// It was sent a list of a prompt's tokens.
    SentPrompt {
        /// The key of the plugin that remembers it.
        plugin: u64,
        /// Blocks remembered for the endpoint.
        capacity: u64,
        /// The hashes of the list's blocks.
        chain: &'a [u64],
    },
    /// It was sent a request that nothing was cached for.
    SentCold {
        /// The key of the plugin that remembers it.
        plugin: u64,
    },
    /// It serves a session from now on.
    BoundSession {
        /// The key of the plugin that remembers it.
        plugin: u64,
        /// The hash of the session's name.
        session: u64,
        /// When.
        at: Duration,
    },
}

/// An entry that is not one of this version's: it was cut, or has other content than its kind has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    kind: u32,
    words: usize,
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, words } = self;
        write!(f, "an entry of kind {kind} with {words} words of content, which there is not")
    }
}

const STARTED: u32 = 1;
const ENDED: u32 = 2;
const MOVED: u32 = 3;
const LOADS: u32 = 4;
const FAILED: u32 = 5;
const ANSWERED: u32 = 6;
const SENT_PROMPT: u32 = 7;
const SENT_COLD: u32 = 8;
const BOUND_SESSION: u32 = 9;
const RESTARTED: u32 = 10;

/// The words that bytes hold; what is left over at their end is none.
pub fn words(bytes: &[u8]) -> impl ExactSizeIterator<Item = u64> {
    bytes.as_chunks().0.iter().map(|word| u64::from_le_bytes(*word))
}

impl<'a> Entry<'a> {
    /// What `vm` says of something that a plugin is to remember; `None` if the pool has no such endpoint.
    pub fn remembered(vm: u64, event: &'a Event, pool: &Pool) -> Option<Self> {
        let plugin = event.plugin;
        let (endpoint, what) = match event.change {
            Change::SentPrompt { endpoint, capacity, ref chain } => {
                (endpoint, What::SentPrompt { plugin, capacity: capacity as u64, chain })
            }
            Change::SentCold { endpoint } => (endpoint, What::SentCold { plugin }),
            Change::BoundSession { session, endpoint, at } => {
                (endpoint, What::BoundSession { plugin, session, at })
            }
        };
        Some(Self { vm, endpoint: pool.endpoints().get(endpoint)?.key(), what })
    }

    /// What a plugin is to remember; `None` if the pool has no such endpoint, or the entry says something else.
    pub fn event(&self, pool: &Pool) -> Option<Event<&'a [u64]>> {
        let endpoint = || pool.index_of(self.endpoint);
        let (plugin, change) = match self.what {
            What::SentPrompt { plugin, capacity, chain } => {
                let capacity = usize::try_from(capacity).unwrap_or(usize::MAX);
                (plugin, Change::SentPrompt { endpoint: endpoint()?, capacity, chain })
            }
            What::SentCold { plugin } => (plugin, Change::SentCold { endpoint: endpoint()? }),
            What::BoundSession { plugin, session, at } => {
                (plugin, Change::BoundSession { session, endpoint: endpoint()?, at })
            }
            _ => return None,
        };
        Some(Event { plugin, change })
    }

    /// Adds the entry to a log.
    pub fn write(&self, log: &mut Vec<u8>) {
        let mut put = |kind: u32, numbers: &[u64], list: &[u64]| {
            let head = (u64::from(kind) << 32) | (numbers.len() + list.len()) as u64;
            log.reserve(8 * (3 + numbers.len() + list.len()));
            for number in [&[head, self.vm, self.endpoint], numbers, list].into_iter().flatten() {
                log.extend_from_slice(&number.to_le_bytes());
            }
        };
        match self.what {
            What::Started(Load { requests, tokens }) => put(STARTED, &[requests, tokens], &[]),
            What::Ended(Load { requests, tokens }) => put(ENDED, &[requests, tokens], &[]),
            What::Moved { to, load: Load { requests, tokens } } => put(MOVED, &[to, requests, tokens], &[]),
            What::Loads(loads) => put(LOADS, &[], loads.as_flattened()),
            What::Failed { at } => put(FAILED, &[nanoseconds(at)], &[]),
            What::Answered { at } => put(ANSWERED, &[nanoseconds(at)], &[]),
            What::Restarted { since } => put(RESTARTED, &[nanoseconds(since)], &[]),
            What::SentPrompt { plugin, capacity, chain } => put(SENT_PROMPT, &[plugin, capacity], chain),
            What::SentCold { plugin } => put(SENT_COLD, &[plugin], &[]),
            What::BoundSession { plugin, session, at } => {
                put(BOUND_SESSION, &[plugin, session, nanoseconds(at)], &[]);
            }
        }
    }
}

/// The entries of a log, in their order; see [`read`].
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    words: &'a [u64],
}

/// Reads a log. One that is malformed is an error in its place; those behind it are read on, as long as its end is known.
pub fn read(words: &[u64]) -> Entries<'_> {
    Entries { words }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        let (&head, behind) = core::mem::take(&mut self.words).split_first()?;
        let (kind, length) = ((head >> 32) as u32, (head & 0xFFFF_FFFF) as usize);
        let Some((entry, behind)) = behind.split_at_checked(length.saturating_add(2)) else {
            return Some(Err(Malformed { kind, words: behind.len() }));
        };
        self.words = behind;
        let [vm, endpoint, content @ ..] = entry else { return None };
        let what = match (kind, content) {
            (STARTED, &[requests, tokens]) => What::Started(Load { requests, tokens }),
            (ENDED, &[requests, tokens]) => What::Ended(Load { requests, tokens }),
            (MOVED, &[to, requests, tokens]) => What::Moved { to, load: Load { requests, tokens } },
            (LOADS, loads) if loads.len() % 3 == 0 => What::Loads(loads.as_chunks().0),
            (FAILED, &[at]) => What::Failed { at: Duration::from_nanos(at) },
            (ANSWERED, &[at]) => What::Answered { at: Duration::from_nanos(at) },
            (RESTARTED, &[since]) => What::Restarted { since: Duration::from_nanos(since) },
            (SENT_PROMPT, &[plugin, capacity, ref chain @ ..]) => {
                What::SentPrompt { plugin, capacity, chain }
            }
            (SENT_COLD, &[plugin]) => What::SentCold { plugin },
            (BOUND_SESSION, &[plugin, session, at]) => {
                What::BoundSession { plugin, session, at: Duration::from_nanos(at) }
            }
            _ => return Some(Err(Malformed { kind, words: content.len() })),
        };
        Some(Ok(Entry { vm: *vm, endpoint: *endpoint, what }))
    }
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
