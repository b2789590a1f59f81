//! The client's model name in answers: the input is the served model, the client's, the lengths of chunks, each on a line, and
//! an answer.
//!
//! However the answer is cut, what comes out is what a plain search and replace gives.
#![no_main]

use endpoint_picker::response::restore::Restore;
use endpoint_picker_fuzz::first_line;
use libfuzzer_sys::fuzz_target;

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

fn replaced(answer: &[u8], target: &str, name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    let mut left = answer;
    while let Some((first, rest)) = left.split_first() {
        if let Some((before, after)) = around_name(left, target) {
            out.extend_from_slice(before);
            out.extend(serde_json::to_vec(name).unwrap_or_default());
            left = after;
        } else {
            out.push(*first);
            left = rest;
        }
    }
    out
}

/// What stands before and after the target's name in a text that begins with its key.
fn around_name<'t>(text: &'t [u8], target: &str) -> Option<(&'t [u8], &'t [u8])> {
    let blanks = |text: &'t [u8]| text.trim_ascii_start();
    let colon = blanks(text.strip_prefix(b"\"model\"")?);
    // A form feed is a blank to Rust and not to JSON.
    let value = blanks(colon.strip_prefix(b":")?);
    let before = &text[..text.len() - value.len()];
    let mut strings = serde_json::Deserializer::from_slice(value).into_iter::<String>();
    let is_found = !before.contains(&b'\x0c') && strings.next()?.ok()? == target;
    is_found.then(|| (before, &value[strings.byte_offset()..]))
}
