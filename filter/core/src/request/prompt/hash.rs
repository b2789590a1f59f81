//! Hashes of a prompt's blocks. Each hash is of the whole prompt up to the end of the block.

use xxhash_rust::xxh64::{Xxh64, xxh64};

use crate::Few;

use super::{BYTES_PER_TOKEN, List, Piece, Prompt};

/// The block hashes of a prompt, list by list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockHashes {
    hashes: Vec<u64>,
    /// The end of each list in `hashes`; lists without a block are left out.
    ends: Few<ListEnd>,
}

/// The end of a list of blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct ListEnd {
    /// The place behind its last block.
    end: usize,
    /// The place behind its last full block.
    full: usize,
}

impl BlockHashes {
    /// The chains of the prompt's lists, each in the order of its blocks.
    pub fn lists(&self) -> impl Iterator<Item = &[u64]> {
        self.lists_to(|list| list.end)
    }

    /// The same without last blocks that are not full.
    pub fn full_lists(&self) -> impl Iterator<Item = &[u64]> {
        self.lists_to(|list| list.full)
    }

    fn lists_to(&self, to: impl Fn(&ListEnd) -> usize) -> impl Iterator<Item = &[u64]> {
        let mut start = 0;
        self.ends.iter().map(move |list| {
            let hashes = self.hashes.get(start..to(list)).unwrap_or_default();
            start = list.end;
            hashes
        })
    }

    /// A hash of all lists; `None` if no list has a block. The last hash of a list identifies it.
    pub fn digest(&self) -> Option<u64> {
        let mut digest = Xxh64::new(0);
        for last in self.lists().filter_map(<[u64]>::last) {
            digest.update(&last.to_le_bytes());
        }
        (!self.hashes.is_empty()).then(|| digest.digest())
    }

    /// All hashes, list after list.
    pub fn into_all(self) -> Vec<u64> {
        self.hashes
    }

    /// All hashes, list after list.
    pub fn all(&self) -> &[u64] {
        &self.hashes
    }
}

/// Hashes `prompt` in blocks of `block_size` tokens, at most `max_blocks` of each list.
///
/// XXH64 with seed 0 throughout, as in the EPP: a chain starts from the hash of `model` followed by `salt`; a
/// link is the hash of the hash of the block's bytes followed by the previous link, both as little-endian
/// 64-bit numbers. A shorter last block is hashed too, unless the list was [cut](super::List::is_cut): then
/// the block may continue in the part that was not kept. A `block_size` of 0 gives no blocks.
pub fn block_hashes(
    prompt: &Prompt<'_>,
    model: &str,
    salt: Option<&str>,
    block_size: usize,
    max_blocks: usize,
) -> BlockHashes {
    let Some(block_bytes) = block_size.checked_mul(BYTES_PER_TOKEN).filter(|&bytes| bytes > 0) else {
        return BlockHashes::default();
    };
    let seed = salt.map_or_else(
        || hash(model.as_bytes()),
        |salt| {
            let mut seed = Xxh64::new(0);
            seed.update(model.as_bytes());
            seed.update(salt.as_bytes());
            seed.digest()
        },
    );

    // Text only: the size of media is the client's claim, which must not allocate memory.
    let blocks = blocks_of_text(prompt, block_bytes).min(max_blocks);
    let mut chains = BlockHashes { hashes: Vec::with_capacity(blocks), ends: Few::new() };
    for list in prompt.lists() {
        let start = chains.hashes.len();
        let end = start.saturating_add(max_blocks);
        let mut chain = Chain::new(&mut chains.hashes, seed, block_bytes, end);
        for piece in &list.pieces {
            chain.add_piece(piece);
        }
        let full = if list.is_cut { chain.hashes.len() } else { chain.close_last_block() };
        let end = chains.hashes.len();
        if end > start {
            chains.ends.push(ListEnd { end, full });
        }
    }
    chains
}

// One copy for all callers, because it is much code.
#[inline(never)]
fn hash(bytes: &[u8]) -> u64 {
    xxh64(bytes, 0)
}

