use proptest::prelude::*;

use super::*;
use crate::test;

fn restore() -> Restore {
    Restore::new("llama-canary", "llama").unwrap()
}

/// The bytes that are sent for each of these chunks of one response.
fn sent(mut restore: Restore, chunks: &[&[u8]]) -> Vec<Vec<u8>> {
    let last = chunks.len() - 1;
    let send = |(index, &chunk): (usize, &&[u8])| {
        restore.chunk(chunk, index == last).unwrap_or_else(|| chunk.to_vec())
    };
    let sent = chunks.iter().enumerate().map(send).collect();
    assert!(!restore.is_holding(), "{chunks:?}");
    sent
}

/// The same response by the rule in its simplest form: walks through the objects with the key that leads to
/// each of them.
fn replaced(text: &[u8], target: &str, name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut path: Vec<&[u8]> = Vec::new();
    let mut at = 0;
    while at < text.len() {
        let mut end = at + 1;
        match (text[at], path.len()) {
            (b'{', _) => path.push(b""),
            (b'}', 1..) => drop(path.pop()),
            (b'"', depth @ 1..) => {
                end = end_of_text(text, at);
                let value = value_behind(text, end);
                let key = text[at..end].strip_prefix(b"\"").and_then(|key| key.strip_suffix(b"\""));
                let is_held = depth == 2 && matches!(path[1], b"response" | b"message");
                match (key, value.and_then(|value| text.get(value))) {
                    (Some(b"model"), Some(b'"')) if depth == 1 || is_held => {
                        let value = value.unwrap();
                        end = end_of_text(text, value);
                        let mut strings =
                            serde_json::Deserializer::from_slice(&text[value..]).into_iter::<String>();
                        if strings.next().is_some_and(|found| found.is_ok_and(|found| found == target)) {
                            out.extend_from_slice(&text[at..value]);
                            out.extend(serde_json::to_string(name).unwrap().bytes());
                            at = value + strings.byte_offset();
                            continue;
                        }
                    }
                    (Some(key @ (b"response" | b"message")), Some(b'{')) if depth == 1 => {
                        end = value.unwrap() + 1;
                        path.push(key);
                    }
                    _ => {}
                }
            }
            _ => {}
        }
        out.extend_from_slice(&text[at..end]);
        at = end;
    }
    out
}

