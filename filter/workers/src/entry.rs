//! The entries of the workers' log.
//!
//! Every worker reads the entries of all workers, many times for each request. So entries are not decoded: a
//! log is a sequence of 64-bit words, and entries borrow from it. An entry is
//!
//! | words | meaning |
//! |---|---|
//! | 1 | its kind (8 bits), the worker that appended it (24), and the number of words that follow (32) |
//! | any | its content: the endpoint and the numbers of [`Change`], in their order |
//!
//! A worker's number that does not fit into 24 bits is a word of its own before the content, and zero in the
//! first word. No number of another proxy fits. A log never leaves the process, and all its readers are of
//! one version.

use core::fmt;
use core::time::Duration;

use endpoint_picker::pool::load::Load;
use endpoint_picker::state::StateChange;
use endpoint_picker::state::prefix::{CachedTokens, PredictionSource};
use endpoint_picker_engine::ledger::{Change, ChangeKind};

use crate::words::nanoseconds;

const STARTED: u8 = 1;
const ENDED: u8 = 2;
const MOVED: u8 = 3;
const LOADS: u8 = 4;
const FAILED: u8 = 5;
const RECOVERED: u8 = 6;
const STATE: u8 = 7;
const RESTARTED: u8 = 8;
const IN_FLIGHT: u8 = 9;
const PASSED: u8 = 10;
const SERVED: u8 = 11;
const CACHED: u8 = 12;

/// The bits of a worker's number in the first word of an entry.
const WORKER_BITS: u32 = 24;

/// An entry of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The worker that appended it.
    pub worker: u64,
    /// The content.
    pub content: Content<'a>,
}

/// The content of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content<'a> {
    /// A change of the ledger.
    Change(Change<&'a [u64]>),
    /// All load that the worker has in flight, which replaces its load in the ledger: keys of endpoints, each
    /// with requests and tokens.
    Loads(&'a [[u64; 3]]),
    /// This time has passed, for the deferred part of other proxies' loads.
    Passed(Duration),
}

/// An entry that this version cannot read: it was cut off, its kind is unknown, or its content does not fit
/// its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedEntry {
    kind: u8,
    words: usize,
}

impl fmt::Display for MalformedEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, words } = self;
        write!(f, "malformed entry of kind {kind} with {words} words of content")
    }
}

impl Entry<'_> {
    /// Appends the entry to a log.
    pub fn write(&self, log: &mut Vec<u8>) {
        match &self.content {
            Content::Change(change) => write_change(self.worker, change, log),
            Content::Loads(loads) => write_loads(self.worker, loads, log),
            Content::Passed(time) => write_passed(self.worker, *time, log),
        }
    }
}

/// Appends a change to a log.
pub(crate) fn write_change(worker: u64, change: &Change<impl AsRef<[u64]>>, log: &mut Vec<u8>) {
    let mut put = |kind: u8, numbers: &[u64], list: &[u64]| write(log, worker, kind, numbers, list);
    let (endpoint, kind) = match change {
        Change::State(StateChange { plugin, endpoint, at, words }) => {
            return put(STATE, &[*endpoint, *plugin, nanoseconds(*at)], words.as_ref());
        }
        Change::Endpoint { endpoint, kind } => (*endpoint, *kind),
    };
    match kind {
        ChangeKind::Started(Load { requests, tokens }) => put(STARTED, &[endpoint, requests, tokens], &[]),
        ChangeKind::Ended(Load { requests, tokens }) => put(ENDED, &[endpoint, requests, tokens], &[]),
        ChangeKind::Moved { to, load: Load { requests, tokens } } => {
            put(MOVED, &[endpoint, to, requests, tokens], &[]);
        }
        ChangeKind::InFlight(Load { requests, tokens }) => put(IN_FLIGHT, &[endpoint, requests, tokens], &[]),
        ChangeKind::Failed { at } => put(FAILED, &[endpoint, nanoseconds(at)], &[]),
        ChangeKind::Recovered { at } => put(RECOVERED, &[endpoint, nanoseconds(at)], &[]),
        ChangeKind::Served { first_byte, is_streamed } => {
            put(SERVED, &[endpoint, nanoseconds(first_byte), u64::from(is_streamed)], &[]);
        }
        ChangeKind::Cached(CachedTokens { source, predicted, actual, block }) => {
            let is_by_events = u64::from(source == PredictionSource::Events);
            put(CACHED, &[endpoint, is_by_events, predicted, actual, block], &[]);
        }
        ChangeKind::Restarted { since } => put(RESTARTED, &[endpoint, nanoseconds(since)], &[]),
    }
}

