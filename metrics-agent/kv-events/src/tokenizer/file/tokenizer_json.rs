//! The parts of a `tokenizer.json`, as Hugging Face saves it, that give the bytes of its tokens.
//!
//! The decoder gives its kind. Byte-level vocabularies write each byte as a character; vocabularies of
//! `SentencePiece` write a space as `▁`, and have tokens `<0x00>` to `<0xFF>` for bytes of other texts.

use core::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

use super::{BoundedList, VocabularyFile, from_json};
use crate::tokenizer::vocabulary::{LeadingSpace, MAX_TOKENS, Vocabulary};

/// The space of `SentencePiece`.
const SPACE: &str = "\u{2581}";

/// Maximum size of the JSON of each field with steps, in bytes. In memory a step takes up to 20 times its
/// size.
const MAX_STEPS: usize = 1 << 20;

#[derive(Deserialize)]
struct TokenizerFile<'a> {
    #[serde(default)]
    added_tokens: BoundedList<FileToken>,
    #[serde(borrow, default)]
    normalizer: Option<&'a RawValue>,
    #[serde(borrow, default)]
    pre_tokenizer: Option<&'a RawValue>,
    #[serde(borrow, default)]
    post_processor: Option<&'a RawValue>,
    #[serde(borrow, default)]
    decoder: Option<&'a RawValue>,
    model: TokenizerModel,
}

#[derive(Deserialize)]
struct FileToken {
    id: u32,
    content: String,
}

#[derive(Deserialize)]
struct TokenizerModel {
    vocab: VocabularyTokens,
}

/// A normalizer, pre-tokenizer, post-processor or decoder. A `Sequence` has parts.
#[derive(Deserialize)]
struct PipelineStep {
    #[serde(rename = "type")]
    kind: String,
    #[serde(
        default,
        alias = "normalizers",
        alias = "pretokenizers",
        alias = "processors",
        alias = "decoders"
    )]
    parts: Vec<PipelineStep>,
    /// The text that a `Replace` writes.
    #[serde(default)]
    content: Option<String>,
    /// Where a `Metaspace` puts a space.
    #[serde(default)]
    prepend_scheme: Option<String>,
    /// The same of a `ByteLevel` or an older `Metaspace`.
    #[serde(default)]
    add_prefix_space: Option<bool>,
    /// The parts that a `TemplateProcessing` makes of a text.
    #[serde(default)]
    single: Vec<TemplatePart>,
}

#[derive(Deserialize)]
enum TemplatePart {
    SpecialToken { id: String },
    Sequence(IgnoredAny),
}

impl PipelineStep {
    /// The steps that are no sequences, in their order. The JSON library limits their nesting.
    fn leaves(&self) -> Vec<&Self> {
        if self.kind == "Sequence" { self.parts.iter().flat_map(Self::leaves).collect() } else { vec![self] }
    }
}

/// Reads a field with steps.
fn steps(field: &str, json: Option<&RawValue>) -> Result<Option<PipelineStep>, String> {
    let Some(json) = json.map(RawValue::get) else { return Ok(None) };
    let length = json.len();
    if length > MAX_STEPS {
        return Err(format!("{field}: {length} bytes; allowed are {MAX_STEPS}"));
    }
    let step = serde_path_to_error::deserialize(&mut serde_json::Deserializer::from_str(json));
    step.map(Some).map_err(|error| format!("{field}: {error}"))
}

fn leaves(step: Option<&PipelineStep>) -> Vec<&PipelineStep> {
    step.map(PipelineStep::leaves).unwrap_or_default()
}

/// The model's own tokens: a map from text to number, or a list of texts with their scores.
struct VocabularyTokens(Vec<(String, u32)>);

impl<'de> Deserialize<'de> for VocabularyTokens {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TokensVisitor(Vec::new()))
    }
}

struct TokensVisitor(Vec<(String, u32)>);

impl TokensVisitor {
    fn push<E: Error>(&mut self, text: String, id: u32) -> Result<(), E> {
        if self.0.len() == MAX_TOKENS {
            return Err(E::custom(format!("allowed are {MAX_TOKENS} tokens")));
        }
        self.0.push((text, id));
        Ok(())
    }
}

impl<'de> Visitor<'de> for TokensVisitor {
    type Value = VocabularyTokens;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map from tokens to numbers, or a list of tokens with scores")
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<VocabularyTokens, A::Error> {
        while let Some((text, id)) = map.next_entry()? {
            self.push(text, id)?;
        }
        Ok(VocabularyTokens(self.0))
    }

    fn visit_seq<A: SeqAccess<'de>>(mut self, mut list: A) -> Result<VocabularyTokens, A::Error> {
        while let Some((text, _)) = list.next_element::<(String, f64)>()? {
            let id = u32::try_from(self.0.len()).map_err(A::Error::custom)?;
            self.push(text, id)?;
        }
        Ok(VocabularyTokens(self.0))
    }
}

