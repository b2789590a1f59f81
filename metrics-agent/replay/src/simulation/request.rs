//! Requests as sequences of texts, and what a server and a picker see of them.

use metrics_agent_server_model::{BLOCK_TOKENS, BatchRequest, TOKEN_BYTES};
use std::ops::Range;
use std::sync::Arc;
use xxhash_rust::xxh64::xxh64;

/// The name of the model in all bodies.
pub const MODEL: &str = "model";

/// A text. Equal ids are equal texts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Its identity.
    pub id: u64,
    /// Its length.
    pub tokens: u32,
}

/// One request.
#[derive(Clone, Debug)]
pub struct SimulatedRequest {
    /// The adapter it needs; `None` for the model itself.
    pub adapter: Option<Arc<str>>,
    /// The client's session, if it names one.
    pub session: Option<u64>,
    /// The tenant that it is of, if the client names one.
    pub tenant: Option<u64>,
    /// The limit of its response that the client names, in tokens.
    pub max_tokens: Option<u32>,
    /// The server that it went to when it was recorded.
    pub recorded: Option<usize>,
    /// The texts of its prompt and of its response, one behind another.
    texts: Vec<Segment>,
    work: BatchRequest,
}

impl SimulatedRequest {
    /// A request with this prompt and response.
    pub fn new(adapter: Option<Arc<str>>, mut prompt: Vec<Segment>, answer: Segment) -> Self {
        let tokens: u64 = prompt.iter().map(|segment| u64::from(segment.tokens)).sum();
        prompt.push(answer);
        Self::of_texts(adapter, prompt, usize::try_from(tokens).unwrap_or(usize::MAX), answer.tokens.into())
    }

    /// A request whose prompt has the first tokens of these texts, and whose response has this many behind
    /// them.
    pub fn of_texts(
        adapter: Option<Arc<str>>,
        texts: Vec<Segment>,
        prompt_tokens: usize,
        answer_tokens: u64,
    ) -> Self {
        let blocks = blocks(adapter.as_deref(), texts.iter().copied());
        let work = BatchRequest::of_blocks(adapter.clone(), prompt_tokens, blocks, answer_tokens);
        Self { adapter, session: None, tenant: None, max_tokens: None, recorded: None, texts, work }
    }

    /// The same request with other texts, which are as equal to those of requests with this number as its own
    /// are to theirs.
    #[must_use]
    pub fn with_other_texts(&self, number: u64) -> Self {
        let other = |text: &Segment| Segment { id: mixed(text.id ^ mixed(number)), ..*text };
        let texts = self.texts.iter().map(other).collect();
        let work = &self.work;
        let other = Self::of_texts(self.adapter.clone(), texts, work.prompt_tokens(), work.answer_tokens());
        Self { session: self.session, max_tokens: self.max_tokens, recorded: self.recorded, ..other }
    }

    /// Its work for a server.
    pub fn work(&self) -> &BatchRequest {
        &self.work
    }

    /// Appends the text of its prompt.
    pub fn write_prompt(&self, texts: &SegmentTexts, text: &mut Vec<u8>) {
        let tokens = u32::try_from(self.work.prompt_tokens()).unwrap_or(u32::MAX);
        self.write_tokens(texts, 0..tokens, text);
    }

    /// Appends the text of these tokens of its prompt and response.
    pub fn write_tokens(&self, texts: &SegmentTexts, tokens: Range<u32>, text: &mut Vec<u8>) {
        let mut end = 0;
        for segment in &self.texts {
            let start = end;
            end += segment.tokens;
            let part = tokens.start.clamp(start, end) - start..tokens.end.clamp(start, end) - start;
            texts.write(*segment, part, text);
        }
    }
}

