//! Block hashes in order of use, one log per endpoint, in pages of one arena.
//!
//! A position in the arena is four bytes and tells both the hash and the endpoint, which is what keeps the index at
//! 24 bytes per block and endpoint or less (`index.rs` has the sum).

use std::collections::VecDeque;

/// Hashes per page.
const PAGE: u32 = 256;

/// Marks a place whose hash was used again later, or evicted. XXH64 gives it for one prompt in 2⁶⁴.
const VACANT: u64 = 0;

/// A place in the arena: page and offset.
pub(super) type Slot = u32;

struct Page {
    endpoint: u16,
    hashes: Box<[u64; PAGE as usize]>,
}

/// The pages of all logs.
#[derive(Default)]
pub(super) struct Arena {
    pages: Vec<Page>,
    free: Vec<u32>,
}

impl Arena {
    pub(super) fn hash(&self, slot: Slot) -> u64 {
        self.pages[(slot / PAGE) as usize].hashes[(slot % PAGE) as usize]
    }

    pub(super) fn endpoint(&self, slot: Slot) -> usize {
        usize::from(self.pages[(slot / PAGE) as usize].endpoint)
    }

    fn set(&mut self, slot: Slot, hash: u64) {
        self.pages[(slot / PAGE) as usize].hashes[(slot % PAGE) as usize] = hash;
    }

    fn allocate(&mut self, endpoint: u16) -> u32 {
        if let Some(page) = self.free.pop() {
            self.pages[page as usize].endpoint = endpoint;
            return page;
        }
        self.pages.push(Page { endpoint, hashes: Box::new([VACANT; PAGE as usize]) });
        u32::try_from(self.pages.len() - 1).expect("capacities keep the arena below 2^32 slots")
    }

    /// Bytes held, free pages included.
    pub(super) fn bytes(&self) -> usize {
        self.pages.len() * (size_of::<Page>() + size_of::<[u64; PAGE as usize]>())
    }
}

/// One endpoint's hashes, oldest first. Places in `pages` run from `start` in the first page to `end` in the last.
#[derive(Default)]
pub(super) struct Log {
    pages: VecDeque<u32>,
    start: u32,
    end: u32,
    live: usize,
}

impl Log {
    /// Hashes in the log.
    pub(super) fn len(&self) -> usize {
        self.live
    }

    /// Writes `hash` as the newest and says where.
    pub(super) fn push(&mut self, arena: &mut Arena, endpoint: u16, hash: u64) -> Slot {
        let page = match self.pages.back() {
            Some(&page) if self.end < PAGE => page,
            _ => {
                let page = arena.allocate(endpoint);
                self.pages.push_back(page);
                self.end = 0;
                page
            }
        };
        let slot = page * PAGE + self.end;
        arena.set(slot, hash);
        self.end += 1;
        self.live += 1;
        slot
    }

    /// Takes out the hash at `slot`, which must hold one of this log's.
    pub(super) fn remove(&mut self, arena: &mut Arena, slot: Slot) {
        arena.set(slot, VACANT);
        self.live -= 1;
    }

    /// Takes out the oldest hash.
    pub(super) fn pop_oldest(&mut self, arena: &mut Arena) -> Option<(Slot, u64)> {
        while let Some(&page) = self.pages.front() {
            let end = if self.pages.len() == 1 { self.end } else { PAGE };
            while self.start < end {
                let slot = page * PAGE + self.start;
                self.start += 1;
                let hash = arena.hash(slot);
                if hash != VACANT {
                    self.remove(arena, slot);
                    return Some((slot, hash));
                }
            }
            self.pages.pop_front();
            self.start = 0;
            arena.free.push(page);
        }
        None
    }

    /// Whether vacant places have come to outweigh what a quarter more room would hold.
    pub(super) fn is_sparse(&self) -> bool {
        let places = self.pages.len() * PAGE as usize - self.start as usize;
        places > self.live + self.live / 4 + 2 * PAGE as usize
    }

    /// Gives the log's pages to another endpoint index.
    pub(super) fn rename(&self, arena: &mut Arena, endpoint: u16) {
        for &page in &self.pages {
            arena.pages[page as usize].endpoint = endpoint;
        }
    }
}

/// The form in which a hash is stored: never [`VACANT`].
pub(super) fn stored(hash: u64) -> u64 {
    if hash == VACANT { 1 } else { hash }
}
