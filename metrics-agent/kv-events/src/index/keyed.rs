//! The keys of blocks, by their text and by their token ids: where prefixes end, and their keys.
//!
//! The blocks of a prompt are joined to prefixes of a number of tokens. A block continues the prefix of the
//! block before it, or begins one if that block ends one.

use core::fmt;
use std::sync::Arc;

use endpoint_picker::state::prefix::key;
use xxhash_rust::xxh64::Xxh64;

use crate::prefixes::Prefix;
use crate::tokenizer::Tokenizer;
use crate::tokenizer::vocabulary::BlockText;

/// Maximum number of bytes of a prefix. 256 tokens have some 1 KB; a block of an engine may have more tokens.
const MAX_LENGTH: usize = 1 << 16;

/// A model whose prefixes have keys: by their text, by their token ids, or by both.
#[derive(Debug)]
pub struct KeyedModel {
    /// The first name under which it is served.
    name: String,
    /// `None`: its tokens are not text.
    tokenizer: Option<Arc<Tokenizer>>,
    has_token_ids: bool,
    scope: u64,
}

impl KeyedModel {
    /// A model with this name and tokenizer, whose prefixes have keys by their token ids or not.
    pub fn new(name: &str, tokenizer: Option<Arc<Tokenizer>>, has_token_ids: bool) -> Self {
        let digest = tokenizer.as_ref().map_or(0, |tokenizer| tokenizer.digest);
        Self { name: name.to_owned(), tokenizer, has_token_ids, scope: key::child(digest, name.as_bytes()) }
    }

    /// Distinguishes its blocks from blocks of models whose equal tokens have other keys.
    pub fn scope(&self) -> u64 {
        self.scope
    }

    /// The place before the prompts of an adapter and a salt; `None`: they are not UTF-8.
    pub(super) fn root(&self, adapter: Option<&[u8]>, salt: Option<&[u8]>) -> Option<KeyedPrompt> {
        let (adapter, salt) = (adapter.map(str::from_utf8), salt.map(str::from_utf8));
        let (adapter, salt) = (adapter.transpose().ok()?, salt.transpose().ok()?);
        let name = adapter.unwrap_or(&self.name);
        let root = |key| Prefix { key, parent: key, length: 0, tokens: 0 };
        let text = self
            .tokenizer
            .as_ref()
            .map(|tokenizer| (root(key::root(name, salt)), tokenizer.vocabulary.adds_space()));
        let token_ids = self.has_token_ids.then(|| root(key::root_of_token_ids(name, salt)));
        Some(KeyedPrompt::End(Box::new(Ends { text, token_ids })))
    }

    /// The bytes of a block's tokens; `None`: they have no keys.
    pub(super) fn bytes(&self, tokens: &[u32], are_first: bool) -> Option<BlockBytes> {
        let text = self.tokenizer.as_ref().and_then(|tokenizer| tokenizer.vocabulary.text(tokens, are_first));
        let text = text.filter(|text| text.length() <= MAX_LENGTH);
        let has_token_ids = self.has_token_ids && size_of_val(tokens) <= MAX_LENGTH;
        let token_ids = has_token_ids.then(|| tokens.iter().flat_map(|id| id.to_le_bytes()).collect());
        (text.is_some() || token_ids.is_some()).then_some(BlockBytes { text, token_ids })
    }
}

/// The bytes of a block's tokens.
#[derive(Clone, Debug)]
pub(super) struct BlockBytes {
    /// `None`: one of the tokens has no text.
    text: Option<BlockText>,
    /// Four bytes each, little-endian; `None`: the model's prefixes have no keys by them.
    token_ids: Option<Box<[u8]>>,
}

impl BlockBytes {
    /// Number of bytes.
    pub(super) fn length(&self) -> usize {
        self.text.as_ref().map_or(0, BlockText::length) + self.token_ids.as_ref().map_or(0, |ids| ids.len())
    }
}

