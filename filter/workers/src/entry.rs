//! The entries of the workers' log.
//!
//! Every worker reads the entries of all workers, many times for each request. So entries are not decoded: a log is a sequence of
//! 64-bit words, and entries borrow from it. An entry is
//!
//! | words | meaning |
//! |---|---|
//! | 1 | its kind (upper half) and the number of words of its content (lower half) |
//! | 1 | the worker that appended it |
//! | 1 | the key of the endpoint that it is about |
//! | any | its content: the numbers of [`ChangeKind`], in their order |
//!
//! A log never leaves the process, and all its readers are of one version.

use core::fmt;
use core::time::Duration;

use endpoint_picker::pool::load::Load;
use endpoint_picker_engine::ledger::{Change, ChangeKind};

use crate::words::nanoseconds;

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
const IN_FLIGHT: u32 = 11;
const PASSED: u32 = 12;
const SERVED: u32 = 13;

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
    /// Everything that the worker has in flight, which replaces what the ledger has of it: keys of endpoints, each with requests
    /// and tokens.
    Loads(&'a [[u64; 3]]),
    /// This time has passed, for what is deferred of other proxies' loads.
    Passed(Duration),
}

/// An entry that this version cannot read: it was cut off, its kind is unknown, or its content does not fit its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedEntry {
    kind: u32,
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
    let mut put =
        |kind: u32, numbers: &[u64], list: &[u64]| write(log, [worker, change.endpoint], kind, numbers, list);
    match &change.kind {
        ChangeKind::Started(Load { requests, tokens }) => put(STARTED, &[*requests, *tokens], &[]),
        ChangeKind::Ended(Load { requests, tokens }) => put(ENDED, &[*requests, *tokens], &[]),
        ChangeKind::Moved { to, load: Load { requests, tokens } } => {
            put(MOVED, &[*to, *requests, *tokens], &[]);
        }
        ChangeKind::InFlight(Load { requests, tokens }) => put(IN_FLIGHT, &[*requests, *tokens], &[]),
        ChangeKind::Failed { at } => put(FAILED, &[nanoseconds(*at)], &[]),
        ChangeKind::Answered { at } => put(ANSWERED, &[nanoseconds(*at)], &[]),
        ChangeKind::Served { first_byte, is_streamed } => {
            put(SERVED, &[nanoseconds(*first_byte), u64::from(*is_streamed)], &[]);
        }
        ChangeKind::Restarted { since } => put(RESTARTED, &[nanoseconds(*since)], &[]),
        ChangeKind::SentPrompt { plugin, capacity, hashes } => {
            put(SENT_PROMPT, &[*plugin, *capacity], hashes.as_ref());
        }
        ChangeKind::SentCold { plugin, at } => put(SENT_COLD, &[*plugin, nanoseconds(*at)], &[]),
        ChangeKind::BoundSession { plugin, session, at } => {
            put(BOUND_SESSION, &[*plugin, *session, nanoseconds(*at)], &[]);
        }
    }
}

/// Appends everything that the worker has in flight to a log.
pub(crate) fn write_loads(worker: u64, loads: &[[u64; 3]], log: &mut Vec<u8>) {
    write(log, [worker, 0], LOADS, &[], loads.as_flattened());
}

/// Appends the passing of time to a log.
pub(crate) fn write_passed(worker: u64, time: Duration, log: &mut Vec<u8>) {
    write(log, [worker, 0], PASSED, &[nanoseconds(time)], &[]);
}

fn write(log: &mut Vec<u8>, [worker, endpoint]: [u64; 2], kind: u32, numbers: &[u64], list: &[u64]) {
    let head = (u64::from(kind) << 32) | (numbers.len() + list.len()) as u64;
    log.reserve(8 * (3 + numbers.len() + list.len()));
    for number in [&[head, worker, endpoint], numbers, list].into_iter().flatten() {
        log.extend_from_slice(&number.to_le_bytes());
    }
}

/// The entries of a log, in their order; see [`read`].
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    words: &'a [u64],
}

