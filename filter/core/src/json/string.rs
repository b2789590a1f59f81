//! Strings of a JSON text, as they are spelled.

use memchr::memchr2;

/// A string whose text may come in pieces.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OpenString {
    after_backslash: bool,
}

impl OpenString {
    /// Reads the next piece. Returns the offset behind the closing quote; `None` if the string goes on behind the piece.
    pub(crate) fn end(&mut self, piece: &[u8]) -> Option<usize> {
        if piece.is_empty() {
            return None;
        }
        let mut at = usize::from(core::mem::take(&mut self.after_backslash));
        loop {
            at += memchr2(b'"', b'\\', piece.get(at..)?)?;
            if piece.get(at) == Some(&b'"') {
                return Some(at + 1);
            }
            at += 2;
            self.after_backslash = at > piece.len();
        }
    }
}

/// The offset behind the string whose opening quote stands before `from`; `None` if the text ends before the string.
pub(crate) fn end_of_string(text: &[u8], from: usize) -> Option<usize> {
    OpenString::default().end(text.get(from..)?).map(|length| from + length)
}

/// The UTF-16 unit of the escape `\uXXXX` that `text` begins with, if it begins with one.
pub(crate) fn escaped_unit(text: &[u8]) -> Option<u16> {
    let digits = text.strip_prefix(b"\\u")?.first_chunk::<4>()?;
    let digits = core::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
    u16::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

    #[test]
    fn a_string_ends_at_its_first_quote_that_is_not_escaped_however_it_is_cut() {
        for (text, length) in [
            (r#"","#, Some(1)),
            (r#"abc" x"#, Some(4)),
            (r#"a\"b\\" x"#, Some(7)),
            (r#"\\\"""#, Some(5)),
            (r#"\u0022""#, Some(7)),
            ("abc", None),
            (r"abc\", None),
            (r#"abc\""#, None),
            ("", None),
        ] {
            assert_eq!(end_of_string(text.as_bytes(), 0), length, "{text}");
            for cut in 0..=text.len() {
                let (first, second) = text.as_bytes().split_at(cut);
                let mut string = OpenString::default();
                let end = string.end(first).or_else(|| Some(cut + string.end(second)?));
                assert_eq!(end, length, "{text} cut at {cut}");
            }
        }
        assert_eq!(end_of_string(b"abc", 4), None);
    }

    #[test]
    fn an_escaped_unit_has_four_hexadecimal_digits() {
        for (text, unit) in [
            (r"\u0041", Some(0x41)),
            (r"\uD83d\ude00", Some(0xd83d)),
            (r"\u004", None),
            (r"\u+041", None),
            (r"\u00g1", None),
            (r"\n0041", None),
            ("", None),
        ] {
            assert_eq!(escaped_unit(text.as_bytes()), unit, "{text}");
        }
    }
}
