//! The client's model name in responses: the input is the served model, the client's, the lengths of chunks,
//! each on a line, and a response.
//!
//! However the response is cut, the name is replaced where a walk through its objects finds it.
#![no_main]

use endpoint_picker::response::restore::Restore;
use libfuzzer_sys::fuzz_target;

#[path = "../parts/first_line.rs"]
mod first_line;
use first_line::first_line;

fuzz_target!(|input: &[u8]| {
    let Some((target, rest)) = first_line(input) else { return };
    let Some((name, rest)) = first_line(rest) else { return };
    let Some((lengths, answer)) = first_line(rest) else { return };
    let Some(restore) = Restore::new(target, name) else { return };
    let expected = replaced(answer, target, name);
    let whole = in_chunks(restore.clone(), &[answer]);
    assert_eq!(String::from_utf8_lossy(&whole), String::from_utf8_lossy(&expected), "in one piece");
    let mut chunks = Vec::new();
    let mut left = answer;
    for length in lengths.bytes().cycle().take(if lengths.is_empty() { 0 } else { answer.len() }) {
        let (chunk, after) = left.split_at(left.len().min(usize::from(length % 32)));
        chunks.push(chunk);
        left = after;
    }
    chunks.push(left);
    let cut = in_chunks(restore, &chunks);
    assert_eq!(String::from_utf8_lossy(&cut), String::from_utf8_lossy(&expected), "in chunks");
});

fn in_chunks(mut restore: Restore, chunks: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    for (index, chunk) in chunks.iter().enumerate() {
        match restore.chunk(chunk, index + 1 == chunks.len()) {
            Some(instead) => out.extend(instead),
            None => out.extend_from_slice(chunk),
        }
    }
    assert!(!restore.is_holding(), "the last chunk leaves nothing behind");
    out
}

/// Walks through the objects of the response with the key that leads to each of them.
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
                            out.extend(serde_json::to_vec(name).unwrap_or_default());
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
    let skip = |from: usize| from + text[from..].iter().take_while(|byte| b" \t\n\r".contains(byte)).count();
    let colon = skip(end);
    (text.get(colon) == Some(&b':')).then(|| skip(colon + 1))
}
