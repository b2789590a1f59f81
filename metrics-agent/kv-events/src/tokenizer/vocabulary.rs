//! The bytes of tokens.

use core::fmt;

/// Maximum number of tokens. The largest vocabularies have some 260 000.
pub const MAX_TOKENS: usize = 1 << 20;

/// Maximum number of bytes of a token.
pub const MAX_TOKEN_BYTES: usize = 1024;

/// Maximum number of bytes of all tokens.
const MAX_BYTES: usize = 32 << 20;

/// The bytes of each token of a model.
#[derive(Clone)]
pub struct Vocabulary {
    bytes: Vec<u8>,
    tokens: Vec<Option<Token>>,
    leading_space: LeadingSpace,
}

#[derive(Clone, Copy, Debug)]
struct Token {
    start: u32,
    length: u16,
    /// It is not a part of the model's own vocabulary, such as the beginning of a message.
    is_added: bool,
}

/// The places at which the tokenizer adds a space. An added space is not a part of the tokens' text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LeadingSpace {
    /// Nowhere.
    Never,
    /// At the beginning of a prompt, also behind one added token.
    First,
    /// At the beginning of a prompt, and behind each added token.
    Always,
}

/// Why a token is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenError {
    /// Its number is too large.
    TooMany,
    /// It is too long.
    TooLong,
    /// All tokens together are too long.
    TooLarge,
}

impl fmt::Display for TokenError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooMany => write!(f, "allowed are {MAX_TOKENS} tokens"),
            Self::TooLong => write!(f, "allowed are tokens of {MAX_TOKEN_BYTES} bytes"),
            Self::TooLarge => write!(f, "allowed are {MAX_BYTES} bytes of all tokens together"),
        }
    }
}

/// The text of a block's tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockText {
    bytes: Box<[u8]>,
    /// The first byte is a space that the tokenizer may have put before the text.
    may_begin_with_added_space: bool,
    /// A space that follows is one that the tokenizer has put there.
    pub adds_space: bool,
}

impl BlockText {
    /// The bytes, behind a text whose end `adds_space` or does not.
    pub fn behind(&self, adds_space: bool) -> &[u8] {
        let without = usize::from(adds_space && self.may_begin_with_added_space);
        self.bytes.get(without..).unwrap_or_default()
    }

    /// Number of bytes.
    pub fn length(&self) -> usize {
        self.bytes.len()
    }
}

impl Vocabulary {
    /// No token yet.
    pub fn new(leading_space: LeadingSpace) -> Self {
        Self { bytes: Vec::new(), tokens: Vec::new(), leading_space }
    }

    /// Adds a token, or replaces it.
    pub fn insert(&mut self, id: u32, text: &[u8], is_added: bool) -> Result<(), TokenError> {
        let at = id as usize;
        if at >= MAX_TOKENS {
            return Err(TokenError::TooMany);
        }
        let length = u16::try_from(text.len()).ok().filter(|length| usize::from(*length) <= MAX_TOKEN_BYTES);
        let length = length.ok_or(TokenError::TooLong)?;
        let start = u32::try_from(self.bytes.len()).map_err(|_| TokenError::TooLarge)?;
        if self.bytes.len() + text.len() > MAX_BYTES {
            return Err(TokenError::TooLarge);
        }
        self.bytes.extend_from_slice(text);
        if self.tokens.len() <= at {
            self.tokens.resize(at + 1, None);
        }
        self.tokens[at] = Some(Token { start, length, is_added });
        Ok(())
    }

    /// Number of tokens.
    pub fn count(&self) -> usize {
        self.tokens.iter().flatten().count()
    }

    /// Whether the tokenizer puts a space before a prompt.
    pub fn adds_space(&self) -> bool {
        self.leading_space != LeadingSpace::Never
    }