/// A prompt up to the end of a block.
#[derive(Clone, Debug)]
pub(super) enum KeyedPrompt {
    /// The block ends a prefix.
    End(Box<Ends>),
    /// The block is within a prefix.
    Within(Box<Beginnings>),
}

/// A prefix by its text and by its token ids, one of them at least.
#[derive(Clone, Debug)]
pub(super) struct Ends {
    /// The prefix, and whether a space that follows is one that the tokenizer has put there.
    text: Option<(Prefix, bool)>,
    token_ids: Option<Prefix>,
}

impl Ends {
    /// The prefixes.
    pub(super) fn prefixes(&self) -> impl Iterator<Item = &Prefix> {
        let text = self.text.as_ref().map(|(prefix, _)| prefix);
        text.into_iter().chain(&self.token_ids)
    }
}

/// The beginning of a prefix by its text and by its token ids, one of them at least.
#[derive(Clone, Debug)]
pub(super) struct Beginnings {
    text: Option<(Beginning, bool)>,
    token_ids: Option<Beginning>,
    tokens: u32,
}

/// The beginning of a prefix.
#[derive(Clone)]
struct Beginning {
    /// The prefix before.
    parent: u64,
    hasher: Xxh64,
    length: u32,
}

impl fmt::Debug for Beginning {
    /// Without its hasher, which has the last bytes.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { parent, length, .. } = self;
        f.debug_struct("Beginning").field("parent", parent).field("length", length).finish_non_exhaustive()
    }
}

impl Beginning {
    fn behind(prefix: &Prefix) -> Self {
        Self { parent: prefix.key, hasher: Xxh64::new(prefix.key), length: 0 }
    }

    /// Adds bytes; `None`: the prefix would be too long.
    fn followed_by(mut self, bytes: &[u8]) -> Option<Self> {
        let length = self.length as usize + bytes.len();
        self.length = u32::try_from(length).ok().filter(|_| length <= MAX_LENGTH)?;
        self.hasher.update(bytes);
        Some(self)
    }

    /// The prefix of these bytes; `None`: it would be empty.
    fn end(&self, tokens: u32) -> Option<Prefix> {
        let Self { parent, length, hasher } = self;
        let prefix = Prefix { key: hasher.digest(), parent: *parent, length: *length, tokens };
        (*length > 0).then_some(prefix)
    }
}

impl KeyedPrompt {
    /// The prompt up to the end of the next block, with prefixes of this number of tokens; `None`: they have
    /// no keys.
    pub(super) fn followed_by(&self, block: &BlockBytes, tokens: u32, prefix_tokens: u32) -> Option<Self> {
        let Beginnings { text, token_ids, tokens: before } = match self {
            Self::End(ends) => Beginnings {
                text: ends.text.as_ref().map(|(prefix, adds_space)| (Beginning::behind(prefix), *adds_space)),
                token_ids: ends.token_ids.as_ref().map(Beginning::behind),
                tokens: 0,
            },
            Self::Within(beginnings) => Beginnings::clone(beginnings),
        };
        let tokens = before.saturating_add(tokens);
        let text = text.zip(block.text.as_ref()).and_then(|((beginning, adds_space), block)| {
            Some((beginning.followed_by(block.behind(adds_space))?, block.adds_space))
        });
        let token_ids = token_ids.zip(block.token_ids.as_deref());
        let token_ids = token_ids.and_then(|(beginning, bytes)| beginning.followed_by(bytes));
        if tokens < prefix_tokens {
            let has_any = text.is_some() || token_ids.is_some();
            return has_any.then(|| Self::Within(Box::new(Beginnings { text, token_ids, tokens })));
        }
        let text = text.and_then(|(beginning, adds_space)| Some((beginning.end(tokens)?, adds_space)));
        let token_ids = token_ids.and_then(|beginning| beginning.end(tokens));
        let has_any = text.is_some() || token_ids.is_some();
        has_any.then(|| Self::End(Box::new(Ends { text, token_ids })))
    }

