//! A `tiktoken.model`: a line for each token, with its bytes in base64 and its id.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

use super::VocabularyFile;
use crate::tokenizer::vocabulary::{LeadingSpace, MAX_TOKENS, Vocabulary};

pub(super) fn read(bytes: &[u8]) -> Result<VocabularyFile, String> {
    let mut vocabulary = Vocabulary::new(LeadingSpace::Never);
    let lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).enumerate();
    for (at, line) in lines.filter(|(_, line)| !line.is_empty()) {
        let of = |problem: String| format!("line {}: {problem}", at + 1);
        if at >= MAX_TOKENS {
            return Err(of(format!("allowed are {MAX_TOKENS} tokens")));
        }
        let token = token(line).map_err(of)?;
        vocabulary.insert(token.0, &token.1, false).map_err(|error| of(error.to_string()))?;
    }
    if vocabulary.count() == 0 {
        return Err("has no tokens".to_owned());
    }
    Ok(VocabularyFile { vocabulary, normalizes: false, first_token: None })
}

/// The id and the bytes of a token.
fn token(line: &[u8]) -> Result<(u32, Vec<u8>), String> {
    let rule = || "must be base64, a space and a number".to_owned();
    let line = str::from_utf8(line).map_err(|_| rule())?;
    let (bytes, id) = line.split_once(' ').ok_or_else(rule)?;
    let bytes = STANDARD.decode(bytes).map_err(|error| error.to_string())?;
    Ok((id.trim_start().parse().map_err(|_| rule())?, bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_token() {
        let file = read(b"YQ== 0\nIGI= 1\r\n\n/w== 7\n").unwrap();
        let text =
            |tokens: &[u32]| file.vocabulary.text(tokens, true).map(|text| text.behind(false).to_vec());
        assert_eq!(text(&[0, 1, 7]), Some(b"a b\xff".to_vec()));
        assert_eq!(text(&[2]), None);
        assert_eq!(file.vocabulary.count(), 3);
    }

    #[test]
    fn refusals_name_the_line() {
        for (text, part) in [
            ("YQ== 0\nYQ==", "line 2: must be base64, a space and a number"),
            ("YQ== x", "line 1: must be base64"),
            ("YQ== -1", "line 1: must be base64"),
            ("!! 0", "line 1: Invalid symbol"),
            ("YQ== 1048576", "line 1: allowed are 1048576 tokens"),
            ("\n \n", "no tokens"),
        ] {
            let error = read(text.as_bytes()).unwrap_err();
            assert!(error.contains(part), "{error}");
        }
        assert!(read(b"\xff 0").unwrap_err().contains("line 1"));
        let many = "YQ== 0\n".repeat(MAX_TOKENS + 1);
        assert!(read(many.as_bytes()).unwrap_err().contains("allowed are 1048576 tokens"));
    }
}
