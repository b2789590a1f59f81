//! Strings of a JSON text as they are spelled: finding their end, comparing them, and repairing surrogates.

use core::ops::Deref;
use std::borrow::Cow;

use memchr::memchr;

use super::scan::quote_or_backslash;

/// A string without its quotes and escapes.
#[derive(Clone, Copy)]
pub(crate) struct Str<'a, 't> {
    text: &'t str,
    /// The same text as a part of the body; `None` if the body spells it with escapes.
    in_body: Option<&'a str>,
}

impl Deref for Str<'_, '_> {
    type Target = str;

    fn deref(&self) -> &str {
        self.text
    }
}

impl<'a> Str<'a, '_> {
    /// A part of the text.
    pub(super) fn in_text(text: &'a str) -> Str<'a, 'a> {
        Str { text, in_body: Some(text) }
    }

    /// A text that is not a part of the body.
    pub(super) fn copied(text: &str) -> Str<'a, '_> {
        Str { text, in_body: None }
    }

    pub(crate) fn into_cow(self) -> Cow<'a, str> {
        self.in_body.map_or_else(|| Cow::Owned(self.text.to_owned()), Cow::Borrowed)
    }

    /// The text as a part of the body; `None` if the body spells it with escapes.
    pub(crate) fn in_body(self) -> Option<&'a str> {
        self.in_body
    }
}

/// A string whose text may come in chunks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OpenString {
    after_backslash: bool,
}

impl OpenString {
    /// Reads the next chunk. Returns the offset behind the closing quote; `None` if the string continues in
    /// the next chunk.
    pub(crate) fn end(&mut self, chunk: &[u8]) -> Option<usize> {
        // An empty chunk has no byte that the backslash escapes, so the flag stays.
        if chunk.is_empty() {
            return None;
        }
        let mut at = usize::from(core::mem::take(&mut self.after_backslash));
        loop {
            at += quote_or_backslash(chunk.get(at..)?)?;
            if chunk.get(at) == Some(&b'"') {
                return Some(at + 1);
            }
            at += 2;
            self.after_backslash = at > chunk.len();
        }
    }
}

/// The offset behind the string whose opening quote is before `from`; `None` if the text ends before the
/// string.
pub(crate) fn end_of_string(text: &[u8], from: usize) -> Option<usize> {
    OpenString::default().end(text.get(from..)?).map(|length| from + length)
}

/// The UTF-16 unit of the escape `\uXXXX` that `text` begins with, if it begins with one.
pub(crate) fn escaped_unit(text: &[u8]) -> Option<u16> {
    let digits = text.strip_prefix(b"\\u")?.first_chunk::<4>()?;
    digits.iter().try_fold(0, |unit: u16, &digit| {
        let digit = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            b'A'..=b'F' => digit - b'A' + 10,
            _ => return None,
        };
        Some(unit << 4 | u16::from(digit))
    })
}

/// Replaces each unpaired surrogate escape by `\ufffd`, which has the same length. `None` if there are none.
pub(crate) fn without_lone_surrogates(json: &str) -> Option<String> {
    let bytes = json.as_bytes();
    let unit = |at: usize| escaped_unit(bytes.get(at..)?);
    let mut replaced = None::<Vec<u8>>;
    let mut at = 0;
    while let Some(rest) = bytes.get(at..) {
        // Where escapes follow each other, a search for the next one costs more than it saves.
        if rest.first() != Some(&b'\\') {
            let Some(backslash) = memchr(b'\\', rest) else { break };
            at += backslash;
        }
        at += match unit(at) {
            Some(0xd800..=0xdbff) if matches!(unit(at + 6), Some(0xdc00..=0xdfff)) => 12,
            Some(0xd800..=0xdfff) => {
                let copy = replaced.get_or_insert_with(|| bytes.to_vec());
                copy.get_mut(at..at + 6)?.copy_from_slice(b"\\ufffd");
                6
            }
            Some(_) => 6,
            // A backslash that is escaped does not begin an escape.
            None => 2,
        };
    }
    String::from_utf8(replaced?).ok()
}