/// The offset behind the string that begins at this offset, or behind the text.
fn end_of_text(text: &[u8], start: usize) -> usize {
    let mut at = start + 1;
    while at < text.len() {
        match text[at] {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    text.len()
}

/// The offset of the value behind a key that ends at this offset.
fn value_behind(text: &[u8], end: usize) -> Option<usize> {
    let skip = |from: usize| from + text[from..].iter().take_while(|&&byte| is_blank(byte)).count();
    let colon = skip(end);
    (text.get(colon) == Some(&b':')).then(|| skip(colon + 1))
}

#[test]
fn the_name_is_replaced_where_an_api_has_it_in_any_spelling() {
    for (text, expected) in [
        (r#"{"id":"1","model":"llama-canary"}"#, r#"{"id":"1","model":"llama"}"#),
        (r#"{"model": "llama-canary"}"#, r#"{"model": "llama"}"#),
        (r#"{"model":"llama-canary"}{"model": "llama-canary"}"#, r#"{"model":"llama"}{"model": "llama"}"#),
        (r#"{"message":{"model":"llama-canary"}}"#, r#"{"message":{"model":"llama"}}"#),
        (
            r#"{"response" : {"id":{"a":1},"model":"llama-canary"},"model":"llama-canary"}"#,
            r#"{"response" : {"id":{"a":1},"model":"llama"},"model":"llama"}"#,
        ),
        (r#"{"model":"llama"}"#, r#"{"model":"llama"}"#),
        (r#"{"model":"llama-canary-2"}"#, r#"{"model":"llama-canary-2"}"#),
        (r#"{"model":  "llama-canary"}"#, r#"{"model":  "llama"}"#),
        (r#"{"model" :"llama-canary"}"#, r#"{"model" :"llama"}"#),
        ("{\"model\"\n:\r\n\t\"llama-canary\"}", "{\"model\"\n:\r\n\t\"llama\"}"),
        (r#"{"model":"llama\u002dcan\u0061ry"}"#, r#"{"model":"llama"}"#),
        (r#"{"a":"\\","model":"llama-canary"}"#, r#"{"a":"\\","model":"llama"}"#),
        (r#"{"a":"\"{","model":"llama-canary"}"#, r#"{"a":"\"{","model":"llama"}"#),
        (
            "event: \"model\"\ndata: {\"model\":\"llama-canary\"}",
            "event: \"model\"\ndata: {\"model\":\"llama\"}",
        ),
        (r#"{"model"::"llama-canary"}"#, r#"{"model"::"llama-canary"}"#),
        (r#"{"text":"\"model\":\"llama-canary\""}"#, r#"{"text":"\"model\":\"llama-canary\""}"#),
        (r#"{"root":"llama-canary"}"#, r#"{"root":"llama-canary"}"#),
        (r#"{"model":"llama-cana"#, r#"{"model":"llama-cana"#),
        ("", ""),
    ] {
        let got = sent(restore(), &[text.as_bytes()]).concat();
        assert_eq!(String::from_utf8(got).unwrap(), expected, "{text}");
    }
}

#[test]
fn the_same_text_in_the_output_of_a_model_stays() {
    for text in [
        // The input of a tool, whole and in an event.
        r#"{"content":[{"type":"tool_use","input":{"model":"llama-canary"}}]}"#,
        r#"{"content_block":{"type":"tool_use","input":{"model":"llama-canary"}}}"#,
        r#"{"message":{"content":[{"input":{"model":"llama-canary"}}]}}"#,
        r#"{"message":{"input":{"message":{"model":"llama-canary"}}}}"#,
        r#"{"message":[{"model":"llama-canary"}]}"#,
        r#"{"response":{"output":[{"arguments":{"model":"llama-canary"}}]}}"#,
        r#"{"output":{"response":{"model":"llama-canary"}}}"#,
        r#"{"choices":[{"message":{"model":"llama-canary"}}]}"#,
        r#"{"messages":{"model":"llama-canary"}}"#,
        r#"{"message":{},"other":{"model":"llama-canary"}}"#,
        r#""model":"llama-canary""#,
    ] {
        let got = sent(restore(), &[text.as_bytes()]).concat();
        assert_eq!(String::from_utf8(got).unwrap(), text);
    }
}

#[test]
fn a_chunk_that_stays_the_same_is_not_copied() {
    let mut restore = restore();
    assert_eq!(restore.chunk(br#"data: {"choices":[{"text":" fox"}]}"#, false), None);
    assert_eq!(restore.chunk(b"", false), None);
    assert_eq!(restore.chunk(b"data: [DONE]\n\n", true), None);
}

#[test]
fn an_event_cut_at_any_two_places_comes_out_like_a_whole_one() {
    let text =
        b"data: {\"model\":\"llama-canary\",\"a\":\"model\"}\n\ndata: {\"model\" :\t\"lla\\u006da-canary\"}\n\n";
    let expected = replaced(text, "llama-canary", "llama");
    for first in 0..=text.len() {
        for second in first..=text.len() {
            let chunks = [&text[..first], &text[first..second], &text[second..]];
            assert_eq!(sent(restore(), &chunks).concat(), expected, "cut at {first} and {second}");
        }
    }
}

#[test]
fn an_event_in_single_bytes_comes_out_like_a_whole_one() {
    let text = b"data: {\"model\":\"llama-canary\",\"model\":\"llama-cat\"}";
    let chunks: Vec<&[u8]> = text.chunks(1).collect();
    assert_eq!(sent(restore(), &chunks).concat(), replaced(text, "llama-canary", "llama"));
}

#[test]
fn only_the_beginning_of_the_name_waits_for_the_next_chunk() {
    for (at_once, held) in [
        ("data: {\"mod", ""),
        ("data: {\"model\":", "\"llama-canar"),
        ("data: {\"model\":", "\"llama\\u002"),
        ("data: {\"model\": \n\n", ""),
        ("data: {\"model\":\"llama-cx", ""),
        ("data: {\"a\":\"", ""),
        ("data: {\"model\":", "\""),
        ("data: {}\n\n", ""),
        ("data: {\"message\":{\"model\":", "\"llama"),
    ] {
        let mut restore = restore();
        let chunk = format!("{at_once}{held}");
        let sent = restore.chunk(chunk.as_bytes(), false).unwrap_or_else(|| chunk.clone().into());
        assert_eq!(String::from_utf8(sent).unwrap(), at_once, "{chunk}");
        assert_eq!(String::from_utf8(restore.held).unwrap(), held, "{chunk}");
    }
}

#[test]
fn names_are_read_and_written_as_json() {
    let restore = Restore::new("back\\slash", "quo\"te").unwrap();
    let got = sent(restore, &[br#"{"model":"back\\slash"}"#]).concat();
    assert_eq!(String::from_utf8(got).unwrap(), r#"{"model":"quo\"te"}"#);
}

#[test]
fn nothing_is_replaced_for_equal_empty_or_very_long_names() {
    assert!(Restore::new("m", "m").is_none());
    assert!(Restore::new("", "m").is_none());
    assert!(Restore::new("m", "").is_none());
    assert!(Restore::new("m", &"x".repeat(4097)).is_none());
    assert!(Restore::new("m", &"x".repeat(4096)).is_some());
}

/// Names of at most `longest` of these letters.
fn name(letters: &str, longest: usize) -> impl Strategy<Value = String> + use<> {
    let letter = proptest::sample::select(letters.chars().collect::<Vec<_>>());
    proptest::collection::vec(letter, 1..=longest).prop_map(|letters| letters.into_iter().collect())
}

/// A name with every letter escaped.
fn spelled(name: &str) -> String {
    let escapes: String =
        name.encode_utf16().flat_map(|unit| format!("\\u{unit:04X}").into_bytes()).map(char::from).collect();
    format!("\"{escapes}\"")
}

/// Texts that are or resemble the pattern.
fn texts(target: &str) -> impl Strategy<Value = Vec<u8>> + use<> {
    let json = serde_json::to_string(target).unwrap();
    let near = vec![
        format!("\"model\":{json}"),
        format!("\"model\": {json}"),
        format!("\"model\"\n:\t {json}"),
        format!("\"model\":{}", spelled(target)),
        "\"model\"".to_owned(),
        "\"model\":".to_owned(),
        json.clone(),
        json[..json.len() - 1].to_owned(),
        "\"".to_owned(),
        "\\".to_owned(),
        spelled(target),
        " ".to_owned(),
        ":".to_owned(),
        "data: {}\n\n".to_owned(),
        "{".to_owned(),
        "{".to_owned(),
        "}".to_owned(),
        ",".to_owned(),
        "\"response\":{".to_owned(),
        "\"message\" : {".to_owned(),
        "\"input\":{".to_owned(),
    ];
    let part = prop_oneof![
        4 => proptest::sample::select(near).prop_map(String::into_bytes),
        1 => proptest::collection::vec(any::<u8>(), 0..4),
    ];
    proptest::collection::vec(part, 0..12).prop_map(|parts| parts.concat())
}

proptest! {
    #[test]
    fn any_text_in_any_chunks_comes_out_as_replaced_in_one(
        (target, text) in name("am\"\\/é😀", 6).prop_flat_map(|target| (Just(target.clone()), texts(&target))),
        name in name("ax\"", 3),
        sizes in proptest::collection::vec(0usize..12, 1..40),
    ) {
        prop_assume!(target != name);
        let mut rest = text.as_slice();
        let mut chunks = Vec::new();
        for size in sizes {
            let (chunk, after) = rest.split_at(size.min(rest.len()));
            chunks.push(chunk);
            rest = after;
        }
        chunks.push(rest);
        let restore = Restore::new(&target, &name).unwrap();
        // The longest escape of a byte has six.
        let longest_hold = 1 + target.len() * 6;
        let got = sent(restore, &chunks);
        prop_assert_eq!(got.concat(), replaced(&text, &target, &name));
        // At most a part of the pattern is held back. Names differ in length, so this is checked without a
        // replacement.
        if replaced(&text, &target, &name) == text {
            let (mut came, mut went) = (0, 0);
            for (chunk, sent) in chunks.iter().zip(&got) {
                came += chunk.len();
                went += sent.len();
                prop_assert!(came - went <= longest_hold);
            }
        }
    }
}