/// The number of blocks that the prompt's texts fill, with a shorter last one in each list.
fn blocks_of_text(prompt: &Prompt<'_>, block_bytes: usize) -> usize {
    let bytes = |piece: &Piece<'_>| match piece {
        Piece::Text(text) => text.len(),
        Piece::Media { .. } | Piece::Ids(_) => 0,
    };
    let of_list = |list: &List<'_>| list.pieces.iter().map(bytes).sum::<usize>().div_ceil(block_bytes);
    prompt.lists().iter().map(of_list).sum()
}

/// The number of tokens in the buffer through which tokens become bytes.
const BATCH: usize = 64;

struct Chain<'h> {
    hashes: &'h mut Vec<u64>,
    previous: u64,
    block_bytes: usize,
    /// Maximum length of `hashes` at the end of the list.
    end: usize,
    /// The hash state of a block that is spread over several [`Piece`]s.
    open: Xxh64,
    open_bytes: usize,
}

impl<'h> Chain<'h> {
    fn new(hashes: &'h mut Vec<u64>, seed: u64, block_bytes: usize, end: usize) -> Self {
        Self { hashes, previous: seed, block_bytes, end, open: Xxh64::new(0), open_bytes: 0 }
    }

    fn is_full(&self) -> bool {
        self.hashes.len() >= self.end
    }

    fn add_piece(&mut self, piece: &Piece<'_>) {
        match piece {
            Piece::Text(text) => self.add_bytes(text),
            Piece::Media { token, count } => self.add_media(*token, *count),
            Piece::Ids(ids) => self.add_ids(ids),
        }
    }

    #[inline(never)]
    fn add_media(&mut self, token: u32, mut count: u64) {
        self.pad_token();
        let mut bytes = [0; BATCH * BYTES_PER_TOKEN];
        bytes.as_chunks_mut().0.fill(token.to_le_bytes());
        // A small image can claim millions of tokens, so they are hashed up to the last block only.
        while count > 0 && !self.is_full() {
            let batch = usize::try_from(count).unwrap_or(BATCH).min(BATCH);
            self.add_bytes(bytes.get(..batch * BYTES_PER_TOKEN).unwrap_or_default());
            count -= batch as u64;
        }
    }

    /// Ids have a list of their own, so they begin at a token boundary without padding.
    #[inline(never)]
    fn add_ids(&mut self, ids: &[u32]) {
        let mut bytes = [0; BATCH * BYTES_PER_TOKEN];
        for batch in ids.chunks(BATCH) {
            for (token, id) in bytes.as_chunks_mut().0.iter_mut().zip(batch) {
                *token = id.to_le_bytes();
            }
            self.add_bytes(bytes.get(..batch.len() * BYTES_PER_TOKEN).unwrap_or_default());
        }
    }

    #[inline(never)]
    fn add_bytes(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && !self.is_full() {
            let (block, rest) = bytes.split_at(bytes.len().min(self.block_bytes - self.open_bytes));
            bytes = rest;
            // The whole block is here, and so none is open: one call is faster than the streaming state.
            if block.len() == self.block_bytes {
                self.link(hash(block));
                continue;
            }
            self.open.update(block);
            self.open_bytes += block.len();
            if self.open_bytes == self.block_bytes {
                self.close_block();
            }
        }
    }

    /// Fills the last token with zeros.
    fn pad_token(&mut self) {
        let missing = self.open_bytes.next_multiple_of(BYTES_PER_TOKEN) - self.open_bytes;
        self.add_bytes([0; BYTES_PER_TOKEN].get(..missing).unwrap_or_default());
    }

    /// Ends the list. Returns the place behind its last full block.
    fn close_last_block(&mut self) -> usize {
        self.pad_token();
        let full = self.hashes.len();
        if self.open_bytes > 0 && !self.is_full() {
            self.close_block();
        }
        full
    }

    fn close_block(&mut self) {
        let block = self.open.digest();
        self.open.reset(0);
        self.open_bytes = 0;
        self.link(block);
    }

    #[inline(never)]
    fn link(&mut self, block: u64) {
        let link = [block.to_le_bytes(), self.previous.to_le_bytes()];
        self.previous = xxh64(link.as_flattened(), 0);
        self.hashes.push(self.previous);
    }
}
