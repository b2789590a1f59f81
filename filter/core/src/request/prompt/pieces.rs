//! Building a list of tokens within a limit.

use std::borrow::Cow;

use super::{BYTES_PER_TOKEN, List, MIN_PROMPT, MediaTokens, Piece, WHOLE_PROMPTS};
use crate::json::Str;

/// Maximum length of texts that are joined to one [`Piece`], which takes more memory than a short text.
const JOINED: usize = 256;

/// Maximum number of images, videos and audio of a prompt whose hashes are kept.
pub(crate) const MAX_ITEMS: usize = 256;

/// A text, or its beginning if the rest was not kept.
#[derive(Clone, Debug, Default)]
pub(crate) struct Text<'a> {
    pub(crate) kept: Cow<'a, [u8]>,
    /// Bytes of the whole text.
    pub(crate) bytes: u64,
}

impl<'a> Text<'a> {
    pub(crate) fn borrowed(text: &'a str) -> Self {
        Self { kept: Cow::Borrowed(text.as_bytes()), bytes: text.len() as u64 }
    }

    pub(crate) fn whole(text: Cow<'a, str>) -> Self {
        let bytes = text.len() as u64;
        let kept = match text {
            Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
            Cow::Owned(text) => Cow::Owned(text.into_bytes()),
        };
        Self { kept, bytes }
    }

    /// The text of a JSON string. If the body spells it with escapes, at most `limit` bytes are copied.
    pub(crate) fn of_string(text: Str<'a, '_>, limit: usize) -> Self {
        if let Some(text) = text.in_body() {
            return Self::borrowed(text);
        }
        let kept = text.as_bytes().get(..limit).unwrap_or(text.as_bytes());
        Self { kept: Cow::Owned(kept.to_vec()), bytes: text.len() as u64 }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes == 0
    }
}

/// One of several prompts.
pub(crate) enum Part<'a> {
    Text(Text<'a>),
    /// The first of `count` token ids.
    Ids {
        ids: Vec<u32>,
        count: u64,
    },
}

impl Part<'_> {
    pub(crate) fn kept_bytes(&self) -> usize {
        match self {
            Self::Text(text) => text.kept.len(),
            Self::Ids { ids, .. } => ids.len() * BYTES_PER_TOKEN,
        }
    }
}

/// The length of a list that may be appended to another list: `head` bytes up to the first image, video,
/// audio or token id, which starts at a token boundary, and the bytes from there on.
#[derive(Clone, Copy, Debug, Default)]
struct Extent {
    head: u64,
    tail: Option<u64>,
}

impl Extent {
    fn add_bytes(&mut self, bytes: u64) {
        let last = self.tail.as_mut().unwrap_or(&mut self.head);
        *last = last.saturating_add(bytes);
    }

    fn add_aligned(&mut self, bytes: u64) {
        // Only the first token boundary is unknown until the sequence is appended: from there on, padding
        // depends on the tail alone.
        let aligned = self.tail.map_or(0, align);
        self.tail = Some(aligned.saturating_add(bytes));
    }

    fn tokens(self) -> u64 {
        (align(self.head).saturating_add(align(self.tail.unwrap_or(0)))) / BYTES_PER_TOKEN as u64
    }
}

fn align(bytes: u64) -> u64 {
    bytes.checked_next_multiple_of(BYTES_PER_TOKEN as u64).unwrap_or(u64::MAX)
}

/// One list of tokens being built. Once `limit` bytes are kept, the rest is only counted.
#[derive(Debug)]
pub(crate) struct Pieces<'a> {
    pieces: Vec<Piece<'a>>,
    extent: Extent,
    /// Tokens of images and videos that only the client's word gives them.
    claimed: u64,
    room: usize,
    is_cut: bool,
    /// The hashes of the first images, videos and audio.
    items: Vec<u64>,
    /// Whether there are images, videos or audio, with a hash or without.
    has_media: bool,
}

impl<'a> Pieces<'a> {
    pub(crate) fn new(limit: usize) -> Self {
        Self {
            pieces: Vec::new(),
            extent: Extent::default(),
            claimed: 0,
            room: limit,
            is_cut: false,
            items: Vec::new(),
            has_media: false,
        }
    }

    pub(crate) fn text(&mut self, text: Text<'a>) {
        if text.is_empty() {
            return;
        }
        self.extent.add_bytes(text.bytes);
        let is_whole = text.kept.len() as u64 == text.bytes;
        self.push_within_limit(Piece::Text(text.kept));
        self.is_cut |= !is_whole;
    }

    pub(crate) fn media(&mut self, content_hash: u64, tokens: impl Into<MediaTokens>) {
        let MediaTokens { count, claimed } = tokens.into();
        self.claimed = self.claimed.saturating_add(claimed);
        self.placeholder(Some(content_hash));
        self.extent.add_aligned(count.saturating_mul(BYTES_PER_TOKEN as u64));
        // The EPP's placeholder is the low half of the hash.
        #[expect(clippy::cast_possible_truncation, reason = "the placeholder is the low half")]
        self.push_within_limit(Piece::Media { token: content_hash as u32, count });
    }