/// How a vocabulary writes bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Encoding {
    /// A character for each byte.
    ByteLevel,
    /// `▁` for a space, and `<0x00>` to `<0xFF>` if there are tokens of bytes.
    SentencePiece { has_bytes: bool },
}

/// Reads a file. Errors name the field.
pub(super) fn read(json: &[u8]) -> Result<VocabularyFile, String> {
    let file: TokenizerFile<'_> = from_json(json)?;
    let decoder = steps("decoder", file.decoder)?;
    let normalizer = steps("normalizer", file.normalizer)?;
    let pre_tokenizer = steps("pre_tokenizer", file.pre_tokenizer)?;
    let post_processor = steps("post_processor", file.post_processor)?;
    let encoding = encoding(&leaves(decoder.as_ref()))?;
    let normalizer = leaves(normalizer.as_ref());
    let pre_tokenizer = leaves(pre_tokenizer.as_ref());
    let leading_space = leading_space(encoding, &normalizer, &pre_tokenizer)?;
    let mut vocabulary = Vocabulary::new(leading_space);
    let own = file.model.vocab.0.iter().filter_map(|(text, id)| Some((*id, encoding.bytes(text)?, false)));
    let added = file.added_tokens.0.iter().map(|token| (token.id, token.content.clone().into_bytes(), true));
    for (id, text, is_added) in own.chain(added) {
        let field = if is_added { "added_tokens" } else { "model.vocab" };
        vocabulary.insert(id, &text, is_added).map_err(|error| format!("{field}: token {id}: {error}"))?;
    }
    Ok(VocabularyFile {
        vocabulary,
        normalizes: normalizes(&normalizer)?,
        first_token: first_token(&leaves(post_processor.as_ref())),
    })
}

/// Writes the kinds of steps for an error.
fn kinds(steps: &[&PipelineStep]) -> String {
    if steps.is_empty() {
        return "none".to_owned();
    }
    steps.iter().map(|step| step.kind.as_str()).collect::<Vec<_>>().join(", ").chars().take(200).collect()
}

fn encoding(decoder: &[&PipelineStep]) -> Result<Encoding, String> {
    let has = |kind| decoder.iter().any(|step| step.kind == kind);
    let is_sentence_piece = decoder.iter().all(|step| match step.kind.as_str() {
        "Metaspace" | "ByteFallback" | "Fuse" | "Strip" => true,
        "Replace" => step.content.as_deref() == Some(" "),
        _ => false,
    });
    if has("ByteLevel") {
        Ok(Encoding::ByteLevel)
    } else if is_sentence_piece && (has("Metaspace") || has("Replace")) {
        Ok(Encoding::SentencePiece { has_bytes: has("ByteFallback") })
    } else {
        Err(format!(
            "decoder: {} is not supported; supported are ByteLevel, and Metaspace or a Replace by a space, with ByteFallback, Fuse and Strip",
            kinds(decoder)
        ))
    }
}

impl Encoding {
    /// The bytes of a token; `None`: it is not of this encoding, as some tokens that no text has.
    fn bytes(self, text: &str) -> Option<Vec<u8>> {
        match self {
            Self::ByteLevel => text.chars().map(byte_of).collect(),
            Self::SentencePiece { has_bytes } => {
                let hex = text.strip_prefix("<0x").and_then(|text| text.strip_suffix('>'));
                let byte = hex.filter(|hex| has_bytes && hex.len() == 2);
                match byte.and_then(|hex| u8::from_str_radix(hex, 16).ok()) {
                    Some(byte) => Some(vec![byte]),
                    None => Some(text.replace(SPACE, " ").into_bytes()),
                }
            }
        }
    }
}

/// The byte that a character of a byte-level vocabulary encodes. Printable characters of Latin-1 encode
/// themselves, and the other 68 bytes are numbered from U+0100 on. Source: the vocabulary of GPT-2.
fn byte_of(character: char) -> Option<u8> {
    let is_printable = |code: u32| matches!(code, 33..=126 | 161..=172 | 174..=255);
    let code = u32::from(character);
    let code = match code {
        0..=255 => is_printable(code).then_some(code),
        _ => (0..=255).filter(|byte| !is_printable(*byte)).nth(code as usize - 256),
    };
    u8::try_from(code?).ok()
}

