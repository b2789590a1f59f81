//! Comparing a JSON string with a text, however the string is escaped.

/// What a text begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match {
    /// The JSON string that was looked for, of this length.
    Whole(usize),
    /// The beginning of one, cut off by the end of the text.
    Beginning,
    /// Anything else.
    None,
}

/// Whether `json`, which begins with a quote, begins with a JSON string for `text`.
///
/// It looks no further than the first difference, so a part of `json` that is a [`Match::Beginning`] is at most six times as long
/// as `text`, and a quote.
pub(super) fn match_literal(json: &[u8], text: &str) -> Match {
    let mut left = text.chars();
    let mut at = 1;
    loop {
        let expected = left.next();
        match next_char(&json[at..], expected) {
            Ok(0) => return Match::Whole(at + 1),
            Ok(length) => at += length,
            Err(other) => return other,
        }
    }
}

/// The length of the letter `expected` at the beginning of `json`; 0 for the closing quote, where none is expected.
fn next_char(json: &[u8], expected: Option<char>) -> Result<usize, Match> {
    let Some(&first) = json.first() else { return Err(Match::Beginning) };
    let Some(expected) = expected else { return if first == b'"' { Ok(0) } else { Err(Match::None) } };
    if first == b'\\' {
        return escaped(json, expected);
    }
    if matches!(expected, '"' | '\\' | '\0'..='\x1f') {
        return Err(Match::None);
    }
    let mut utf8 = [0; 4];
    prefix(json, expected.encode_utf8(&mut utf8).as_bytes())
}

/// The same for a letter that is escaped.
fn escaped(json: &[u8], expected: char) -> Result<usize, Match> {
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
            for unit in expected.encode_utf16(&mut [0; 2]) {
                let rest = &json[length..];
                length += prefix(rest, b"\\u")?;
                length += hex(&json[length..], *unit)?;
            }
            return Ok(length);
        }
        _ => return Err(Match::None),
    };
    if short == expected { Ok(2) } else { Err(Match::None) }
}

/// The length of `expected`, if `json` begins with it.
fn prefix(json: &[u8], expected: &[u8]) -> Result<usize, Match> {
    if json.starts_with(expected) {
        return Ok(expected.len());
    }
    Err(if expected.starts_with(json) { Match::Beginning } else { Match::None })
}

/// The length of the four hexadecimal digits of `unit`, in any case.
fn hex(json: &[u8], unit: u16) -> Result<usize, Match> {
    let digits = format!("{unit:04x}");
    let json = &json[..json.len().min(4)];
    prefix(&json.to_ascii_lowercase(), digits.as_bytes())
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
