//! Finds the words in a stream of events without which a line has neither usage nor an error.

use core::iter::Peekable;
use std::sync::LazyLock;

use memchr::memchr;
use memchr::memmem::{FindIter, Finder};

/// Each word is the end of a string.
static WORDS: LazyLock<[Finder<'static>; 3]> =
    LazyLock::new(|| ["usage\"", "error\"", "failed\""].map(Finder::new));

/// The places of the words in a chunk. All calls together take one pass over the chunk for each word.
pub(super) struct Words<'c> {
    chunk: &'c [u8],
    places: [Peekable<FindIter<'c, 'static>>; 3],
}

impl<'c> Words<'c> {
    pub(super) fn of(chunk: &'c [u8]) -> Self {
        Self { chunk, places: WORDS.each_ref().map(|word| word.find_iter(chunk).peekable()) }
    }

    /// The part before the first word in `rest`, which is what is left of the chunk: each call has a shorter
    /// one. A word is left out where it is a key whose value is `null`: some servers send such a key in each
    /// event.
    pub(super) fn before<'r>(&mut self, rest: &'r [u8]) -> &'r [u8] {
        let (chunk, from) = (self.chunk, self.chunk.len() - rest.len());
        let first = self.places.iter_mut().filter_map(|places| {
            while places.next_if(|&at| at < from || is_null(chunk, at)).is_some() {}
            places.peek().copied()
        });
        first.min().map_or(rest, |at| rest.get(..at - from).unwrap_or_default())
    }
}

/// Whether the word at this place is a key whose value is `null`.
fn is_null(chunk: &[u8], at: usize) -> bool {
    let word = chunk.get(at..).unwrap_or_default();
    let after = memchr(b'"', word).and_then(|quote| word.get(quote + 1..)).unwrap_or_default();
    let value = after.trim_ascii_start().strip_prefix(b":").unwrap_or_default();
    value.trim_ascii_start().starts_with(b"null")
}
