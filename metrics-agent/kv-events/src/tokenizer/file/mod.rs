//! The files that give the bytes of a model's tokens, by their names.

mod tekken;
mod tiktoken;
mod tokenizer_json;

use core::fmt;
use core::marker::PhantomData;

use serde::Deserialize;
use serde::de::{Deserializer, Error, SeqAccess, Visitor};

use super::vocabulary::{MAX_TOKENS, Vocabulary};

/// A vocabulary, and the changes that its tokenizer makes to text.
#[derive(Clone, Debug)]
pub struct VocabularyFile {
    /// The bytes of tokens.
    pub vocabulary: Vocabulary,
    /// Whether text is normalized to NFC.
    pub normalizes: bool,
    /// The token that is added before a text.
    pub first_token: Option<String>,
}

/// A kind of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileKind {
    /// A tokenizer as Hugging Face saves it.
    TokenizerJson,
    /// Mistral's tokenizer.
    Tekken,
    /// The ranks of byte pairs for tiktoken. Its special tokens are in `tokenizer_config.json`.
    Tiktoken,
}

impl FileKind {
    /// All kinds; of several files of a folder the first counts.
    pub const ALL: [Self; 3] = [Self::TokenizerJson, Self::Tekken, Self::Tiktoken];

    /// The name of the file in a folder.
    pub fn name(self) -> &'static str {
        match self {
            Self::TokenizerJson => "tokenizer.json",
            Self::Tekken => "tekken.json",
            Self::Tiktoken => "tiktoken.model",
        }
    }

    /// The kind of the file of this name: as in a folder, or as some models name it, such as
    /// `tekken_240911.json` or `qwen.tiktoken`.
    pub fn of_name(name: &str) -> Option<Self> {
        let extension = name.rsplit_once('.').map(|(_, extension)| extension);
        let is_named = |kind: &Self| match kind {
            Self::TokenizerJson => name == kind.name(),
            Self::Tekken => name.starts_with("tekken") && extension == Some("json"),
            Self::Tiktoken => name == kind.name() || extension == Some("tiktoken"),
        };
        Self::ALL.into_iter().find(is_named)
    }

    /// Whether chats become text by a template of the files next to it. Mistral's library has no template, so
    /// chats have no text.
    pub fn has_template(self) -> bool {
        match self {
            Self::TokenizerJson | Self::Tiktoken => true,
            Self::Tekken => false,
        }
    }

    /// Reads a file. Errors name the field or the line.
    pub fn read(self, bytes: &[u8]) -> Result<VocabularyFile, String> {
        match self {
            Self::TokenizerJson => tokenizer_json::read(bytes),
            Self::Tekken => tekken::read(bytes),
            Self::Tiktoken => tiktoken::read(bytes),
        }
    }
}

/// Reads JSON. Errors name the field.
fn from_json<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Result<T, String> {
    serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_slice(json))
        .map_err(|error| error.to_string())
}

/// A list of tokens. A vocabulary bounds their number.
struct BoundedList<T>(Vec<T>);

impl<T> Default for BoundedList<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for BoundedList<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(BoundedListVisitor(PhantomData))
    }
}

struct BoundedListVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for BoundedListVisitor<T> {
    type Value = BoundedList<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a list of tokens")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<BoundedList<T>, A::Error> {
        let mut tokens = Vec::new();
        while let Some(token) = list.next_element()? {
            if tokens.len() == MAX_TOKENS {
                return Err(A::Error::custom(format!("allowed are {MAX_TOKENS} tokens")));
            }
            tokens.push(token);
        }
        Ok(BoundedList(tokens))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_has_a_kind() {
        for kind in FileKind::ALL {
            assert_eq!(FileKind::of_name(kind.name()), Some(kind));
        }
        assert_eq!(FileKind::of_name("tekken_240911.json"), Some(FileKind::Tekken));
        assert_eq!(FileKind::of_name("qwen.tiktoken"), Some(FileKind::Tiktoken));
        for other in ["tokenizer.model", "tokenizer_config.json", "tekken.model", ""] {
            assert_eq!(FileKind::of_name(other), None, "{other}");
        }
    }
}
