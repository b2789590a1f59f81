//! Mistral's `tekken.json`: the bytes of each token in base64, by rank. The ids of special tokens are their
//! ranks, and come first.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::{BoundedList, VocabularyFile, from_json};
use crate::tokenizer::vocabulary::{LeadingSpace, Vocabulary};

/// The special token before each text.
const FIRST_TOKEN: &str = "<s>";

/// The first special tokens of files that list none. Mistral's library knows further ones of them; no text of
/// a completion has these.
const FIRST_SPECIAL_TOKENS: [&str; 3] = ["<unk>", FIRST_TOKEN, "</s>"];

#[derive(Deserialize)]
struct TekkenFile {
    config: TekkenConfig,
    vocab: BoundedList<TekkenToken>,
    #[serde(default)]
    special_tokens: Option<BoundedList<TekkenSpecialToken>>,
}

#[derive(Deserialize)]
struct TekkenConfig {
    /// All tokens. The vocabulary may have more, which do not count.
    default_vocab_size: u32,
    /// The special tokens among them, listed or not.
    default_num_special_tokens: u32,
}

#[derive(Deserialize)]
struct TekkenToken {
    rank: u32,
    token_bytes: String,
}

#[derive(Deserialize)]
struct TekkenSpecialToken {
    rank: u32,
    token_str: String,
}

pub(super) fn read(json: &[u8]) -> Result<VocabularyFile, String> {
    let TekkenFile { config, vocab, special_tokens } = from_json(json)?;
    let TekkenConfig { default_vocab_size: size, default_num_special_tokens: special } = config;
    let own = size.checked_sub(special).ok_or_else(|| {
        format!("config: default_num_special_tokens is {special}, more than default_vocab_size, {size}")
    })?;
    let mut vocabulary = Vocabulary::new(LeadingSpace::Never);
    let mut first_token = None;
    let listed = special_tokens.unwrap_or_else(|| {
        let first = (0..special).zip(FIRST_SPECIAL_TOKENS);
        BoundedList(
            first.map(|(rank, token)| TekkenSpecialToken { rank, token_str: token.to_owned() }).collect(),
        )
    });
    for (at, TekkenSpecialToken { rank, token_str }) in listed.0.into_iter().enumerate() {
        if rank >= special {
            return Err(format!("special_tokens[{at}].rank: {rank}; allowed is less than {special}"));
        }
        let inserted = vocabulary.insert(rank, token_str.as_bytes(), true);
        inserted.map_err(|error| format!("special_tokens[{at}]: {error}"))?;
        if token_str == FIRST_TOKEN {
            first_token = Some(token_str);
        }
    }
    for (at, TekkenToken { rank, token_bytes }) in vocab.0.iter().enumerate() {
        if *rank >= own {
            continue;
        }
        let bytes = STANDARD.decode(token_bytes);
        let bytes = bytes.map_err(|error| format!("vocab[{at}].token_bytes: {error}"))?;
        let inserted = vocabulary.insert(special + rank, &bytes, false);
        inserted.map_err(|error| format!("vocab[{at}]: {error}"))?;
    }
    Ok(VocabularyFile { vocabulary, normalizes: false, first_token })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tokenizer::vocabulary::MAX_TOKEN_BYTES;

    /// A file of 3 special tokens and the tokens `a` and 0xff; the vocabulary size leaves out the third one.
    fn file(special_tokens: &str) -> String {
        format!(
            r#"{{"config": {{"pattern": "x", "num_vocab_tokens": 3, "default_vocab_size": 5, "default_num_special_tokens": 3, "version": "v3"}},
                "vocab": [{{"rank": 0, "token_bytes": "YQ==", "token_str": "a"}}, {{"rank": 1, "token_bytes": "/w==", "token_str": null}},
                    {{"rank": 2, "token_bytes": "Yg==", "token_str": "b"}}]{special_tokens}}}"#
        )
    }

    fn text(file: &VocabularyFile, tokens: &[u32]) -> Option<Vec<u8>> {
        file.vocabulary.text(tokens, true).map(|text| text.behind(false).to_vec())
    }

    #[test]
    fn tokens_follow_the_special_tokens() {
        let listed = r#", "special_tokens": [{"rank": 2, "token_str": "[INST]", "is_control": true},
            {"rank": 1, "token_str": "<s>", "is_control": true}]"#;
        let listed = read(file(listed).as_bytes()).unwrap();
        assert_eq!(text(&listed, &[1, 2, 3, 4]), Some(b"<s>[INST]a\xff".to_vec()));
        assert_eq!(
            (text(&listed, &[0]), text(&listed, &[5])),
            (None, None),
            "not listed, and beyond the size"
        );
        assert_eq!((listed.first_token.as_deref(), listed.normalizes), (Some("<s>"), false));
        for unlisted in ["", r#", "special_tokens": null"#] {
            let file = read(file(unlisted).as_bytes()).unwrap();
            assert_eq!(text(&file, &[0, 1, 2, 3]), Some(b"<unk><s></s>a".to_vec()));
            assert_eq!(file.first_token.as_deref(), Some("<s>"));
        }
        let without = read(file(r#", "special_tokens": []"#).as_bytes()).unwrap();
        assert_eq!((without.first_token, without.vocabulary.count()), (None, 2));
    }

    #[test]
    fn refusals_name_the_field() {
        let long = format!(r#""{}""#, "YWFh".repeat(MAX_TOKEN_BYTES));
        let file = file("");
        for (from, to, part) in [
            ("\"config\"", "\"settings\"", "config"),
            ("\"YQ==\"", "\"!\"", "vocab[0].token_bytes"),
            ("\"YQ==\"", "7", "vocab[0].token_bytes"),
            ("\"YQ==\"", &long, "vocab[0]: allowed are tokens of 1024 bytes"),
            ("\"rank\": 1", "\"rank\": -1", "vocab[1].rank"),
            (
                "\"default_num_special_tokens\": 3",
                "\"default_num_special_tokens\": 6",
                "default_vocab_size, 5",
            ),
            (
                "\"vocab\"",
                r#""special_tokens": [{"rank": 3, "token_str": "x"}], "vocab""#,
                "special_tokens[0].rank: 3; allowed is less than 3",
            ),
            ("\"default_vocab_size\": 5", "\"default_vocab_size\": 4294967296", "config.default_vocab_size"),
        ] {
            let error = read(file.replace(from, to).as_bytes()).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        let huge =
            file.replace("\"default_num_special_tokens\": 3", "\"default_num_special_tokens\": 4294967294");
        let huge = huge.replace("\"default_vocab_size\": 5", "\"default_vocab_size\": 4294967295");
        assert!(read(huge.as_bytes()).unwrap_err().contains("vocab[0]: allowed are 1048576 tokens"));
    }
}