    /// The text of these tokens, the first ones of a prompt or not; `None`: one of them has no text.
    pub fn text(&self, tokens: &[u32], are_first: bool) -> Option<BlockText> {
        let mut bytes = Vec::with_capacity(4 * tokens.len());
        let (mut adds_space, mut may_begin_with_added_space) = (false, false);
        for (at, id) in tokens.iter().enumerate() {
            let token = self.tokens.get(*id as usize).copied().flatten()?;
            let start = token.start as usize;
            let text = self.bytes.get(start..start + usize::from(token.length))?;
            let is_space = !token.is_added && text.first() == Some(&b' ');
            may_begin_with_added_space |= at == 0 && is_space;
            bytes.extend_from_slice(if adds_space && is_space { text.get(1..)? } else { text });
            adds_space = token.is_added
                && match self.leading_space {
                    LeadingSpace::Never => false,
                    LeadingSpace::First => are_first && at == 0,
                    LeadingSpace::Always => true,
                };
        }
        Some(BlockText { bytes: bytes.into(), may_begin_with_added_space, adds_space })
    }
}

impl fmt::Debug for Vocabulary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Vocabulary").field("tokens", &self.count()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vocabulary(leading_space: LeadingSpace) -> Vocabulary {
        let mut vocabulary = Vocabulary::new(leading_space);
        for (id, text) in [(1, "<s>"), (2, " [I]")] {
            vocabulary.insert(id, text.as_bytes(), true).unwrap();
        }
        for (id, text) in [(3, " a"), (4, "b"), (5, "")] {
            vocabulary.insert(id, text.as_bytes(), false).unwrap();
        }
        vocabulary
    }

    #[test]
    fn spaces_of_the_tokenizer_are_no_text() {
        use LeadingSpace::{Always, First, Never};
        let text = |leading_space, tokens: &[u32], are_first| {
            let vocabulary = vocabulary(leading_space);
            let text = vocabulary.text(tokens, are_first).unwrap();
            let bytes = text.behind(are_first && vocabulary.adds_space());
            (String::from_utf8(bytes.to_vec()).unwrap(), text.adds_space)
        };
        let found = |text: &str, adds_space| (text.to_owned(), adds_space);
        assert_eq!(text(Never, &[1, 3, 2, 3, 1], true), found("<s> a [I] a<s>", false));
        assert_eq!(text(First, &[1, 3, 2, 3, 1], true), found("<s>a [I] a<s>", false));
        assert_eq!(text(Always, &[1, 3, 2, 3, 1], true), found("<s>a [I]a<s>", true));
        assert_eq!(text(First, &[3, 4], true), found("ab", false));
        assert_eq!(text(First, &[1], true), found("<s>", true));
        assert_eq!(text(First, &[1, 3], false), found("<s> a", false));
        assert_eq!(text(Always, &[3, 3], false), found(" a a", false), "inside of a text");
        assert_eq!(vocabulary(Always).text(&[3], false).unwrap().behind(true), b"a");
        assert_eq!(
            vocabulary(Always).text(&[2], false).unwrap().behind(true),
            b" [I]",
            "an added token stays"
        );
    }

    #[test]
    fn unknown_tokens_have_no_text() {
        let vocabulary = vocabulary(LeadingSpace::Never);
        assert_eq!(vocabulary.count(), 5);
        for id in [0, 6, u32::MAX] {
            assert_eq!(vocabulary.text(&[4, id], false), None);
        }
        assert_eq!(vocabulary.text(&[], false).unwrap().behind(false), b"");
        assert_eq!(vocabulary.text(&[5], false).unwrap().behind(true), b"");
    }

    #[test]
    fn tokens_are_bounded() {
        let mut vocabulary = Vocabulary::new(LeadingSpace::Never);
        let last = u32::try_from(MAX_TOKENS).unwrap() - 1;
        assert_eq!(vocabulary.insert(last + 1, b"a", false), Err(TokenError::TooMany));
        assert_eq!(vocabulary.insert(0, &[0; MAX_TOKEN_BYTES + 1], false), Err(TokenError::TooLong));
        assert_eq!(vocabulary.insert(last, &[0; MAX_TOKEN_BYTES], false), Ok(()));
        let many = (0..).find_map(|_| vocabulary.insert(1, &[0; MAX_TOKEN_BYTES], false).err());
        assert_eq!(many, Some(TokenError::TooLarge));
    }
}
