//! The log of all workers' changes.
//!
//! Every worker applies the entries of all workers, its own among them, in the same order. The log is kept in
//! chunks: entries are appended to the *tail* by compare-and-swap, and when it is full it moves to a key of
//! its own.
//!
//! | key | value |
//! |---|---|
//! | `…/log` | the number of the tail (a word), then its [entries](crate::entry) |
//! | `…/log/{n}` | the same of a full chunk; n is its number modulo [`CHUNKS`] |
//!
//! A worker that starts, or was away, reads the chunks that are left; no worker waits for it.
//!
//! A swap does not return the version that it makes. Versions rise by one with every write of any key, so a
//! worker expects the next number. If that is wrong, its next swap fails and it reads the tail: any later
//! write has a higher number than its own, so a version that is too low is never another worker's.

use crate::entry::{self, Entry};
use crate::shared_data::{SharedData, Versioned, create, key};
use crate::words::{bytes, first_word, words};

/// Bytes at which a chunk is full. A request copies up to this much twice to the proxy, and with other busy
/// workers twice back.
const CHUNK: usize = 4 * 1024;

/// Full chunks that are kept: half a megabyte, the last 60 000 blocks of prompts.
const CHUNKS: u64 = 128;

/// The log is quiet when this many calls in a row have found no new entries: a decision that has to be made
/// again costs as much as several reads that find nothing.
const QUIET: u8 = 8;

/// Bytes of a chunk's number.
const HEADER: usize = 8;

/// One worker's place in the log, and its entries that are not appended yet.
#[derive(Debug)]
pub(crate) struct SharedLog {
    key: String,
    /// The number of the chunk to read next, and how many bytes of its entries were read.
    chunk: u64,
    read: usize,
    /// The tail as it was read or appended to last, with the version that it is expected to have.
    tail: Vec<u8>,
    version: Option<u32>,
    /// Calls in a row that found no new entries of other workers.
    calls_without_news: u8,
    pending: Vec<u8>,
    /// Buffer for the words of entries while they are applied.
    words: Vec<u64>,
    has_missed: bool,
}

impl SharedLog {
    /// A place at the first entry that is left.
    pub(crate) fn new<S: SharedData>(data: &S, pool: &str) -> Result<Self, S::Error> {
        let mut log = Self {
            key: key(pool, "log"),
            chunk: 0,
            read: 0,
            tail: Vec::new(),
            version: None,
            calls_without_news: 0,
            pending: Vec::new(),
            words: Vec::new(),
            has_missed: false,
        };
        create(data, &log.key, &bytes([0]))?;
        log.fetch_tail(data)?;
        // The next full tail overwrites the oldest chunk's key, so that chunk may vanish during the read.
        log.chunk = log.tail_chunk().saturating_sub(CHUNKS - 1);
        Ok(log)
    }

    /// Whether entries were lost before this worker read them; false from then on.
    pub(crate) fn take_missed(&mut self) -> bool {
        core::mem::take(&mut self.has_missed)
    }

