//! Bearer tokens.

use core::fmt;

use hyper::header::HeaderValue;
use subtle::{Choice, ConstantTimeEq};

use super::error::CredentialError;
use super::files::File;

/// Longest token, in bytes.
const MAX_BYTES: usize = 4096;

/// Bearer tokens, each of them valid. Several, so that clients can change to a new one before the old one is removed.
pub struct Tokens(Vec<Vec<u8>>);

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens", self.0.len())
    }
}

impl Tokens {
    /// Reads one token from each line; empty lines are skipped.
    pub(crate) fn read((path, bytes): &File) -> Result<Self, CredentialError> {
        let lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let tokens: Vec<_> = lines.filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect();
        let is_valid = |token: &Vec<u8>| token.len() <= MAX_BYTES && token.iter().all(u8::is_ascii_graphic);
        if tokens.is_empty() || !tokens.iter().all(is_valid) {
            let problem = format!(
                "has no valid token; allowed is one on each line, of up to {MAX_BYTES} visible ASCII characters"
            );
            return Err(CredentialError::new(path, problem));
        }
        Ok(Self(tokens))
    }

    /// Whether the value of an `authorization` header has one of the tokens. The time that this takes depends only on the
    /// tokens' lengths.
    pub fn allow(&self, authorization: &[u8]) -> bool {
        let Some((scheme, token)) = authorization.split_at_checked(b"bearer ".len()) else { return false };
        let same = self.0.iter().fold(Choice::from(0), |same, own| same | own.ct_eq(token));
        scheme.eq_ignore_ascii_case(b"bearer ") && bool::from(same)
    }

    /// The `authorization` header with the first token.
    pub(crate) fn header(&self) -> HeaderValue {
        let value = [b"Bearer ", self.0[0].as_slice()].concat();
        let mut value = HeaderValue::from_maybe_shared(bytes::Bytes::from(value))
            .expect("a token is of visible ASCII characters");
        value.set_sensitive(true);
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Tokens, String> {
        Tokens::read(&("token".into(), text.into())).map_err(|error| error.to_string())
    }

    #[test]
    fn each_line_is_a_token() {
        let tokens = read("first\r\n\nsecond\n").unwrap();
        for (header, allowed) in [
            ("Bearer first", true),
            ("bearer second", true),
            ("Bearer third", false),
            ("Bearer firs", false),
            ("Bearer first ", false),
            ("Bearer ", false),
            ("Bearer", false),
            ("", false),
            ("Basic  first", false),
            ("first", false),
        ] {
            assert_eq!(tokens.allow(header.as_bytes()), allowed, "{header:?}");
        }
    }

    #[test]
    fn a_file_without_a_valid_token_is_refused_and_its_text_is_not_repeated() {
        let long = "x".repeat(MAX_BYTES + 1);
        for text in ["", " \n", "sec ret", "s\u{e9}cret", &long] {
            let error = read(text).unwrap_err();
            assert!(error.contains("one on each line") && !error.contains("cret"), "{error}");
        }
    }

    #[test]
    fn debug_output_has_no_part_of_a_token() {
        let tokens = read("secret").unwrap();
        assert_eq!(format!("{tokens:?} {:?}", tokens.header()), "1 tokens Sensitive");
    }
}