/// Hashes of the full blocks of a text, each of everything up to its end.
fn blocks(adapter: Option<&str>, segments: impl Iterator<Item = Segment>) -> Arc<[u64]> {
    // Adapters change what a prompt's blocks hold.
    let mut parent = adapter.map_or(0, |name| xxh64(name.as_bytes(), 0));
    let (mut blocks, mut open) = (Vec::new(), 0);
    for segment in segments {
        let mut from = 0;
        while from < segment.tokens {
            let taken = (BLOCK_TOKENS - open).min(segment.tokens - from);
            parent = mixed(parent ^ mixed(segment.id ^ mixed((u64::from(from) << 32) | u64::from(taken))));
            from += taken;
            open = (open + taken) % BLOCK_TOKENS;
            if open == 0 {
                blocks.push(parent);
            }
        }
    }
    blocks.into()
}

/// A number that looks random; different ones for different numbers (the finalizer of `SplitMix64`).
pub fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

/// The texts of all segments: places in one random text.
#[derive(Debug)]
pub struct SegmentTexts(Vec<u8>);

impl SegmentTexts {
    const BYTES: usize = 1 << 21;

    /// The texts, the same in every simulation.
    pub fn new() -> Self {
        let letter = |place: u64| match mixed(place) % 27 {
            26 => b' ',
            letter => b'a' + u8::try_from(letter).unwrap_or_default(),
        };
        Self((0..Self::BYTES as u64).map(letter).collect())
    }

    fn write(&self, segment: Segment, tokens: Range<u32>, text: &mut Vec<u8>) {
        let Self(all) = self;
        let mut left = tokens.len() * TOKEN_BYTES;
        // Two segments of the same place are one in a million, and matter only behind the same beginning.
        let start = usize::try_from(mixed(segment.id) % (all.len() as u64 / 2)).unwrap_or(0);
        let mut at = (start + tokens.start as usize * TOKEN_BYTES) % all.len();
        while left > 0 {
            let part = left.min(all.len() - at);
            text.extend_from_slice(&all[at..at + part]);
            left -= part;
            at = 0;
        }
    }
}

impl Default for SegmentTexts {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(id: u64, tokens: u32) -> Segment {
        Segment { id, tokens }
    }

    #[test]
    fn blocks_are_equal_as_far_as_texts_are() {
        let common = |own: &[Segment]| -> Vec<u64> {
            let all = [segment(1, 40)].into_iter().chain(own.iter().copied());
            blocks(None, all).to_vec()
        };
        let (a, b) = (common(&[segment(2, 100)]), common(&[segment(3, 100)]));
        assert_eq!((a.len(), &a[..2]), (8, &b[..2]));
        assert!(a[2..].iter().all(|block| !b.contains(block)), "the third block has tokens of its own");
        let longer = common(&[segment(2, 100), segment(4, 50)]);
        assert_eq!(longer[..8], a[..]);
        assert_ne!(
            blocks(Some("a"), [segment(1, 16)].into_iter()),
            blocks(None, [segment(1, 16)].into_iter())
        );
    }

    #[test]
    fn a_text_has_four_bytes_for_each_token_and_equal_segments_have_equal_texts() {
        let texts = SegmentTexts::new();
        let text = |prompt: Vec<Segment>| {
            let mut text = Vec::new();
            SimulatedRequest::new(None, prompt, segment(9, 1)).write_prompt(&texts, &mut text);
            text
        };
        let (a, b) = (text(vec![segment(1, 30), segment(2, 7)]), text(vec![segment(1, 30), segment(3, 7)]));
        assert_eq!((a.len(), &a[..120]), (148, &b[..120]));
        assert_ne!(a[120..], b[120..]);
    }

    #[test]
    fn parts_of_a_text_are_those_of_the_whole() {
        let texts = SegmentTexts::new();
        let request = SimulatedRequest::new(None, vec![segment(1, 30), segment(2, 7)], segment(9, 11));
        let part = |tokens| {
            let mut text = Vec::new();
            request.write_tokens(&texts, tokens, &mut text);
            text
        };
        let mut prompt = Vec::new();
        request.write_prompt(&texts, &mut prompt);
        let whole = part(0..48);
        assert_eq!((whole.len(), &whole[..148]), (192, &prompt[..]));
        assert_eq!(part(16..32), whole[64..128]);
        assert_eq!(part(32..48), whole[128..]);
    }
}
