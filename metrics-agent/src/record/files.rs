//! The files of a record, bounded in size and number.
//!
//! A pool's files are `POOL-MILLISECONDS.jsonl`, by the time of their first line, or one more than the name
//! before where the clock has not passed that. Their names are in the order of their lines, so the oldest is
//! removed for a new one, also after a restart.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use metrics_agent_support::runtime::since_epoch;
use serde::Serialize;

use super::line::Line;

/// The most files of a pool that are filled after one another.
const FILES: u64 = 8;

/// The most files of a pool, with short ones of earlier runs.
const MAX_FILES: usize = 64;

/// The block size of files without a block.
const BLOCK_TOKENS: u32 = 64;

/// The files of all pools.
#[derive(Debug)]
pub(super) struct Files {
    folder: PathBuf,
    /// Maximum size of the files of a pool together, in bytes.
    max_bytes: u64,
    /// The header's time, in milliseconds since the Unix epoch.
    started: u64,
    open: BTreeMap<String, OpenFile>,
}

#[derive(Debug)]
struct OpenFile {
    file: File,
    bytes: u64,
    block_tokens: u32,
}

/// The first line of a file. Its format is first, by which readers recognize it.
#[derive(Serialize)]
struct Header<'a> {
    record: &'static str,
    started: u64,
    block_tokens: u32,
    pool: &'a str,
    agent: &'static str,
}

impl Files {
    /// Files in this folder, which is made if there is none. `started` is in milliseconds since the epoch.
    pub(super) fn new(folder: PathBuf, max_bytes: u64, started: u64) -> io::Result<Self> {
        fs::create_dir_all(&folder)?;
        Ok(Self { folder, max_bytes, started, open: BTreeMap::new() })
    }

    /// Adds lines to the file of a pool. After an error, the next lines go to a new file.
    pub(super) fn write(&mut self, pool: &str, lines: Vec<Line>) -> io::Result<()> {
        let written = self.try_write(pool, lines);
        if written.is_err() {
            self.open.remove(pool);
        }
        written
    }

    fn try_write(&mut self, pool: &str, lines: Vec<Line>) -> io::Result<()> {
        let max_bytes = self.max_bytes / FILES;
        let mut text = Vec::new();
        for mut line in lines {
            let block_tokens = line.block_tokens;
            let is_full = |file: &OpenFile| file.bytes + text.len() as u64 >= max_bytes;
            if self.open.get(pool).is_none_or(is_full) {
                self.flush(pool, &mut text)?;
                let file = self.begin(pool, block_tokens.unwrap_or(BLOCK_TOKENS))?;
                self.open.insert(pool.to_owned(), file);
            }
            let of_file = self.open.get(pool).map(|file| file.block_tokens);
            line.block_tokens = block_tokens.filter(|&tokens| Some(tokens) != of_file);
            serde_json::to_writer(&mut text, &line)?;
            text.push(b'\n');
        }
        self.flush(pool, &mut text)
    }

    /// Writes whole lines at once, so that the end of the agent cuts none.
    fn flush(&mut self, pool: &str, text: &mut Vec<u8>) -> io::Result<()> {
        if let Some(file) = self.open.get_mut(pool) {
            file.file.write_all(text)?;
            file.bytes += text.len() as u64;
        }
        text.clear();
        Ok(())
    }

    /// Begins a file, for which the oldest make room.
    fn begin(&self, pool: &str, block_tokens: u32) -> io::Result<OpenFile> {
        let prefix = prefix_of(pool);
        let newest = self.make_room(&prefix)?;
        let now = u64::try_from(since_epoch().as_millis()).unwrap_or(u64::MAX);
        let mut milliseconds = newest.map_or(now, |newest| now.max(newest + 1));
        let mut file = loop {
            let path = self.folder.join(format!("{prefix}{milliseconds:013}.jsonl"));
            match OpenOptions::new().append(true).create_new(true).mode(0o600).open(path) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => milliseconds += 1,
                opened => break opened?,
            }
        };
        let (started, agent) = (self.started, env!("CARGO_PKG_VERSION"));
        let header = Header { record: "endpoint-picker/1", started, block_tokens, pool, agent };
        let mut header = serde_json::to_vec(&header)?;
        header.push(b'\n');
        file.write_all(&header)?;
        Ok(OpenFile { file, bytes: header.len() as u64, block_tokens })
    }

    /// Removes the oldest files of a pool until there is room for one more. Returns the time in the name of
    /// the newest, in milliseconds.
    fn make_room(&self, prefix: &str) -> io::Result<Option<u64>> {
        let mut files = files_of(&self.folder, prefix)?;
        files.sort();
        let newest = files.last().map(|(milliseconds, ..)| *milliseconds);
        let mut bytes: u64 = files.iter().map(|(.., bytes)| bytes).sum();
        let mut count = files.len();
        for (_, path, size) in files {
            if count < MAX_FILES && bytes + self.max_bytes / FILES <= self.max_bytes {
                break;
            }
            fs::remove_file(path)?;
            bytes -= size;
            count -= 1;
        }
        Ok(newest)
    }
}

/// The beginning of the names of a pool's files. No name of Kubernetes has an underscore.
fn prefix_of(pool: &str) -> String {
    let is_plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '.' || letter == '-';
    let plain = |letter: char| if is_plain(letter) { letter } else { '_' };
    pool.chars().map(plain).collect::<String>() + "-"
}

/// The files of a pool: the milliseconds in their names, their paths and their sizes.
fn files_of(folder: &Path, prefix: &str) -> io::Result<Vec<(u64, PathBuf, u64)>> {
    let mut files = Vec::new();
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let name = entry.file_name();
        let time = name.to_str().and_then(|name| name.strip_prefix(prefix)?.strip_suffix(".jsonl"));
        let time = time.filter(|time| time.len() == 13 && time.bytes().all(|digit| digit.is_ascii_digit()));
        if let Some(milliseconds) = time.and_then(|time| time.parse().ok()) {
            files.push((milliseconds, entry.path(), entry.metadata()?.len()));
        }
    }
    Ok(files)
}