/// Where the tokenizer puts a space before a text.
fn leading_space(
    encoding: Encoding,
    normalizer: &[&PipelineStep],
    pre_tokenizer: &[&PipelineStep],
) -> Result<LeadingSpace, String> {
    if encoding == Encoding::ByteLevel {
        // It leaves a space that the text begins with, so that nothing shows where the first one comes from.
        let adds = pre_tokenizer.iter().any(|step| step.add_prefix_space == Some(true));
        return if adds {
            Err("pre_tokenizer: add_prefix_space true is not supported".to_owned())
        } else {
            Ok(LeadingSpace::Never)
        };
    }
    if normalizer.iter().any(|step| step.kind == "Prepend") {
        return Ok(LeadingSpace::Always);
    }
    let Some(step) = pre_tokenizer.iter().find(|step| step.kind == "Metaspace") else {
        return Ok(LeadingSpace::Never);
    };
    match (step.prepend_scheme.as_deref(), step.add_prefix_space) {
        (Some("never"), _) | (None, Some(false)) => Ok(LeadingSpace::Never),
        (Some("first"), _) => Ok(LeadingSpace::First),
        (Some("always") | None, _) => Ok(LeadingSpace::Always),
        (Some(other), _) => {
            let other: String = other.chars().take(100).collect();
            Err(format!("pre_tokenizer.prepend_scheme: {other:?}; allowed are always, first and never"))
        }
    }
}

/// Whether text is normalized to NFC. Other normalizers would change it in ways that no prompt shows.
fn normalizes(normalizer: &[&PipelineStep]) -> Result<bool, String> {
    let is_supported = |step: &&PipelineStep| match step.kind.as_str() {
        "NFC" | "Prepend" => true,
        "Replace" => step.content.as_deref() == Some(SPACE),
        _ => false,
    };
    if normalizer.iter().all(is_supported) {
        return Ok(normalizer.iter().any(|step| step.kind == "NFC"));
    }
    let kinds = kinds(normalizer);
    Err(format!(
        "normalizer: {kinds} is not supported; supported are NFC, Prepend, and a Replace of spaces by {SPACE}"
    ))
}