/// Reads a log. A malformed entry is an error in its place; those behind it are read as long as its end can be found.
pub fn read(words: &[u64]) -> Entries<'_> {
    Entries { words }
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Entry<'a>, MalformedEntry>;

    fn next(&mut self) -> Option<Self::Item> {
        let (&head, behind) = core::mem::take(&mut self.words).split_first()?;
        let (kind, length) = ((head >> 32) as u32, (head & 0xFFFF_FFFF) as usize);
        let Some((entry, behind)) = behind.split_at_checked(length.saturating_add(2)) else {
            return Some(Err(MalformedEntry { kind, words: behind.len() }));
        };
        self.words = behind;
        let [worker, endpoint, content @ ..] = entry else { return None };
        let change = match (kind, content) {
            (LOADS, loads) if loads.len() % 3 == 0 => {
                return Some(Ok(Entry { worker: *worker, content: Content::Loads(loads.as_chunks().0) }));
            }
            (PASSED, &[time]) => {
                let content = Content::Passed(Duration::from_nanos(time));
                return Some(Ok(Entry { worker: *worker, content }));
            }
            (STARTED, &[requests, tokens]) => ChangeKind::Started(Load { requests, tokens }),
            (ENDED, &[requests, tokens]) => ChangeKind::Ended(Load { requests, tokens }),
            (MOVED, &[to, requests, tokens]) => ChangeKind::Moved { to, load: Load { requests, tokens } },
            (IN_FLIGHT, &[requests, tokens]) => ChangeKind::InFlight(Load { requests, tokens }),
            (FAILED, &[at]) => ChangeKind::Failed { at: Duration::from_nanos(at) },
            (ANSWERED, &[at]) => ChangeKind::Answered { at: Duration::from_nanos(at) },
            (SERVED, &[first_byte, is_streamed @ 0..=1]) => {
                let first_byte = Duration::from_nanos(first_byte);
                ChangeKind::Served { first_byte, is_streamed: is_streamed == 1 }
            }
            (RESTARTED, &[since]) => ChangeKind::Restarted { since: Duration::from_nanos(since) },
            (SENT_PROMPT, &[plugin, capacity, ref hashes @ ..]) => {
                ChangeKind::SentPrompt { plugin, capacity, hashes }
            }
            (SENT_COLD, &[plugin, at]) => ChangeKind::SentCold { plugin, at: Duration::from_nanos(at) },
            (BOUND_SESSION, &[plugin, session, at]) => {
                ChangeKind::BoundSession { plugin, session, at: Duration::from_nanos(at) }
            }
            _ => return Some(Err(MalformedEntry { kind, words: content.len() })),
        };
        let change = Change { endpoint: *endpoint, kind: change };
        Some(Ok(Entry { worker: *worker, content: Content::Change(change) }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::words::words;

    const AT: Duration = Duration::from_nanos(1_795_000_000_123_456_789);
    const LOAD: Load = Load { requests: 1, tokens: 512 };

    fn all() -> Vec<Entry<'static>> {
        let change =
            |kind| Entry { worker: u64::MAX, content: Content::Change(Change { endpoint: 7, kind }) };
        let loads = |loads| Entry { worker: 6, content: Content::Loads(loads) };
        let (plugin, to, session) = (3, 8, 9);
        vec![
            change(ChangeKind::Started(LOAD)),
            change(ChangeKind::Ended(LOAD)),
            change(ChangeKind::Moved { to, load: LOAD }),
            change(ChangeKind::InFlight(LOAD)),
            loads(&[]),
            loads(&[[1, 2, 3], [4, 5, u64::MAX]]),
            Entry { worker: 6, content: Content::Passed(Duration::from_millis(20)) },
            change(ChangeKind::Failed { at: AT }),
            change(ChangeKind::Answered { at: Duration::ZERO }),
            change(ChangeKind::Served { first_byte: Duration::from_nanos(1), is_streamed: true }),
            change(ChangeKind::Served { first_byte: Duration::from_secs(3), is_streamed: false }),
            change(ChangeKind::Restarted { since: AT }),
            change(ChangeKind::SentPrompt { plugin, capacity: 31_250, hashes: &[] }),
            change(ChangeKind::SentPrompt { plugin, capacity: 1, hashes: &[u64::MAX, 0, 5] }),
            change(ChangeKind::SentCold { plugin, at: AT }),
            change(ChangeKind::BoundSession { plugin, session, at: AT }),
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
            (14, 0),
            (u32::MAX, 3),
            (STARTED, 3),
            (LOADS, 2),
            (SENT_PROMPT, 1),
            (SENT_COLD, 0_usize),
        ];
        for (kind, length) in malformed {
            words.extend([u64::from(kind) << 32 | length as u64, 1, 2]);
            words.extend(vec![3; length]);
        }
        words.extend(written(&[*last]));
        let entries: Vec<_> = read(&words).collect();
        let refused = malformed.map(|(kind, length)| Err(MalformedEntry { kind, words: length }));
        assert_eq!(entries, [&[Ok(*first)][..], &refused, &[Ok(*last)]].concat());
        let message = MalformedEntry { kind: STARTED, words: 3 }.to_string();
        assert_eq!(message, "malformed entry of kind 1 with 3 words of content");
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
        assert_eq!(entries, [Err(MalformedEntry { kind: u32::MAX, words: 2 })]);
    }
}