/// Replaces each number that is not finite (`NaN`, `Infinity`, `-Infinity`, `1e999`), as Python writes and
/// reads them, by a fraction and blanks of the same length. `None` if there are none.
pub(crate) fn with_finite_numbers(json: &str) -> Option<String> {
    let bytes = json.as_bytes();
    let mut replaced: Option<Vec<u8>> = None;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        if byte == b'"' {
            at = end_of_string(bytes, at + 1).unwrap_or(bytes.len());
            continue;
        }
        let is_part = |byte: &&u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        let word = json.get(at..).unwrap_or_default();
        let length = word.bytes().take_while(|byte| is_part(&byte)).count();
        let word = word.get(..length).unwrap_or_default();
        let digits = word.strip_prefix('-').unwrap_or(word);
        let is_infinite = match digits {
            "NaN" | "Infinity" => true,
            _ => {
                digits.starts_with(|first: char| first.is_ascii_digit())
                    && digits.parse().is_ok_and(f64::is_infinite)
            }
        };
        if is_infinite {
            let target = replaced.get_or_insert_with(|| bytes.to_vec());
            for (place, byte) in target
                .iter_mut()
                .skip(at)
                .take(length)
                .zip(b"0.5".iter().chain([&b' '; 8].into_iter().cycle()))
            {
                *place = *byte;
            }
        }
        at += length.max(1);
    }
    replaced.and_then(|replaced| String::from_utf8(replaced).ok())
}

/// Whether a JSON text begins with a string.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Match {
    /// It does; the length of the string with its quotes.
    Whole(usize),
    /// It is the beginning of one: the text ends within the string.
    Beginning,
    /// It does not.
    None,
}

/// Whether `json`, which begins with a quote, begins with a JSON string that spells `text`.
///
/// Reads no further than the first difference, so a [`Match::Beginning`] has at most six times the length of
/// `text`, and a quote.
pub(crate) fn match_literal(json: &[u8], text: &str) -> Match {
    let mut left = text.chars();
    let mut at = 1;
    loop {
        let expected = left.next();
        match match_char(json.get(at..).unwrap_or_default(), expected) {
            Ok(0) => return Match::Whole(at + 1),
            Ok(length) => at += length,
            Err(other) => return other,
        }
    }
}

/// The length of the character `expected` at the beginning of `json`; 0 for the closing quote, where no
/// character is expected.
fn match_char(json: &[u8], expected: Option<char>) -> Result<usize, Match> {
    let Some(&first) = json.first() else { return Err(Match::Beginning) };
    let Some(expected) = expected else { return if first == b'"' { Ok(0) } else { Err(Match::None) } };
    if first == b'\\' {
        return match_escaped_char(json, expected);
    }
    // JSON has no other spelling for these than an escape.
    if matches!(expected, '"' | '\\' | '\0'..='\x1f') {
        return Err(Match::None);
    }
    let mut utf8 = [0; 4];
    match_prefix(json, expected.encode_utf8(&mut utf8).as_bytes())
}

/// The length of the escape of `expected` at the beginning of `json`.
fn match_escaped_char(json: &[u8], expected: char) -> Result<usize, Match> {
    let Some(&kind) = json.get(1) else { return Err(Match::Beginning) };
    let short = match kind {
        b'"' | b'\\' | b'/' => char::from(kind),
        b'b' => '\x08',
        b'f' => '\x0c',
        b'n' => '\n',
        b'r' => '\r',
        b't' => '\t',
        b'u' => {
            let mut length = 0;
            // Characters beyond U+FFFF are a pair of surrogates, each with an escape of its own.
            for &mut unit in expected.encode_utf16(&mut [0; 2]) {
                length += match_escaped_unit(json.get(length..).unwrap_or_default(), unit)?;
            }
            return Ok(length);
        }
        _ => return Err(Match::None),
    };
    if short == expected { Ok(2) } else { Err(Match::None) }
}

