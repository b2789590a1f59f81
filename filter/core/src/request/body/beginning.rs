//! The beginning of a body whose rest was not received yet.

use memchr::memchr;

use crate::json::{MAX_NESTED, end_of_string, escaped_unit};

/// Completes the beginning of a JSON text: closes its open strings, arrays and objects, and leaves out a
/// member or number that has just begun. `None` if there is nothing to read yet, or if the bytes are not text
/// or nested too deep.
///
/// A text that is malformed in another way stays malformed.
pub(super) fn complete(mut beginning: Vec<u8>) -> Option<String> {
    let (end, closers) = last_whole_value(whole_characters(&beginning)?)?;
    beginning.truncate(end);
    // The text is long and its capacity exact: the capacity must not be doubled for a few bytes.
    beginning.reserve_exact(closers.len());
    beginning.extend(closers);
    String::from_utf8(beginning).ok()
}

/// The offset behind the last value that can be read, and the text that closes everything open there.
fn last_whole_value(text: &str) -> Option<(usize, Vec<u8>)> {
    let bytes = text.as_bytes();
    let mut open = Vec::new();
    // The offset behind the last complete value, and the number of `open` there.
    let mut whole = None;
    let mut wants_key = false;
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'{' | b'[' => {
                open.push(byte);
                if open.len() > MAX_NESTED {
                    return None;
                }
                wants_key = byte == b'{';
                whole = Some((at, open.len()));
            }
            b'}' | b']' => {
                open.pop()?;
                wants_key = false;
                whole = Some((at, open.len()));
            }
            b',' => {
                wants_key = open.last() == Some(&b'{');
                // Only what follows a number, `true` or `null` shows that it is complete.
                whole = Some((at - 1, open.len()));
            }
            b':' => wants_key = false,
            b'"' => match end_of_string(bytes, at) {
                Some(end) if wants_key => at = end,
                Some(end) => {
                    at = end;
                    whole = Some((end, open.len()));
                }
                None if wants_key => break,
                None => return Some((last_whole_character(bytes, at), closers(b"\"", &open))),
            },
            _ => {}
        }
    }
    let (end, depth) = whole?;
    Some((end, closers(b"", open.get(..depth)?)))
}

fn closers(quote: &[u8], open: &[u8]) -> Vec<u8> {
    let closers = open.iter().rev().map(|&opener| if opener == b'{' { b'}' } else { b']' });
    quote.iter().copied().chain(closers).collect()
}

/// The bytes as text, without the last character if it is incomplete.
fn whole_characters(bytes: &[u8]) -> Option<&str> {
    match core::str::from_utf8(bytes) {
        Ok(text) => Some(text),
        Err(error) if error.error_len().is_none() => {
            core::str::from_utf8(bytes.get(..error.valid_up_to())?).ok()
        }
        Err(_) => None,
    }
}

/// The offset behind the last whole character of the string whose contents begin at `at` and do not end in
/// this text.
fn last_whole_character(bytes: &[u8], mut at: usize) -> usize {
    while let Some(rest) = bytes.get(at..)
        && let Some(length) = memchr(b'\\', rest)
    {
        at += length;
        let after = |offset: usize| bytes.get(at + offset..).unwrap_or_default();
        let length = match (bytes.get(at + 1), escaped_unit(after(0))) {
            // The first half of a surrogate pair means something else without the second, which may yet come.
            (_, Some(0xd800..=0xdbff)) if matches!(after(6), [] | [b'\\'] | [b'\\', b'u', ..]) => 12,
            (Some(b'u'), _) => 6,
            _ => 2,
        };
        if bytes.len() < at + length {
            return at;
        }
        at += length;
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::test;

    fn read(beginning: &str) -> Option<Value> {
        complete(beginning.into()).map(|text| serde_json::from_str(&text).expect(&text))
    }

    #[test]
    fn what_has_come_whole_is_kept_and_what_is_open_is_closed() {
        for (beginning, expected) in [
            (
                r#"{"model":"m","messages":[{"role":"user","content":"Hel"#,
                json!({"model": "m", "messages": [{"role": "user", "content": "Hel"}]}),
            ),
            (r#"{"a":[1,2"#, json!({"a": [1]})),
            (r#"{"a":1,"b"#, json!({"a": 1})),
            (r#"{"a":1,"b""#, json!({"a": 1})),
            (r#"{"a":1,"b":"#, json!({"a": 1})),
            (r#"{"a":1,"b":tr"#, json!({"a": 1})),
            (r#"{"a":"x""#, json!({"a": "x"})),
            (r#"{"a":{"b":{}"#, json!({"a": {"b": {}}})),
            (r#"{"a":"x\"#, json!({"a": "x"})),
            (r#"{"a":"x\""#, json!({"a": "x\""})),
            (r#"{"a":"x\u00e"#, json!({"a": "x"})),
            (r#"{"a":"x\ud83d\ude0"#, json!({"a": "x"})),
            (r#"{"a":"x\ud83d\ude00"#, json!({"a": "x😀"})),
            (r#"{"a":"x\ud83d\"#, json!({"a": "x"})),
            (r#"{"a":"{[,:"#, json!({"a": "{[,:"})),
            (r#" { "a" : "x" } "#, json!({"a": "x"})),
        ] {
            assert_eq!(read(beginning), Some(expected), "{beginning}");
        }
    }

    #[test]
    fn nothing_is_made_of_what_cannot_be_read() {
        let deep = "[".repeat(200);
        for beginning in ["", " ", "12", "tru", "}", deep.as_str()] {
            assert_eq!(complete(beginning.into()), None, "{beginning}");
        }
        assert_eq!(complete(b"{\"a\":\"\xff\",\"b\":1,".into()), None);
    }

    #[test]
    fn wherever_a_text_is_cut_it_can_be_read_up_to_there() {
        let whole = json!({
            "model": "m\\\"é😀\u{1}", "n": -1.5e3, "flags": [true, null, [], {}, "\\u"],
            "messages": [{"role": "user", "content": [{"type": "text", "text": "ä\tb"}]}],
        });
        for text in [
            whole.to_string(),
            whole.to_string().replace('😀', "\\uD83D\\uDE00"),
            serde_json::to_string_pretty(&whole).unwrap(),
        ] {
            for cut in 1..=text.len() {
                let completed = complete(text.as_bytes()[..cut].into()).unwrap();
                let value: Value =
                    serde_json::from_str(&completed).unwrap_or_else(|error| panic!("{completed}: {error}"));
                assert!(is_beginning(&value, &whole), "{completed}");
            }
            assert_eq!(read(&text), Some(whole.clone()));
        }
    }

    #[test]
    fn half_a_surrogate_pair_does_not_hide_the_end_of_its_string() {
        for text in [r#"{"a":"\ud83d","b":"#, r#"{"a":"\ud83d\n","b":"#, r#"{"a":"\ud83d\u0041","b":"#] {
            let end = text.find(',').unwrap();
            assert_eq!(complete(text.into()), Some(text[..end].to_owned() + "}"));
        }
    }

    fn is_beginning(value: &Value, whole: &Value) -> bool {
        match (value, whole) {
            (Value::Object(some), Value::Object(all)) => {
                some.iter().all(|(key, value)| is_beginning(value, &all[key]))
            }
            (Value::Array(some), Value::Array(all)) => {
                some.len() <= all.len()
                    && some.iter().zip(all).all(|(value, whole)| is_beginning(value, whole))
            }
            (Value::String(some), Value::String(all)) => all.starts_with(some.as_str()),
            _ => value == whole,
        }
    }
}
