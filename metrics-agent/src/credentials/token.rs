//! Bearer tokens.

use core::fmt;

use hyper::header::HeaderValue;
use subtle::{Choice, ConstantTimeEq};

use super::error::CredentialError;
use super::files::File;

/// Longest token.
const MAX_BYTES: usize = 4096;

/// Tokens of which a client shows one. Several, so that a new one can be handed out before the old one ends.
pub struct Tokens(Vec<Vec<u8>>);

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens", self.0.len())
    }
}

impl Tokens {
    /// One token on each line; empty lines do not count.
    pub(crate) fn read((path, bytes): &File) -> Result<Self, CredentialError> {
        let lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
        let tokens: Vec<_> = lines.filter(|line| !line.is_empty()).map(<[u8]>::to_vec).collect();
        let legal = |token: &Vec<u8>| token.len() <= MAX_BYTES && token.iter().all(u8::is_ascii_graphic);
        if tokens.is_empty() || !tokens.iter().all(legal) {
            let problem = format!(
                "holds no token; allowed is one on each line, of up to {MAX_BYTES} visible ASCII characters"
            );
            return Err(CredentialError::new(path, problem));
        }
        Ok(Self(tokens))
    }

    /// Whether the value of an `authorization` header shows one of the tokens. How long the answer takes tells a client
    /// nothing but how long the tokens are.
    pub fn allow(&self, authorization: &[u8]) -> bool {
        let Some((scheme, shown)) = authorization.split_at_checked(b"bearer ".len()) else { return false };
        let same = self.0.iter().fold(Choice::from(0), |same, token| same | token.ct_eq(shown));
        scheme.eq_ignore_ascii_case(b"bearer ") && bool::from(same)
    }

    /// The header that shows the first of the tokens.
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
        for (shown, allowed) in [
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
            assert_eq!(tokens.allow(shown.as_bytes()), allowed, "{shown:?}");
        }
    }

    #[test]
    fn a_file_without_a_legal_token_is_refused_and_its_text_is_not_repeated() {
        let long = "x".repeat(MAX_BYTES + 1);
        for text in ["", " \n", "sec ret", "s\u{e9}cret", &long] {
            let error = read(text).unwrap_err();
            assert!(error.contains("one on each line") && !error.contains("cret"), "{error}");
        }
    }

    #[test]
    fn nothing_of_a_token_is_in_its_debug_output() {
        let tokens = read("secret").unwrap();
        assert_eq!(format!("{tokens:?} {:?}", tokens.header()), "1 tokens Sensitive");
    }
}