    /// Whether the next block begins a prefix.
    pub(super) fn is_end(&self) -> bool {
        matches!(self, Self::End(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::vocabulary::{LeadingSpace, Vocabulary};

    fn tokenizer() -> Arc<Tokenizer> {
        let mut vocabulary = Vocabulary::new(LeadingSpace::Always);
        for (id, text, is_added) in [(0, "<s>", true), (1, " one", false), (2, "two", false), (3, "", false)]
        {
            vocabulary.insert(id, text.as_bytes(), is_added).unwrap();
        }
        Arc::new(Tokenizer {
            vocabulary,
            digest: 7,
            chat_template: String::new(),
            bos_token: String::new(),
            eos_token: String::new(),
            adds_bos: false,
            normalizes: false,
        })
    }

    fn model() -> KeyedModel {
        KeyedModel::new("m", Some(tokenizer()), false)
    }

    /// The prefixes of these blocks, with prefixes of four tokens.
    fn prefixes(blocks: &[&[u32]]) -> Vec<Prefix> {
        let model = model();
        let mut prompt = model.root(None, None).unwrap();
        let mut prefixes = Vec::new();
        for (at, block) in blocks.iter().enumerate() {
            let tokens = u32::try_from(block.len()).unwrap();
            let Some(next) = prompt.followed_by(&model.bytes(block, at == 0).unwrap(), tokens, 4) else {
                break;
            };
            if let KeyedPrompt::End(ends) = &next {
                prefixes.extend(ends.prefixes().copied());
            }
            prompt = next;
        }
        prefixes
    }

    #[test]
    fn prefixes_are_the_same_whatever_the_size_of_the_blocks() {
        let first = key::child(key::root("m", None), b"<s>onetwo one");
        let second =
            Prefix { key: key::child(first, b" onetwo<s>one"), parent: first, length: 13, tokens: 4 };
        let first = Prefix { key: first, parent: key::root("m", None), length: 13, tokens: 4 };
        assert_eq!(prefixes(&[&[0, 1, 2, 1], &[1, 2, 0, 1]]), [first, second]);
        assert_eq!(prefixes(&[&[0, 1], &[2, 1], &[1, 2], &[0, 1], &[2]]), [first, second]);
        let each: Vec<&[u32]> = vec![&[0], &[1], &[2], &[1], &[1], &[2], &[0], &[1]];
        assert_eq!(prefixes(&each), [first, second]);
        let [long] = prefixes(&[&[0, 1, 2, 1, 1, 2, 0, 1]])[..] else { panic!() };
        assert_eq!((long.key, long.tokens), (key::child(first.parent, b"<s>onetwo one onetwo<s>one"), 8));
        assert_eq!(
            prefixes(&[&[0, 1, 2], &[1, 1, 2], &[2]]).len(),
            1,
            "blocks of three make prefixes of six"
        );
    }

    #[test]
    fn prefixes_are_neither_empty_nor_too_long() {
        assert_eq!(prefixes(&[&[3; 4], &[1; 4]]), []);
        assert_eq!(prefixes(&[&[3; 3], &[1]]).len(), 1);
        let text = model().bytes(&vec![1; MAX_LENGTH / 4], false).unwrap();
        let root = model().root(None, None).unwrap();
        let beginning = root.followed_by(&text, 1, 2).unwrap();
        assert!(beginning.followed_by(&text, 1, 3).is_none());
        assert!(model().bytes(&vec![1; MAX_LENGTH / 4 + 1], false).is_none());
    }

    #[test]
    fn adapters_and_salts_have_roots_of_their_own() {
        let key = |adapter: Option<&[u8]>, salt: Option<&[u8]>| match model().root(adapter, salt)? {
            KeyedPrompt::End(ends) => ends.prefixes().next().map(|prefix| prefix.key),
            KeyedPrompt::Within(_) => None,
        };
        assert_eq!(key(None, None), Some(key::root("m", None)));
        assert_eq!(key(Some(b"a"), Some(b"s")), Some(key::root("a", Some("s"))));
        assert_eq!(key(Some(b"\xff"), None), None);
    }
}
