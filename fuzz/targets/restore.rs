//! The client's model name in answers: the input is the served model, the client's, the lengths of chunks, each on a line, and
//! an answer.
//!
//! However the answer is cut, what comes out is what a plain search and replace gives.
#![no_main]

use endpoint_picker::restore::Restore;
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
    let spellings = ["\"model\":", "\"model\": "]
        .map(|before| (format!("{before}{}", quoted(target)), format!("{before}{}", quoted(name))));
    let mut out = Vec::new();
    let mut left = answer;
    while let Some((first, rest)) = left.split_first() {
        let found = spellings.iter().find(|(from, _)| left.starts_with(from.as_bytes()));
        if let Some((from, to)) = found {
            out.extend(to.bytes());
            left = &left[from.len()..];
        } else {
            out.push(*first);
            left = rest;
        }
    }
    out
}

/// As JSON, with nothing escaped that need not be.
fn quoted(text: &str) -> String {
    let escaped = |letter: char| match letter {
        '"' | '\\' => format!("\\{letter}"),
        '\0'..='\x1f' => format!("\\u{:04x}", u32::from(letter)),
        letter => letter.to_string(),
    };
    format!("\"{}\"", text.chars().map(escaped).collect::<String>())
}