    /// An image, a video or audio whose tokens are among the token ids. Without a hash it cannot be found in
    /// a cache.
    pub(crate) fn placeholder(&mut self, hash: Option<u64>) {
        self.has_media = true;
        if self.items.len() < MAX_ITEMS {
            self.items.extend(hash);
        }
    }

    /// `ids` are the first of `count` token ids.
    pub(crate) fn ids(&mut self, ids: Vec<u32>, count: u64) {
        if count == 0 {
            return;
        }
        self.extent.add_aligned(count.saturating_mul(BYTES_PER_TOKEN as u64));
        let is_whole = ids.len() as u64 == count;
        self.push_within_limit(Piece::Ids(ids));
        self.is_cut |= !is_whole;
    }

    pub(crate) fn append(&mut self, other: Self) {
        self.extent.add_bytes(other.extent.head);
        if let Some(tail) = other.extent.tail {
            self.extent.add_aligned(tail);
        }
        self.claimed = self.claimed.saturating_add(other.claimed);
        self.pieces.reserve(other.pieces.len());
        for piece in other.pieces {
            self.push_within_limit(piece);
        }
        self.is_cut |= other.is_cut;
        self.has_media |= other.has_media;
        let room = MAX_ITEMS.saturating_sub(self.items.len());
        self.items.extend(other.items.into_iter().take(room));
    }

    pub(crate) fn tokens(&self) -> u64 {
        self.extent.tokens()
    }

    /// Tokens that only the client's word gives the list.
    pub(super) fn claimed(&self) -> u64 {
        self.claimed
    }

    pub(super) fn has_media(&self) -> bool {
        self.has_media
    }

    /// The tokens, whether they are cut, and the hashes of images, videos and audio.
    pub(super) fn into_parts(self) -> (Vec<Piece<'a>>, bool, Vec<u64>) {
        (self.pieces, self.is_cut, self.items)
    }

    fn push_within_limit(&mut self, mut piece: Piece<'a>) {
        if self.is_cut {
            return;
        }
        let bytes = match &piece {
            Piece::Text(text) => text.len() as u64,
            Piece::Media { count, .. } => count.saturating_mul(BYTES_PER_TOKEN as u64),
            Piece::Ids(ids) => (ids.len() * BYTES_PER_TOKEN) as u64,
        };
        if let Some(room) = usize::try_from(bytes).ok().and_then(|bytes| self.room.checked_sub(bytes)) {
            self.room = room;
        } else {
            let tokens = self.room / BYTES_PER_TOKEN;
            match &mut piece {
                Piece::Text(Cow::Borrowed(text)) => *text = text.get(..self.room).unwrap_or(text),
                Piece::Text(Cow::Owned(text)) => text.truncate(self.room),
                Piece::Media { count, .. } => *count = tokens as u64,
                Piece::Ids(ids) => ids.truncate(tokens),
            }
            self.is_cut = true;
            // Less than a token of media or ids leaves nothing to push.
            if self.room < BYTES_PER_TOKEN && !matches!(piece, Piece::Text(_)) || self.room == 0 {
                return;
            }
        }
        match (self.pieces.last_mut(), &piece) {
            (Some(Piece::Text(last)), Piece::Text(text)) if last.len() + text.len() <= JOINED => {
                append_text(last, text);
            }
            _ => self.pieces.push(piece),
        }
    }
}

/// Several independent prompts, each one list of tokens. The first are kept, within the bound for all.
#[derive(Debug)]
pub(crate) struct PromptList<'a> {
    pub(super) lists: Vec<List<'a>>,
    pub(super) tokens: u64,
    pub(super) claimed: u64,
    pub(super) is_cut: bool,
    pub(super) items: Vec<u64>,
    pub(super) has_media: bool,
    limit: usize,
    room: usize,
}

impl<'a> PromptList<'a> {
    /// No prompt yet; `limit` bytes of each are kept.
    pub(crate) fn new(limit: usize) -> Self {
        let room = limit.saturating_mul(WHOLE_PROMPTS);
        Self {
            lists: Vec::new(),
            tokens: 0,
            claimed: 0,
            is_cut: false,
            items: Vec::new(),
            has_media: false,
            limit,
            room,
        }
    }

    /// Adds a prompt.
    pub(crate) fn push(&mut self, prompt: Pieces<'a>) {
        self.tokens = self.tokens.saturating_add(prompt.tokens());
        self.claimed = self.claimed.saturating_add(prompt.claimed());
        self.has_media |= prompt.has_media;
        let kept = self.limit.saturating_sub(prompt.room).max(MIN_PROMPT);
        let (pieces, is_cut, items) = prompt.into_parts();
        let items = items.into_iter().take(MAX_ITEMS.saturating_sub(self.items.len()));
        self.items.extend(items);
        self.is_cut |= is_cut || self.room == 0;
        if self.room > 0 && !pieces.is_empty() {
            self.room = self.room.saturating_sub(kept);
            self.lists.push(List { pieces, is_cut });
        }
    }
}

/// Appends `text` to `joined`.
fn append_text(joined: &mut Cow<'_, [u8]>, text: &[u8]) {
    if let Cow::Owned(joined) = joined {
        joined.extend_from_slice(text);
        return;
    }
    let mut both = Vec::with_capacity(JOINED);
    both.extend_from_slice(joined);
    both.extend_from_slice(text);
    *joined = Cow::Owned(both);
}
