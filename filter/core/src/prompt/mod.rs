//! The prompt of a request as the reference's `estimate` tokenizer sees it, and the hashes of its blocks.
//!
//! A *token* here is four bytes of prompt, little-endian, the last one padded with zeros: no vocabulary is involved,
//! equal beginnings simply give equal tokens. Prompts that arrive as token ids are taken as they are, and an image, a
//! video or a sound stands as one token repeated as often as its size suggests.
//!
//! A prompt is never put together into one buffer: it stays a sequence of pieces, most of them borrowed from the
//! request body, and [`block_hashes`] walks them.

mod hash;
mod image;
mod media;
mod pieces;

use std::borrow::Cow;

pub use hash::{BlockHashes, block_hashes};
pub(crate) use media::sound_tokens;
pub use media::{Frames, Media, Resolution, TokensPerPicture, VideoEstimate, VideoHints};
pub(crate) use pieces::{Pieces, Text};

pub(crate) use image::{resolution_of_base64, resolution_of_data_url};

/// Bytes of text that make one token.
pub const BYTES_PER_TOKEN: usize = 4;

/// A run of consecutive prompt tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece<'a> {
    /// Text in UTF-8 (cut anywhere when the prompt is longer than what is kept), following the piece before it without
    /// any separator or padding.
    Text(Cow<'a, [u8]>),
    /// A picture, video or sound: `token` repeated `count` times, starting at a token boundary.
    Media {
        /// The low half of the XXH64 of what the request says about the asset (its URL or data).
        token: u32,
        /// How often it is repeated; at least 1.
        count: u64,
    },
    /// Token ids given by the client.
    Ids(Vec<u32>),
}

/// The tokens of one request: one list, or one list for each string when the client sent several prompts at once.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prompt<'a> {
    pieces: Vec<Piece<'a>>,
    /// Every piece is a list of its own.
    several: bool,
    tokens: u64,
    /// The last list goes on beyond what was kept of it.
    cut: bool,
    has_media: bool,
}

impl<'a> Prompt<'a> {
    /// A prompt of one list of tokens.
    pub(crate) fn one(pieces: Pieces<'a>) -> Self {
        let (tokens, has_media) = (pieces.tokens(), pieces.has_media());
        let (pieces, cut) = pieces.into_parts();
        Self { pieces, several: false, tokens, cut, has_media }
    }

    /// Independent prompts, each one text of `texts`; empty ones have no tokens and are left out.
    pub(crate) fn several(texts: Pieces<'a>, tokens: u64) -> Self {
        let (pieces, cut) = texts.into_parts();
        Self { pieces, several: true, tokens, cut, has_media: false }
    }

    /// How many tokens the prompt has, counting those that were not kept.
    pub fn token_count(&self) -> u64 {
        self.tokens
    }

    /// Whether there are pictures, videos or sounds in it, kept or not.
    pub fn has_media(&self) -> bool {
        self.has_media
    }

    /// The kept tokens, as one or more independent lists.
    pub fn lists(&self) -> impl Iterator<Item = &[Piece<'a>]> {
        let length = if self.several { 1 } else { self.pieces.len().max(1) };
        self.pieces.chunks(length)
    }

    /// Whether the request had more prompt than was kept, so that the last list is not whole.
    pub fn is_cut(&self) -> bool {
        self.cut
    }
}
