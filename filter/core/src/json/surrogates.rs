//! Halves of surrogate pairs in a JSON text, which clients write that cut a text within a letter.
//!
//! JSON can spell them and UTF-8 cannot. The EPP reads each as U+FFFD.

/// The text with every escape of half a surrogate pair replaced by that of U+FFFD, which is as long; `None` if there is none.
pub(crate) fn without_lone_surrogates(json: &str) -> Option<String> {
    let mut replaced = String::new();
    let mut done = 0;
    let mut at = 0;
    while let Some(backslash) = json[at..].bytes().position(|byte| byte == b'\\') {
        at += backslash;
        match (unit(json, at), unit(json, at + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => at += 12,
            (Some(0xd800..=0xdfff), _) => {
                replaced.reserve_exact(json.len() - replaced.len());
                replaced.push_str(&json[done..at]);
                replaced.push_str("\\ufffd");
                at += 6;
                done = at;
            }
            (Some(_), _) => at += 6,
            // What is escaped here has one byte; in a text that is not JSON it may be any letter.
            (None, _) => at += 1 + json[at + 1..].chars().next().map_or(0, char::len_utf8),
        }
    }
    replaced.push_str(&json[done..]);
    (done > 0).then_some(replaced)
}

/// The UTF-16 unit that is escaped at this place.
fn unit(json: &str, at: usize) -> Option<u16> {
    let digits = json.get(at..at + 6)?.strip_prefix("\\u")?;
    let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    u16::from_str_radix(digits, 16).ok().filter(|_| is_hex)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test;

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
}
