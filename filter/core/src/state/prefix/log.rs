//! Block hashes in order of use, one log per endpoint, in pages of one arena.
//!
//! A log consists of *runs*: blocks that were added with one prompt and are still adjacent. The hash of a
//! block identifies the prompt up to its end, so two prompts that share a block share everything before it:
//! an endpoint's block that is part of a prompt lies in a run that begins with a block of that prompt. So the
//! index needs only the runs' first blocks (`mod.rs`).

use std::collections::VecDeque;

/// Hashes per page.
const PAGE: usize = 256;

/// Marks a place whose hash was used again later, or evicted. XXH64 gives it, but for its first bit, for one
/// prompt in 2⁶³.
const VACANT: u64 = 0;

/// Set in the place of a hash with which a run begins.
const HEAD: u64 = 1 << 63;

/// A place in the arena: page and offset.
pub(super) type Slot = u32;

/// A page's content, by itself, so that it stays where it is when pages are added.
type Places = Box<[u64; PAGE]>;

/// The description of a page.
struct Page {
    endpoint: u16,
    /// Pages that its log had before it, wrapping.
    before: u32,
    /// The page behind it in its log.
    next: Option<usize>,
}

/// The pages of all logs.
#[derive(Default)]
pub(super) struct Arena {
    /// Separate from the pages' descriptions: a new run touches only its own places.
    places: Vec<Places>,
    pages: Vec<Page>,
    free: Vec<usize>,
}

impl Arena {
    pub(super) fn hash(&self, slot: Slot) -> u64 {
        let (page, offset) = place(slot);
        self.places[page][offset] & !HEAD
    }

    pub(super) fn endpoint(&self, slot: Slot) -> usize {
        usize::from(self.pages[place(slot).0].endpoint)
    }

    /// How many blocks of the run from `head` on are the first of `chain`, one by one.
    pub(super) fn matched(&self, head: Slot, chain: &[u64]) -> usize {
        let (mut page, offset) = place(head);
        let mut places = &self.places[page][offset..];
        let mut rest = chain;
        // Only the first place has a mark. A vacant place, and the head of another run, are no hash.
        let mut mark = HEAD;
        loop {
            let is_equal =
                |&(&place, &hash): &(&u64, &u64)| place == stored(hash) | core::mem::take(&mut mark);
            let equal = places.iter().zip(rest).take_while(is_equal).count();
            rest = &rest[equal..];
            match self.pages[page].next.filter(|_| equal == places.len()) {
                Some(next) => (page, places) = (next, &self.places[next][..]),
                None => return chain.len() - rest.len(),
            }
        }
    }

    /// The hashes of a run.
    pub(super) fn run(&self, head: Slot) -> impl Iterator<Item = u64> {
        let (mut page, mut offset) = place(head);
        let (mut places, mut is_first) = (&self.places[page], true);
        core::iter::from_fn(move || {
            if offset == PAGE {
                page = self.pages[page].next?;
                (places, offset) = (&self.places[page], 0);
            }
            let place = places[offset];
            // Places behind the log's end are vacant too, and so end its last run.
            let is_over = place == VACANT || (is_head(place) && !is_first);
            (offset, is_first) = (offset + 1, false);
            (!is_over).then_some(place & !HEAD)
        })
    }

    fn allocate(&mut self, endpoint: u16, before: u32) -> usize {
        let page = Page { endpoint, before, next: None };
        if let Some(number) = self.free.pop() {
            self.pages[number] = page;
            self.places[number].fill(VACANT);
            return number;
        }
        self.pages.push(page);
        self.places.push(Box::new([VACANT; PAGE]));
        self.pages.len() - 1
    }

    /// Bytes held, free pages included.
    pub(super) fn bytes(&self) -> usize {
        self.pages.len() * (size_of::<Page>() + size_of::<Places>() + size_of::<[u64; PAGE]>())
    }
}

/// One endpoint's runs, oldest first. Places in `pages` run from `start` in the first page to `end` in the
/// last.
#[derive(Default)]
pub(super) struct Log {
    pages: VecDeque<usize>,
    /// The last of them, here because each push needs it.
    last: usize,
    start: usize,
    end: usize,
    live: usize,
    /// Pages it has begun so far, wrapping.
    begun: u32,
}

impl Log {
    /// Hashes in the log.
    pub(super) fn len(&self) -> usize {
        self.live
    }