/// Appends everything that the worker has in flight to a log.
pub(crate) fn write_loads(worker: u64, loads: &[[u64; 3]], log: &mut Vec<u8>) {
    write(log, worker, LOADS, &[], loads.as_flattened());
}

/// Appends the passing of time to a log.
pub(crate) fn write_passed(worker: u64, time: Duration, log: &mut Vec<u8>) {
    write(log, worker, PASSED, &[nanoseconds(time)], &[]);
}

fn write(log: &mut Vec<u8>, worker: u64, kind: u8, numbers: &[u64], list: &[u64]) {
    // Zero means that the number is the next word.
    let fits = (1..1 << WORKER_BITS).contains(&worker);
    let (short, long): (u64, &[u64]) = if fits { (worker, &[]) } else { (0, &[worker]) };
    let length = long.len() + numbers.len() + list.len();
    // The length fits in 32 bits: 2^32 words are more than the memory of a wasm VM.
    let head = u64::from(kind) << 56 | short << 32 | length as u64;
    log.reserve(8 * (1 + length));
    for number in [&[head], long, numbers, list].into_iter().flatten() {
        log.extend_from_slice(&number.to_le_bytes());
    }
}

/// The entries of a log, in their order; see [`read`].
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    words: &'a [u64],
}

/// Reads a log. A malformed entry is an error in its place; the entries after it are read if its length is
/// known.
pub fn read(words: &[u64]) -> Entries<'_> {
    Entries { words }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, MalformedEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        let (&head, behind) = core::mem::take(&mut self.words).split_first()?;
        let (kind, length) = ((head >> 56) as u8, (head & 0xFFFF_FFFF) as usize);
        let Some((entry, behind)) = behind.split_at_checked(length) else {
            return Some(Err(MalformedEntry { kind, words: behind.len() }));
        };
        // The length does not depend on the content, so a malformed entry does not hide the entries after it.
        self.words = behind;
        let (worker, content) = match (head >> 32 & ((1 << WORKER_BITS) - 1), entry) {
            (0, [worker, content @ ..]) => (*worker, content),
            (0, []) => return Some(Err(MalformedEntry { kind, words: 0 })),
            (worker, content) => (worker, content),
        };
        let content = read_content(kind, content).ok_or(MalformedEntry { kind, words: content.len() });
        Some(content.map(|content| Entry { worker, content }))
    }
}