/// The length of the escape of a UTF-16 unit, its four hexadecimal digits in any case.
fn match_escaped_unit(json: &[u8], unit: u16) -> Result<usize, Match> {
    let length = match_prefix(json, b"\\u")?;
    let digits = json.get(length..).unwrap_or_default();
    for (place, expected) in [12, 8, 4, 0].map(|shift| unit >> shift & 0xf).into_iter().enumerate() {
        let Some(&digit) = digits.get(place) else { return Err(Match::Beginning) };
        if char::from(digit).to_digit(16) != Some(expected.into()) {
            return Err(Match::None);
        }
    }
    Ok(length + 4)
}

/// The length of `expected`, if `json` begins with it.
fn match_prefix(json: &[u8], expected: &[u8]) -> Result<usize, Match> {
    if json.starts_with(expected) {
        return Ok(expected.len());
    }
    Err(if expected.starts_with(json) { Match::Beginning } else { Match::None })
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

    #[test]
    fn halves_become_the_replacement_character_and_pairs_stay() {
        for (json, expected) in [
            (r#""\ud83d""#, r#""\ufffd""#),
            (r#""\uDE00\ud83d""#, r#""\ufffd\ufffd""#),
            (r#""\ud83dx\ude00é""#, r#""\ufffdx\ufffdé""#),
            (r#""\ud83d\ud83d\ude00""#, r#""\ufffd\ud83d\ude00""#),
            (r#""\ud83d\n\\ud83d\u00e9""#, r#""\ufffd\n\\ud83d\u00e9""#),
        ] {
            assert_eq!(without_lone_surrogates(json).as_deref(), Some(expected), "{json}");
        }
    }

    #[test]
    fn a_text_without_halves_stays_as_it_is() {
        for json in
            ["", r#""é😀\ud83d\ude00""#, r#""\\ud83d""#, r#""\ud83""#, r"\", r"\é", r"\u+d83d", r"\ud83"]
        {
            assert_eq!(without_lone_surrogates(json), None, "{json}");
        }
    }

    #[test]
    fn every_spelling_of_a_name_is_found() {
        for (json, text) in [
            (r#""org/model""#, "org/model"),
            (r#""org\/model""#, "org/model"),
            (r#""org\u002fmodel""#, "org/model"),
            (r#""org\u002Fmodel""#, "org/model"),
            (r#""\u006d\u006f""#, "mo"),
            (r#""\u00e9é""#, "éé"),
            (r#""\ud83d\uDE00😀""#, "😀😀"),
            (r#""a\"b\\c\u0022\u005c""#, "a\"b\\c\"\\"),
            (r#""\b\f\n\r\t\u0000\u001f""#, "\u{8}\u{c}\n\r\t\0\u{1f}"),
        ] {
            assert_eq!(
                match_literal(format!("{json}, x").as_bytes(), text),
                Match::Whole(json.len()),
                "{json}"
            );
            for end in 1..json.len() {
                assert_eq!(
                    match_literal(&json.as_bytes()[..end], text),
                    Match::Beginning,
                    "{}",
                    &json[..end]
                );
            }
        }
    }

    #[test]
    fn anything_else_is_not() {
        for (json, text) in [
            (r#""org/mode""#, "org/model"),
            (r#""org/models""#, "org/model"),
            (r#""org\\/model""#, "org/model"),
            (r#""\u006e""#, "m"),
            (r#""\ud83dx""#, "😀"),
            (r#""\ude00""#, "😀"),
            (r#""\x6d""#, "m"),
            ("\"\n\"", "\n"),
            (r#""a\""#, "a"),
        ] {
            assert_eq!(match_literal(json.as_bytes(), text), Match::None, "{json}");
        }
    }
}