    /// Writes a run as the newest. Returns where it begins; `None` if it has no block.
    pub(super) fn push(&mut self, arena: &mut Arena, endpoint: u16, mut run: &[u64]) -> Option<Slot> {
        let mut head = None;
        while !run.is_empty() {
            let (number, offset) = (self.page_with_room(arena, endpoint), self.end);
            let (here, behind) = run.split_at(run.len().min(PAGE - offset));
            let places = &mut arena.places[number][offset..];
            for (place, &hash) in places.iter_mut().zip(here) {
                *place = stored(hash);
            }
            // A run that continues on another page has no second head there.
            if head.is_none() {
                places[0] |= HEAD;
                head = Some(slot(number, offset));
            }
            self.end += here.len();
            self.live += here.len();
            run = behind;
        }
        head
    }

    fn page_with_room(&mut self, arena: &mut Arena, endpoint: u16) -> usize {
        let is_empty = self.pages.is_empty();
        if is_empty || self.end == PAGE {
            let page = arena.allocate(endpoint, self.begun);
            self.begun = self.begun.wrapping_add(1);
            if !is_empty {
                arena.pages[self.last].next = Some(page);
            }
            self.pages.push_back(page);
            (self.last, self.end) = (page, 0);
        }
        self.last
    }

    /// Takes out up to `most` of the first blocks of the run that begins at `head`. Returns where the rest,
    /// now a run of its own, begins.
    pub(super) fn remove(&mut self, arena: &mut Arena, head: Slot, most: usize) -> Option<Slot> {
        let (mut number, mut offset) = place(head);
        let Arena { places, pages, .. } = arena;
        // The loop ends at the head of the next run, and must not take this place for it.
        places[number][offset] &= !HEAD;
        let mut left = most;
        loop {
            while offset < PAGE {
                let place = &mut places[number][offset];
                if *place == VACANT || is_head(*place) {
                    return None;
                }
                if left == 0 {
                    *place |= HEAD;
                    return Some(slot(number, offset));
                }
                *place = VACANT;
                self.live -= 1;
                left -= 1;
                offset += 1;
            }
            (number, offset) = (pages[number].next?, 0);
        }
    }

    /// Where the oldest run begins; gives back the pages before it.
    pub(super) fn oldest(&mut self, arena: &mut Arena) -> Option<Slot> {
        while let Some(&number) = self.pages.front() {
            let end = if self.pages.len() == 1 { self.end } else { PAGE };
            let places = &arena.places[number][..end];
            // A run loses blocks only at its beginning, so the first place that is not vacant is a head.
            if let Some(vacant) = places[self.start..].iter().position(|&place| place != VACANT) {
                self.start += vacant;
                return Some(slot(number, self.start));
            }
            self.pages.pop_front();
            self.start = 0;
            arena.free.push(number);
        }
        None
    }

    /// The number of places from `slot` to the log's end, vacant places included.
    pub(super) fn behind(&self, arena: &Arena, slot: Slot) -> usize {
        let (number, offset) = place(slot);
        // No page leaves the middle of a log, so the difference is the number of pages from here to the last.
        let pages = self.begun.wrapping_sub(arena.pages[number].before) as usize;
        pages.saturating_mul(PAGE).saturating_sub(PAGE - self.end + offset)
    }

    /// Whether vacant places take more than a quarter of the room that the live ones take.
    pub(super) fn is_sparse(&self) -> bool {
        let places = self.pages.len() * PAGE - self.start;
        // Two pages more, so that a short log is not rewritten for the unused end of its last page.
        places > self.live + self.live / 4 + 2 * PAGE
    }

    /// Gives the log's pages to another endpoint index.
    pub(super) fn rename(&self, arena: &mut Arena, endpoint: u16) {
        for &page in &self.pages {
            arena.pages[page].endpoint = endpoint;
        }
    }
}

/// Page and offset of a slot.
fn place(slot: Slot) -> (usize, usize) {
    (slot as usize / PAGE, slot as usize % PAGE)
}

fn slot(page: usize, offset: usize) -> Slot {
    Slot::try_from(page * PAGE + offset).expect("capacities keep the arena below 2^32 slots")
}

/// The form in which a hash is stored: without [`HEAD`], and never [`VACANT`].
pub(super) fn stored(hash: u64) -> u64 {
    match hash & !HEAD {
        VACANT => 1,
        stored => stored,
    }
}

fn is_head(place: u64) -> bool {
    place & HEAD != 0
}
