//! Comparing a JSON string with a text, however the string is escaped.

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
/// Reads no further than the first difference, so the part of `json` that is a [`Match::Beginning`] is at most six times as long
/// as `text`, and a quote.
pub(crate) fn match_literal(json: &[u8], text: &str) -> Match {
    let mut left = text.chars();
    let mut at = 1;
    loop {
        let expected = left.next();
        match next_char(json.get(at..).unwrap_or_default(), expected) {
            Ok(0) => return Match::Whole(at + 1),
            Ok(length) => at += length,
            Err(other) => return other,
        }
    }
}

/// The length of the character `expected` at the beginning of `json`; 0 for the closing quote, where no character is
/// expected.
fn next_char(json: &[u8], expected: Option<char>) -> Result<usize, Match> {
    let Some(&first) = json.first() else { return Err(Match::Beginning) };
    let Some(expected) = expected else { return if first == b'"' { Ok(0) } else { Err(Match::None) } };
    if first == b'\\' {
        return escaped_char(json, expected);
    }
    // JSON has no other spelling for these than an escape.
    if matches!(expected, '"' | '\\' | '\0'..='\x1f') {
        return Err(Match::None);
    }
    let mut utf8 = [0; 4];
    prefix(json, expected.encode_utf8(&mut utf8).as_bytes())
}

/// The length of the escape of `expected` at the beginning of `json`.
fn escaped_char(json: &[u8], expected: char) -> Result<usize, Match> {
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
            for &mut unit in expected.encode_utf16(&mut [0; 2]) {
                length += escaped_unit(json.get(length..).unwrap_or_default(), unit)?;
            }
            return Ok(length);
        }
        _ => return Err(Match::None),
    };
    if short == expected { Ok(2) } else { Err(Match::None) }
}

/// The length of the escape of a UTF-16 unit, its four hexadecimal digits in any case.
fn escaped_unit(json: &[u8], unit: u16) -> Result<usize, Match> {
    let length = prefix(json, b"\\u")?;
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
fn prefix(json: &[u8], expected: &[u8]) -> Result<usize, Match> {
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
