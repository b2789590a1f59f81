//! Usage in responses: the input is a content type, the lengths of chunks, each on a line, and a response.
//!
//! Usage and id do not depend on how the response is cut, nor the usage on which chunks are kept. The usage
//! of a plain JSON response is the one in its parsed tree.
#![no_main]

use endpoint_picker::request::stored::StoredId;
use endpoint_picker::response::reader::{ResponseReader, is_stream};
use endpoint_picker::response::usage::Usage;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;

#[path = "../parts/first_line.rs"]
mod first_line;
use first_line::first_line;

fuzz_target!(|input: &[u8]| {
    let Some((content_type, rest)) = first_line(input) else { return };
    let Some((lengths, answer)) = first_line(rest) else { return };
    let Some(reader) = ResponseReader::new(content_type.as_bytes(), None) else { return };
    let without_id = reader.clone();
    let reader = reader.with_id();
    let whole = in_pieces(reader.clone(), &[answer]);
    let mut pieces = Vec::new();
    let mut left = answer;
    for length in lengths.bytes().cycle().take(if lengths.is_empty() { 0 } else { answer.len() }) {
        let (piece, after) = left.split_at(left.len().min(usize::from(length % 32)));
        pieces.push(piece);
        left = after;
    }
    pieces.push(left);
    assert_eq!(in_pieces(reader, &pieces), whole, "in pieces");
    let mut keeping = without_id;
    pieces.iter().for_each(|piece| keeping.keep_chunk(piece));
    assert_eq!(keeping.finish(), whole.0, "kept");
    let (whole, _) = whole;

    let most = 1_000_000_000;
    assert!(whole.input <= most && whole.output <= most && whole.cached.is_none_or(|cached| cached <= most));
    if !is_stream(content_type.as_bytes())
        && let Ok(tree) = serde_json::from_slice::<Value>(answer)
        && whole != Usage::default()
    {
        // Of several members of a name, the tree has the last one.
        let holders = [Some(&tree), tree.get("response"), tree.get("message")];
        let repeats = |name: &[u8]| answer.windows(name.len()).filter(|part| *part == name).count() > 1;
        let has_usage =
            holders.into_iter().flatten().any(|holder| holder.get("usage").is_some_and(Value::is_object));
        assert!(
            has_usage || [&b"\"usage\""[..], b"\"response\"", b"\"message\""].into_iter().any(repeats),
            "{whole:?} of no usage"
        );
    }
});

fn in_pieces(mut reader: ResponseReader, pieces: &[&[u8]]) -> (Usage, Option<StoredId>) {
    for piece in pieces {
        reader.read_chunk(piece);
    }
    reader.end();
    let stored = reader.take_id();
    (reader.finish(), stored)
}