    /// Whether every own entry is appended, and applied with all before it.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_flushed() && self.chunk == self.tail_chunk() && self.read + HEADER == self.tail.len()
    }

    /// Whether other workers have not appended for a while. Then a swap may be tried without a read: it fails
    /// if the tail is not the newest. A full tail is read first, because it is written to a key of its own
    /// before the swap, and a newer chunk may be there.
    pub(crate) fn is_quiet(&self) -> bool {
        self.calls_without_news >= QUIET && self.tail.len() <= CHUNK
    }

    /// The number of the chunk to read next, and how many bytes of its entries were read.
    pub(crate) fn place(&self) -> (u64, usize) {
        (self.chunk, self.read)
    }

    /// Whether every own entry is appended.
    pub(crate) fn is_flushed(&self) -> bool {
        self.pending.is_empty()
    }

    /// Adds pending entries, which `write` appends to the bytes that it is given.
    pub(crate) fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.pending);
    }

    /// The end of the pending entries, for [`Self::withdraw`].
    pub(crate) fn mark(&self) -> usize {
        self.pending.len()
    }

    /// Drops the pending entries behind a mark.
    pub(crate) fn withdraw(&mut self, mark: usize) {
        self.pending.truncate(mark);
    }

    /// Applies the entries that were appended since the last time.
    pub(crate) fn read<S: SharedData>(
        &mut self,
        data: &S,
        apply: impl FnMut(Entry<'_>),
    ) -> Result<(), S::Error> {
        self.fetch_tail(data)?;
        self.read_on(data, apply)
    }

    /// Appends the pending entries and applies them. Returns false if another worker has appended since the
    /// tail was read; then its entries are applied instead, and the next try is based on them.
    pub(crate) fn try_append<S: SharedData>(
        &mut self,
        data: &S,
        apply: impl FnMut(Entry<'_>),
    ) -> Result<bool, S::Error> {
        let is_appended = self.is_flushed() || self.append(data)?;
        // The tail or its version has changed: until both are read again, every further swap would fail too.
        if !is_appended {
            self.fetch_tail(data)?;
        }
        self.read_on(data, apply)?;
        Ok(is_appended)
    }

    fn fetch_tail<S: SharedData>(&mut self, data: &S) -> Result<(), S::Error> {
        let Versioned { bytes: tail, version } = data.get(&self.key)?;
        let older = (self.tail_chunk(), self.tail.len());
        (self.tail, self.version) = (tail, version);
        // A log that was never created, or is cut off, counts as an empty first chunk.
        if self.tail.len() < HEADER {
            self.tail = bytes([0]);
        }
        // Entries are only appended, so a tail of the same length has the same entries.
        let has_news = (self.tail_chunk(), self.tail.len()) != older;
        self.calls_without_news = if has_news { 0 } else { self.calls_without_news.saturating_add(1) };
        Ok(())
    }

    fn tail_chunk(&self) -> u64 {
        first_word(&self.tail).unwrap_or(0)
    }

    /// Appends the pending entries, unless the tail has changed since it was read. Returns whether it did;
    /// otherwise nothing has changed here.
    fn append<S: SharedData>(&mut self, data: &S) -> Result<bool, S::Error> {
        // A swap without a version would succeed whatever the tail has become.
        let Some(version) = self.version else { return Ok(false) };
        if self.tail.len() > CHUNK {
            return self.append_to_new_chunk(data, version);
        }
        let end = self.tail.len();
        self.tail.extend_from_slice(&self.pending);
        let swapped = data.compare_and_swap(&self.key, &self.tail, Some(version));
        if matches!(swapped, Ok(true)) {
            self.appended(version.checked_add(1));
        } else {
            self.tail.truncate(end);
        }
        swapped
    }

    /// The pending entries were appended. The tail has this version, unless other keys were written in
    /// between.
    fn appended(&mut self, version: Option<u32>) {
        self.pending.clear();
        self.version = version;
        self.calls_without_news = self.calls_without_news.saturating_add(1);
    }

    fn append_to_new_chunk<S: SharedData>(&mut self, data: &S, version: u32) -> Result<bool, S::Error> {
        // A full tail never changes, so every worker that finds it writes the same bytes. The chunk is
        // written before the swap: if the worker ends in between, the log has no gap.
        let number = self.tail_chunk();
        data.set(&self.chunk_key(number), &self.tail)?;
        let mut tail = bytes([number + 1]);
        tail.extend_from_slice(&self.pending);
        let is_swapped = data.compare_and_swap(&self.key, &tail, Some(version))?;
        if is_swapped {
            self.tail = tail;
            // Two writes: the full chunk and the swap.
            self.appended(version.checked_add(2));
        }
        Ok(is_swapped)
    }

    /// Applies the entries between this worker's place and the end of the tail as it was read last.
    fn read_on<S: SharedData>(&mut self, data: &S, mut apply: impl FnMut(Entry<'_>)) -> Result<(), S::Error> {
        let tail_chunk = self.tail_chunk();
        while self.chunk < tail_chunk {
            let full = data.get(&self.chunk_key(self.chunk))?.bytes;
            // The key may have a newer chunk already: then this worker was away for too long.
            if first_word(&full) == Some(self.chunk) {
                // The chunk begins with the bytes that were read while it was the tail, so `read` still
                // holds.
                self.apply_entries(&full, &mut apply);
            } else {
                self.has_missed = true;
            }
            self.chunk += 1;
            self.read = 0;
        }
        // The tail is kept: the next append adds to it without reading it again.
        let tail = core::mem::take(&mut self.tail);
        self.apply_entries(&tail, &mut apply);
        self.read = tail.len().saturating_sub(HEADER);
        self.tail = tail;
        Ok(())
    }

    /// Applies the entries of a chunk that were not read yet.
    fn apply_entries(&mut self, chunk: &[u8], apply: &mut impl FnMut(Entry<'_>)) {
        self.words.clear();
        self.words.extend(words(chunk.get(HEADER + self.read..).unwrap_or_default()));
        for entry in entry::read(&self.words) {
            match entry {
                Ok(entry) => apply(entry),
                Err(error) => log::error!("{error} in the workers' log is left out"),
            }
        }
    }

    fn chunk_key(&self, chunk: u64) -> String {
        format!("{}/{}", self.key, chunk % CHUNKS)
    }
}