fn read_content(kind: u8, words: &[u64]) -> Option<Content<'_>> {
    let load = |requests, tokens| Load { requests, tokens };
    let (endpoint, kind) = match (kind, words) {
        (LOADS, loads) if loads.len() % 3 == 0 => return Some(Content::Loads(loads.as_chunks().0)),
        (PASSED, &[time]) => return Some(Content::Passed(Duration::from_nanos(time))),
        (STATE, &[endpoint, plugin, at, ref words @ ..]) => {
            let change = StateChange { plugin, endpoint, at: Duration::from_nanos(at), words };
            return Some(Content::Change(Change::State(change)));
        }
        (STARTED, &[endpoint, requests, tokens]) => (endpoint, ChangeKind::Started(load(requests, tokens))),
        (ENDED, &[endpoint, requests, tokens]) => (endpoint, ChangeKind::Ended(load(requests, tokens))),
        (MOVED, &[endpoint, to, requests, tokens]) => {
            (endpoint, ChangeKind::Moved { to, load: load(requests, tokens) })
        }
        (IN_FLIGHT, &[endpoint, requests, tokens]) => {
            (endpoint, ChangeKind::InFlight(load(requests, tokens)))
        }
        (FAILED, &[endpoint, at]) => (endpoint, ChangeKind::Failed { at: Duration::from_nanos(at) }),
        (RECOVERED, &[endpoint, at]) => (endpoint, ChangeKind::Recovered { at: Duration::from_nanos(at) }),
        (SERVED, &[endpoint, first_byte, is_streamed @ 0..=1]) => {
            let first_byte = Duration::from_nanos(first_byte);
            (endpoint, ChangeKind::Served { first_byte, is_streamed: is_streamed == 1 })
        }
        (CACHED, &[endpoint, is_by_events @ 0..=1, predicted, actual, block]) => {
            let source = if is_by_events == 1 { PredictionSource::Events } else { PredictionSource::Prompts };
            (endpoint, ChangeKind::Cached(CachedTokens { source, predicted, actual, block }))
        }
        (RESTARTED, &[endpoint, since]) => {
            (endpoint, ChangeKind::Restarted { since: Duration::from_nanos(since) })
        }
        _ => return None,
    };
    Some(Content::Change(Change::Endpoint { endpoint, kind }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::words;

    const AT: Duration = Duration::from_nanos(1_795_000_000_123_456_789);
    const LOAD: Load = Load { requests: 1, tokens: 512 };

    fn all() -> Vec<Entry<'static>> {
        let change = |worker, change| Entry { worker, content: Content::Change(change) };
        let event = |kind| change(u64::MAX, Change::Endpoint { endpoint: 7, kind });
        let state = |worker, words| {
            change(worker, Change::State(StateChange { plugin: 3, endpoint: 7, at: AT, words }))
        };
        let loads = |loads| Entry { worker: 6, content: Content::Loads(loads) };
        let cached =
            |source| ChangeKind::Cached(CachedTokens { source, predicted: 640, actual: u64::MAX, block: 64 });
        vec![
            event(ChangeKind::Started(LOAD)),
            event(ChangeKind::Ended(LOAD)),
            event(ChangeKind::Moved { to: 8, load: LOAD }),
            event(ChangeKind::InFlight(LOAD)),
            loads(&[]),
            loads(&[[1, 2, 3], [4, 5, u64::MAX]]),
            Entry { worker: 6, content: Content::Passed(Duration::from_millis(20)) },
            event(ChangeKind::Failed { at: AT }),
            event(ChangeKind::Recovered { at: Duration::ZERO }),
            event(ChangeKind::Served { first_byte: Duration::from_nanos(1), is_streamed: true }),
            event(ChangeKind::Served { first_byte: Duration::from_secs(3), is_streamed: false }),
            event(cached(PredictionSource::Events)),
            event(cached(PredictionSource::Prompts)),
            event(ChangeKind::Restarted { since: AT }),
            state(1, &[]),
            state((1 << WORKER_BITS) - 1, &[u64::MAX, 0, 5]),
            state(1 << WORKER_BITS, &[1]),
            state(0, &[1]),
        ]
    }

    fn written(entries: &[Entry<'_>]) -> Vec<u64> {
        let mut log = Vec::new();
        for entry in entries {
            entry.write(&mut log);
        }
        words(&log).collect()
    }

    #[test]
    fn entries_are_read_as_they_were_written() {
        let words = written(&all());
        let entries: Result<Vec<_>, _> = read(&words).collect();
        assert_eq!(entries, Ok(all()));
    }

    #[test]
    fn a_malformed_entry_hides_no_other() {
        let [first, .., last] = &all()[..] else { panic!("two at least") };
        let mut words = written(&[*first]);
        // Unknown kinds, and kinds with the content of others.
        let malformed = [
            (0, 1),
            (PASSED, 0),
            (SERVED, 1),
            (12, 0),
            (u8::MAX, 3),
            (STARTED, 4),
            (LOADS, 2),
            (STATE, 2),
            (RESTARTED, 0_usize),
        ];
        for (kind, length) in malformed {
            words.push(u64::from(kind) << 56 | 1 << 32 | length as u64);
            words.extend(vec![3; length]);
        }
        words.extend(written(&[*last]));
        let entries: Vec<_> = read(&words).collect();
        let refused = malformed.map(|(kind, length)| Err(MalformedEntry { kind, words: length }));
        assert_eq!(entries, [&[Ok(*first)][..], &refused, &[Ok(*last)]].concat());
        let message = MalformedEntry { kind: STARTED, words: 4 }.to_string();
        assert_eq!(message, "malformed entry of kind 1 with 4 words of content");
        let without_worker = [u64::from(STATE) << 56];
        assert!(read(&without_worker).eq([Err(MalformedEntry { kind: STATE, words: 0 })]));
    }

    #[test]
    fn an_entry_that_was_cut_off_ends_the_log() {
        let whole = written(&all());
        for length in 0..whole.len() {
            let entries: Vec<_> = read(&whole[..length]).collect();
            let good = entries.iter().take_while(|entry| entry.is_ok()).count();
            assert_eq!(entries[..good], all().into_iter().map(Ok).collect::<Vec<_>>()[..good]);
            assert!(entries.len() <= good + 1, "{entries:?}");
        }
        let longest = [u64::MAX, 1, 2];
        let entries: Vec<_> = read(&longest).collect();
        assert_eq!(entries, [Err(MalformedEntry { kind: u8::MAX, words: 2 })]);
    }
}