/// The special token before a text.
fn first_token(post_processor: &[&PipelineStep]) -> Option<String> {
    let template = post_processor.iter().find(|step| step.kind == "TemplateProcessing")?;
    match template.single.first()? {
        TemplatePart::SpecialToken { id } => Some(id.clone()),
        TemplatePart::Sequence(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TINY: &[u8] = include_bytes!("../../../../tests/captures/kv-events/tiny-model/tokenizer.json");

    /// A file with these steps and this vocabulary.
    fn file(steps: &str, vocab: &str) -> Result<VocabularyFile, String> {
        let added = r#"[{"id": 0, "content": "<s>"}, {"id": 9, "content": "▁Ġ"}]"#;
        let json =
            format!(r#"{{"added_tokens": {added}, {steps} "model": {{"type": "BPE", "vocab": {vocab}}}}}"#);
        read(json.as_bytes())
    }

    fn text(file: &VocabularyFile, tokens: &[u32]) -> Option<Vec<u8>> {
        file.vocabulary.text(tokens, false).map(|text| text.behind(false).to_vec())
    }

    #[test]
    fn every_byte_has_a_character() {
        let mut bytes: Vec<_> = (0..0x200).filter_map(|code| byte_of(char::from_u32(code)?)).collect();
        bytes.sort_unstable();
        assert_eq!(bytes, (0..=255).collect::<Vec<u8>>());
        assert_eq!("ĠĊé".chars().map(byte_of).collect::<Option<Vec<_>>>().unwrap(), b" \n\xe9");
        assert_eq!([byte_of('▁'), byte_of('\u{ad}'), byte_of(' ')], [None; 3]);
    }

    #[test]
    fn a_byte_level_vocabulary_has_bytes_and_added_tokens_as_they_are() {
        let file = file(r#""decoder": {"type": "ByteLevel"},"#, r#"{"Ġa": 1, "Ã": 2, "▁": 3}"#).unwrap();
        assert_eq!(text(&file, &[0, 1, 2, 9]), Some(b"<s> a\xc3\xe2\x96\x81\xc4\xa0".to_vec()));
        assert_eq!(text(&file, &[3]), None, "no text has it");
        assert!(!file.normalizes && file.first_token.is_none());
    }

    #[test]
    fn a_sentence_piece_vocabulary_has_spaces_and_bytes() {
        let steps = r#""normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁"},
                {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
            "post_processor": {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
                {"Sequence": {"id": "A", "type_id": 0}}]},
            "decoder": {"type": "Sequence", "decoders": [{"type": "Replace", "pattern": {"String": "▁"}, "content": " "},
                {"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]},"#;
        let bpe = file(steps, r#"{"▁a▁": 1, "<0x0A>": 2, "<0xGG>": 3}"#).unwrap();
        assert_eq!(text(&bpe, &[1, 2, 3, 9]), Some(" a \n<0xGG>▁Ġ".into()));
        assert!(bpe.vocabulary.adds_space());
        assert_eq!(bpe.first_token.as_deref(), Some("<s>"));
        let metaspace = r#""pre_tokenizer": {"type": "Metaspace", "replacement": "▁", "prepend_scheme": "never"},
            "normalizer": {"type": "NFC"}, "decoder": {"type": "Metaspace"},"#;
        let unigram = file(metaspace, r#"[["<unk>", 0.0], ["▁b", -1.5], ["<0x0A>", -2]]"#).unwrap();
        assert_eq!(text(&unigram, &[1, 2]), Some(b" b<0x0A>".to_vec()), "it has no tokens of bytes");
        assert!(!unigram.vocabulary.adds_space() && unigram.normalizes);
    }

    #[test]
    fn the_vocabulary_of_the_recorded_server_gives_the_recorded_prompts() {
        let file = read(TINY).unwrap();
        assert_eq!(file.vocabulary.count(), 328);
        let recorded = include_str!("../../../../tests/captures/kv-events/base.requests.jsonl");
        let mut checked = 0;
        for line in recorded.lines() {
            let line: serde_json::Value = serde_json::from_str(line).unwrap();
            let (prompts, texts) = (&line["prompts"], &line["texts"]);
            for (prompt, expected) in prompts.as_array().unwrap().iter().zip(texts.as_array().unwrap()) {
                // A prompt of token ids has no text.
                let Some(expected) = expected.as_str() else { continue };
                let prompt: Vec<u32> = serde_json::from_value(prompt.clone()).unwrap();
                assert_eq!(text(&file, &prompt).unwrap(), expected.as_bytes());
                checked += 1;
            }
        }
        assert!(checked > 20, "{checked}");
    }

    #[test]
    fn refusals_name_the_field() {
        let byte_level = r#""decoder": {"type": "ByteLevel"},"#;
        let vocab = r#"{"a": 1}"#;
        let with = |more: &str| format!("{more}, {byte_level}");
        let many = format!(r#"{{"a": {}}}"#, u32::MAX);
        let long = format!(r#"{{"{}": 1}}"#, "a".repeat(2000));
        for (steps, vocab, parts) in [
            (byte_level, r#"{"a": -1}"#, ["model.vocab", "-1"]),
            (byte_level, r#"{"a": "b"}"#, ["model.vocab", "string"]),
            (byte_level, "7", ["model.vocab", "map"]),
            (byte_level, &many, ["model.vocab: token 4294967295", "1048576 tokens"]),
            (byte_level, &long, ["model.vocab: token 1", "1024 bytes"]),
            ("", vocab, ["decoder: none", "ByteLevel"]),
            (r#""decoder": {"type": "WordPiece"},"#, vocab, ["decoder: WordPiece", "ByteLevel"]),
            (r#""decoder": {"type": "Replace", "content": "x"},"#, vocab, ["decoder: Replace", "Metaspace"]),
            (r#""decoder": {},"#, vocab, ["decoder", "type"]),
            (&with(r#""normalizer": {"type": "Lowercase"}"#), vocab, ["normalizer: Lowercase", "NFC"]),
            (
                &with(r#""pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": true}"#),
                vocab,
                ["pre_tokenizer", "add_prefix_space"],
            ),
        ] {
            let error = file(steps, vocab).unwrap_err();
            assert!(parts.iter().all(|part| error.contains(part)), "{error}");
        }
        let scheme = r#""pre_tokenizer": {"type": "Metaspace", "prepend_scheme": "x"}, "decoder": {"type": "Metaspace"},"#;
        assert!(file(scheme, vocab).unwrap_err().contains("prepend_scheme"));
        let nested = |depth| {
            let (begin, end) = (r#"{"type": "Sequence", "decoders": ["#.repeat(depth), "]}".repeat(depth));
            file(&format!(r#""decoder": {begin}{end},"#), vocab).unwrap_err()
        };
        assert!(nested(1000).contains("recursion"), "{}", nested(1000));
        assert!(
            nested(100_000).contains("decoder: 3600000 bytes; allowed are 1048576"),
            "{}",
            nested(100_000)
        );
        let tokens: Vec<_> = (0..=MAX_TOKENS).map(|_| r#"["a", 0]"#).collect();
        let error =
            file(r#""decoder": {"type": "Metaspace"},"#, &format!("[{}]", tokens.join(","))).unwrap_err();
        assert!(error.contains("model.vocab") && error.contains("1048576"), "{error}");
        let tokens: Vec<_> = (0..=MAX_TOKENS).map(|_| r#"{"id": 0, "content": "a"}"#).collect();
        let added = format!(r#"{{"added_tokens": [{}], "model": {{"vocab": {{}}}}}}"#, tokens.join(","));
        let error = read(added.as_bytes()).unwrap_err();
        assert!(error.contains("added_tokens") && error.contains("1048576"), "{error}");
        for json in ["", "[]", "{}", "null", r#"{"model": {"vocab": {}}"#] {
            read(json.as_bytes()).unwrap_err();
        }
    }
}
