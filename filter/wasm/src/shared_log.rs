//! The log through which the VMs of one Envoy tell each other what they did.
//!
//! Every VM applies the entries of all VMs, its own among them, in the same order; so all remember the same. The log is
//! kept in chunks: the *tail* is appended to by compare-and-swap, and when it is full its content moves to a key of its own.
//!
//! | key | value |
//! |---|---|
//! | `…/log` | number of the tail chunk (a word), then its [entries](shared) |
//! | `…/log/{n}` | the same of a full chunk, n its number modulo [`CHUNKS`] |
//!
//! A VM that starts, or was away, reads what is still there; nobody waits for it.

use endpoint_picker_wire::log::{self as shared, Entry};

use crate::board;
use crate::host::{self, Result};

/// Bytes at which a chunk is full. Each request copies up to this much four times: out of Envoy, into the VM, and back.
const CHUNK: usize = 4 * 1024;

/// Full chunks that are kept: half a megabyte, the last 60 000 blocks of prompts.
const CHUNKS: u64 = 128;

/// One VM's place in the log, and what it has still to say.
#[derive(Debug)]
pub(crate) struct SharedLog {
    key: String,
    /// The chunk to read next, and how much of it was read.
    chunk: u64,
    read: usize,
    /// The tail as it was read last, with its version.
    tail: Vec<u8>,
    version: Option<u32>,
    unsaid: Vec<u8>,
    /// What is being read.
    words: Vec<u64>,
    /// Entries went by unread.
    missed: bool,
}

impl SharedLog {
    /// A place at the beginning of what is still there.
    pub(crate) fn new(pool: &str) -> Result<Self> {
        let mut log = Self {
            key: board::key(pool, "log"),
            chunk: 0,
            read: 0,
            tail: Vec::new(),
            version: None,
            unsaid: Vec::new(),
            words: Vec::new(),
            missed: false,
        };
        log.look()?;
        if log.version.is_none() {
            // The first VM, before any other starts: without a version to compare, two that append would not see each other.
            host::shared_set(&log.key, &log.tail)?;
            log.look()?;
        }
        log.chunk = log.tail_chunk().saturating_sub(CHUNKS - 1);
        Ok(log)
    }

    /// Whether entries went by unread since the last time this was asked.
    pub(crate) fn take_missed(&mut self) -> bool {
        core::mem::take(&mut self.missed)
    }

    /// Reads what was said since the last time.
    pub(crate) fn hear(&mut self, mut hear: impl FnMut(Entry<'_>)) -> Result<()> {
        self.look()?;
        self.read_on(&mut hear)
    }

    /// Adds to what is pending until [`Self::try_append`].
    pub(crate) fn say(&mut self, entry: &Entry<'_>) {
        entry.write(&mut self.unsaid);
    }

    /// Whether there is nothing left to say.
    pub(crate) fn has_said_all(&self) -> bool {
        self.unsaid.is_empty()
    }

    /// How much is pending.
    pub(crate) fn pending(&self) -> usize {
        self.unsaid.len()
    }

    /// Leaves out what became pending after there was this much.
    pub(crate) fn withdraw(&mut self, mark: usize) {
        self.unsaid.truncate(mark);
    }

    /// Appends what is pending and reads it; false if another VM has appended since the last look. Then that is read instead, and
    /// the next try has it behind it.
    pub(crate) fn try_append(&mut self, mut hear: impl FnMut(Entry<'_>)) -> Result<bool> {
        let appended = self.unsaid.is_empty() || self.append()?;
        if !appended {
            self.look()?;
        }
        self.read_on(&mut hear)?;
        Ok(appended)
    }

    fn look(&mut self) -> Result<()> {
        if cfg!(feature = "alone") {
            self.tail.resize(8, 0);
            return Ok(());
        }
        (self.tail, self.version) = host::shared_get(&self.key)?;
        if self.tail.len() < 8 {
            self.tail = 0u64.to_le_bytes().to_vec();
        }
        Ok(())
    }

    fn tail_chunk(&self) -> u64 {
        chunk_number(&self.tail).unwrap_or(0)
    }

    /// Appends what is unsaid, unless the tail has changed since the last look; then it has to be looked at again.
    fn append(&mut self) -> Result<bool> {
        if cfg!(feature = "alone") {
            self.tail.truncate(8);
            self.tail.append(&mut self.unsaid);
            self.read = 0;
            return Ok(true);
        }
        let full = (self.tail.len() > CHUNK).then(|| {
            let next = (self.tail_chunk() + 1).to_le_bytes().to_vec();
            core::mem::replace(&mut self.tail, next)
        });
        self.tail.extend_from_slice(&self.unsaid);
        if !host::shared_swap(&self.key, &self.tail, self.version)? {
            return Ok(false);
        }
        // The version is unknown now; the next look tells it.
        self.unsaid.clear();
        if let Some(full) = full {
            // Only the VM whose swap began a new chunk comes here, so this is the full chunk's last word.
            host::shared_set(&self.chunk_key(self.tail_chunk() - 1), &full)?;
        }
        Ok(true)
    }

    /// Applies what stands between this VM's place and the tail as it was read last.
    fn read_on(&mut self, hear: &mut impl FnMut(Entry<'_>)) -> Result<()> {
        let tail_chunk = self.tail_chunk();
        while self.chunk < tail_chunk {
            let (full, _) = host::shared_get(&self.chunk_key(self.chunk))?;
            match chunk_number(&full) {
                Some(number) if number == self.chunk => {
                    apply(&full, self.read, &mut self.words, hear);
                }
                // Its writer is about to write it.
                _ if self.chunk + 1 == tail_chunk => return Ok(()),
                _ => self.missed = true,
            }
            self.chunk += 1;
            self.read = 0;
        }
        apply(&self.tail, self.read, &mut self.words, hear);
        self.read = self.tail.len() - 8;
        Ok(())
    }

    fn chunk_key(&self, chunk: u64) -> String {
        format!("{}/{}", self.key, chunk % CHUNKS)
    }
}

fn chunk_number(chunk: &[u8]) -> Option<u64> {
    chunk.first_chunk().map(|number| u64::from_le_bytes(*number))
}

/// Hands on the entries of a chunk from byte `from` of its content. `words` is where they are put meanwhile.
fn apply(chunk: &[u8], from: usize, words: &mut Vec<u64>, hear: &mut impl FnMut(Entry<'_>)) {
    words.clear();
    words.extend(shared::words(chunk.get(8 + from..).unwrap_or_default()));
    for entry in shared::read(words) {
        match entry {
            Ok(entry) => hear(entry),
            Err(error) => log::error!("an entry of the VMs' log cannot be read and is passed over: {error}"),
        }
    }
}
