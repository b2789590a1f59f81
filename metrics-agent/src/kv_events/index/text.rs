//! The text of blocks: where prefixes end, and their keys.
//!
//! The blocks of a prompt are joined to prefixes of a number of tokens. A block continues the text of the block before it, or
//! begins a prefix if that block ends one.

use core::fmt;
use std::sync::Arc;

use endpoint_picker::state::prefix::key;
use xxhash_rust::xxh64::Xxh64;

use crate::kv_events::prefixes::Prefix;
use crate::kv_events::tokenizer::Tokenizer;
use crate::kv_events::tokenizer::vocabulary::BlockText;

/// Maximum number of bytes of a prefix. 256 tokens have some 1 KB; a block of an engine may have more tokens.
const MAX_LENGTH: usize = 1 << 16;

/// A model whose tokens are text.
#[derive(Debug)]
pub struct TextModel {
    /// The first name under which it is served.
    name: String,
    tokenizer: Arc<Tokenizer>,
    scope: u64,
}

impl TextModel {
    /// A model with this name and tokenizer.
    pub fn new(name: &str, tokenizer: Arc<Tokenizer>) -> Self {
        let scope = key::child(tokenizer.digest, name.as_bytes());
        Self { name: name.to_owned(), tokenizer, scope }
    }

    /// Distinguishes its blocks from blocks of models whose equal tokens are other text.
    pub fn scope(&self) -> u64 {
        self.scope
    }

    /// The text before the prompts of an adapter and a salt; `None`: they are not UTF-8.
    pub(super) fn root(&self, adapter: Option<&[u8]>, salt: Option<&[u8]>) -> Option<Text> {
        let (adapter, salt) = (adapter.map(str::from_utf8), salt.map(str::from_utf8));
        let (adapter, salt) = (adapter.transpose().ok()?, salt.transpose().ok()?);
        let key = key::root(adapter.unwrap_or(&self.name), salt);
        let adds_space = self.tokenizer.vocabulary.adds_space();
        Some(Text::End { prefix: Prefix { key, parent: key, length: 0, tokens: 0 }, adds_space })
    }

    /// The text of a block's tokens; `None`: one of them has none.
    pub(super) fn text(&self, tokens: &[u32], are_first: bool) -> Option<BlockText> {
        self.tokenizer.vocabulary.text(tokens, are_first).filter(|text| text.length() <= MAX_LENGTH)
    }
}

/// The text of a prompt up to the end of a block.
#[derive(Clone, Debug)]
pub(super) enum Text {
    /// The block ends a prefix.
    End { prefix: Prefix, adds_space: bool },
    /// The block is within a prefix.
    Within(Box<Beginning>),
}

/// The beginning of a prefix.
#[derive(Clone)]
pub(super) struct Beginning {
    /// The prefix before.
    parent: u64,
    hasher: Xxh64,
    length: u32,
    tokens: u32,
    adds_space: bool,
}

impl fmt::Debug for Beginning {
    /// Without its hasher, which has the last bytes of the text.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { parent, length, tokens, .. } = self;
        f.debug_struct("Beginning")
            .field("parent", parent)
            .field("length", length)
            .field("tokens", tokens)
            .finish_non_exhaustive()
    }
}

impl Text {
    /// The text up to the end of the next block, with prefixes of this number of tokens; `None`: a prefix would be empty or too long.
    pub(super) fn followed_by(&self, block: &BlockText, tokens: u32, prefix_tokens: u32) -> Option<Self> {
        let mut next = match self {
            Self::End { prefix, adds_space } => Beginning {
                parent: prefix.key,
                hasher: Xxh64::new(prefix.key),
                length: 0,
                tokens: 0,
                adds_space: *adds_space,
            },
            Self::Within(beginning) => Beginning::clone(beginning),
        };
        let bytes = block.behind(next.adds_space);
        let length = next.length as usize + bytes.len();
        next.length = u32::try_from(length).ok().filter(|_| length <= MAX_LENGTH)?;
        next.tokens = next.tokens.saturating_add(tokens);
        next.hasher.update(bytes);
        next.adds_space = block.adds_space;
        if next.tokens < prefix_tokens {
            return Some(Self::Within(Box::new(next)));
        }
        let Beginning { parent, hasher, length, tokens, adds_space } = next;
        let prefix = Prefix { key: hasher.digest(), parent, length, tokens };
        (length > 0).then_some(Self::End { prefix, adds_space })
    }

    /// Whether the next block begins a prefix.
    pub(super) fn is_end(&self) -> bool {
        matches!(self, Self::End { .. })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kv_events::tokenizer::vocabulary::{LeadingSpace, Vocabulary};

    fn model() -> TextModel {
        let mut vocabulary = Vocabulary::new(LeadingSpace::Always);
        for (id, text, is_added) in [(0, "<s>", true), (1, " one", false), (2, "two", false), (3, "", false)]
        {
            vocabulary.insert(id, text.as_bytes(), is_added).unwrap();
        }
        let tokenizer = Tokenizer {
            vocabulary,
            digest: 7,
            chat_template: String::new(),
            bos_token: String::new(),
            eos_token: String::new(),
            adds_bos: false,
            normalizes: false,
        };
        TextModel::new("m", Arc::new(tokenizer))
    }

    /// The prefixes of these blocks, with prefixes of four tokens.
    fn prefixes(blocks: &[&[u32]]) -> Vec<Prefix> {
        let model = model();
        let mut text = model.root(None, None).unwrap();
        let mut prefixes = Vec::new();
        for (at, block) in blocks.iter().enumerate() {
            let tokens = u32::try_from(block.len()).unwrap();
            let Some(next) = text.followed_by(&model.text(block, at == 0).unwrap(), tokens, 4) else { break };
            if let Text::End { prefix, .. } = &next {
                prefixes.push(*prefix);
            }
            text = next;
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
        let text = model().text(&vec![1; MAX_LENGTH / 4], false).unwrap();
        let root = model().root(None, None).unwrap();
        let beginning = root.followed_by(&text, 1, 2).unwrap();
        assert!(beginning.followed_by(&text, 1, 3).is_none());
        assert!(model().text(&vec![1; MAX_LENGTH / 4 + 1], false).is_none());
    }

    #[test]
    fn adapters_and_salts_have_roots_of_their_own() {
        let key = |adapter: Option<&[u8]>, salt: Option<&[u8]>| match model().root(adapter, salt)? {
            Text::End { prefix, .. } => Some(prefix.key),
            Text::Within(_) => None,
        };
        assert_eq!(key(None, None), Some(key::root("m", None)));
        assert_eq!(key(Some(b"a"), Some(b"s")), Some(key::root("a", Some("s"))));
        assert_eq!(key(Some(b"\xff"), None), None);
    }
}
