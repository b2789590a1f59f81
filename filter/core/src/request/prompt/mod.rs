//! The prompt of a request as the EPP's `estimate` tokenizer sees it, and the hashes of its blocks.
//!
//! A *token* here is four bytes of prompt, little-endian, the last one padded with zeros: no vocabulary is
//! involved, equal beginnings give equal tokens. Token ids of the client are used as they are. An image, a
//! video or audio is one token that is repeated in proportion to its size.
//!
//! A prompt is not copied into one buffer: it is a sequence of [`Piece`]s, most of them borrowed from the
//! request body, and [`block_hashes`] reads one after another.

mod hash;
mod image;
mod media;
mod pieces;

use std::borrow::Cow;

pub use hash::{BlockHashes, block_hashes};
pub(crate) use media::audio_tokens;
pub use media::{
    Frames, MAX_IMAGE_TOKENS, MAX_VIDEO_TOKENS, Media, MediaTokens, Resolution, TokensPerImage,
    VideoEstimate, VideoHints,
};
pub(crate) use pieces::{MAX_ITEMS, Part, Pieces, PromptList, Text};

pub(crate) use image::{resolution_of_base64, resolution_of_data_url};

/// Bytes of text that make one token.
pub const BYTES_PER_TOKEN: usize = 4;

/// A run of consecutive prompt tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Text in UTF-8, cut at any byte if the prompt is longer than its kept part. It follows the text before
    /// it without any separator or padding.
    Text(Cow<'a, [u8]>),
    /// An image, video or audio: `token` repeated `count` times, starting at a token boundary.
    Media {
        /// The low half of the XXH64 of its URL or data.
        token: u32,
        /// The number of repetitions; at least 1.
        count: u64,
    },
    /// Token ids given by the client.
    Ids(Vec<u32>),
}

/// One list of tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct List<'a> {
    /// The kept part; not empty.
    pub pieces: Vec<Piece<'a>>,
    /// Whether the list is longer than the kept part.
    pub is_cut: bool,
}

/// The tokens of one request: one list, or a list for each prompt if the client sent several at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompt<'a> {
    lists: Vec<List<'a>>,
    tokens: u64,
    /// Tokens among them that only the client's word gives the prompt.
    claimed: u64,
    is_cut: bool,
    /// The hashes of the first 256 images, videos and audio, kept or not.
    items: Vec<u64>,
    has_media: bool,
}

/// Byte limit of all prompts of a request, as a multiple of the limit of one.
pub(crate) const WHOLE_PROMPTS: usize = 4;

/// Minimum that each of several prompts takes of this limit: the bytes of the smallest block.
pub(crate) const MIN_PROMPT: usize = 64 * BYTES_PER_TOKEN;

impl<'a> Prompt<'a> {
    /// A prompt of one list of tokens.
    pub(crate) fn one(pieces: Pieces<'a>) -> Self {
        let (tokens, claimed, has_media) = (pieces.tokens(), pieces.claimed(), pieces.has_media());
        let (pieces, is_cut, items) = pieces.into_parts();
        let list = List { pieces, is_cut };
        let lists = if list.pieces.is_empty() { Vec::new() } else { vec![list] };
        Self { lists, tokens, claimed, is_cut, items, has_media }
    }

    /// Independent prompts, with `tokens` in all; `parts` are the first. Empty prompts are left out. Up to
    /// `limit` bytes of each are kept, within the [limit of all](WHOLE_PROMPTS).
    pub(crate) fn several(parts: Vec<Part<'a>>, limit: usize, tokens: u64) -> Self {
        let mut room = limit.saturating_mul(WHOLE_PROMPTS);
        let mut lists = Vec::with_capacity(parts.len());
        let (mut seen, mut is_any_cut) = (0, false);
        for part in parts {
            let mut list = Pieces::new(limit.min(room));
            room = room.saturating_sub(part.kept_bytes().min(limit).max(MIN_PROMPT));
            match part {
                Part::Text(text) => list.text(text),
                Part::Ids { ids, count } => list.ids(ids, count),
            }
            seen += list.tokens();
            let (pieces, is_cut, _) = list.into_parts();
            is_any_cut |= is_cut;
            if !pieces.is_empty() {
                lists.push(List { pieces, is_cut });
            }
        }
        let is_cut = is_any_cut || seen < tokens;
        Self { lists, tokens, claimed: 0, is_cut, items: Vec::new(), has_media: false }
    }

    /// The prompts of a list.
    pub(crate) fn of_list(list: PromptList<'a>) -> Self {
        let PromptList { lists, tokens, claimed, is_cut, items, has_media, .. } = list;
        Self { lists, tokens, claimed, is_cut, items, has_media }
    }

    /// The same prompt, which borrows nothing.
    pub(crate) fn into_owned(self) -> Prompt<'static> {
        let owned = |piece| match piece {
            Piece::Text(text) => Piece::Text(Cow::Owned(text.into_owned())),
            Piece::Media { token, count } => Piece::Media { token, count },
            Piece::Ids(ids) => Piece::Ids(ids),
        };
        let Self { lists, tokens, claimed, is_cut, items, has_media } = self;
        let lists = lists
            .into_iter()
            .map(|List { pieces, is_cut }| List { pieces: pieces.into_iter().map(owned).collect(), is_cut });
        Prompt { lists: lists.collect(), tokens, claimed, is_cut, items, has_media }
    }

    /// The number of tokens, with those that were not kept.
    pub fn token_count(&self) -> u64 {
        self.tokens
    }

    /// The number of tokens that the bytes of the request and the configuration give the prompt, without
    /// those that its images and videos [claim](MediaTokens::claimed).
    pub fn carried_tokens(&self) -> u64 {
        self.tokens.saturating_sub(self.claimed)
    }

    /// Whether the prompt has images, videos or audio, kept or not, with a hash or without.
    pub fn has_media(&self) -> bool {
        self.has_media
    }

    /// XXH64 of the content of each image, video and audio, as the request has them, of the first 256.
    pub fn items(&self) -> &[u64] {
        &self.items
    }

    /// The kept tokens, as one or more independent lists.
    pub fn lists(&self) -> &[List<'a>] {
        &self.lists
    }

    /// Whether the request had more prompt than was kept.
    pub fn is_cut(&self) -> bool {
        self.is_cut
    }
}
