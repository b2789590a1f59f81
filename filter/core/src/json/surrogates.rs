//! Halves of surrogate pairs in a JSON text: clients that cut a text within a character write them.
//!
//! JSON can spell them and UTF-8 cannot. The EPP reads each as U+FFFD.

use memchr::memchr;

use super::string::escaped_unit;

/// The text with every escape of half a surrogate pair replaced by that of U+FFFD, which is as long; `None` if there is none.
pub(crate) fn without_lone_surrogates(json: &str) -> Option<String> {
    let bytes = json.as_bytes();
    let unit = |at: usize| escaped_unit(bytes.get(at..)?);
    let mut replaced = String::new();
    // The text before `done` is in `replaced`.
    let mut done = 0;
    let mut at = 0;
    while let Some(backslash) = bytes.get(at..).and_then(|rest| memchr(b'\\', rest)) {
        at += backslash;
        match (unit(at), unit(at + 6)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => at += 12,
            (Some(0xd800..=0xdfff), _) => {
                replaced.reserve_exact(json.len() - replaced.len());
                replaced.push_str(json.get(done..at)?);
                replaced.push_str("\\ufffd");
                at += 6;
                done = at;
            }
            (Some(_), _) => at += 6,
            // A backslash that is escaped does not begin an escape.
            (None, _) => at += 2,
        }
    }
    replaced.push_str(json.get(done..)?);
    (done > 0).then_some(replaced)
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
