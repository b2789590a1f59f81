//! Streams that are resumed: the input is the text of a request, the lengths of chunks, each on a line, and a
//! response.
//!
//! The bytes for the client do not depend on how the response is cut, and a continuation is a request that
//! can be continued.
#![no_main]

use endpoint_picker_engine::budget::{Budget, KeptBytes};
use endpoint_picker_engine::resume::{End, ResumableRequest, Resumption, StreamApi};
use libfuzzer_sys::fuzz_target;

#[path = "../parts/first_line.rs"]
mod first_line;
use first_line::first_line;

fuzz_target!(|input: &[u8]| {
    let Some((body, rest)) = first_line(input) else { return };
    let Some((lengths, response)) = first_line(rest) else { return };
    for api in [StreamApi::Chat, StreamApi::Completions, StreamApi::Responses, StreamApi::Messages] {
        let whole = received(api, body, &[response]);
        let mut chunks = Vec::new();
        let mut left = response;
        for length in lengths.bytes().cycle().take(if lengths.is_empty() { 0 } else { response.len() }) {
            let (chunk, after) = left.split_at(left.len().min(usize::from(length % 32)));
            chunks.push(chunk);
            left = after;
        }
        chunks.push(left);
        let in_chunks = received(api, body, &chunks);
        assert_eq!(in_chunks, whole, "in chunks");
        if let Some((_, End::Resume(body))) = whole {
            ResumableRequest::read(api, body).expect("a continuation can be continued");
        }
    }
});

/// The bytes for the client and the next step after a response in these chunks, for the second time. `None`
/// for a request that cannot be resumed.
fn received(api: StreamApi, body: &str, chunks: &[&[u8]]) -> Option<(Vec<u8>, End)> {
    let budget = Budget::new(1 << 20, 1 << 20);
    let request = ResumableRequest::read(api, body.as_bytes().to_vec()).ok()?;
    let mut kept = KeptBytes::new(&budget);
    if !kept.grow(body.len()) {
        return None;
    }
    let mut stream = Resumption::new(request, kept, 2);
    let mut client = Vec::new();
    let mut end = None;
    for _ in 0..2 {
        if stream.head(b"200", b"text/event-stream", false).is_err() {
            break;
        }
        for chunk in chunks {
            client.extend_from_slice(&stream.chunk(chunk));
        }
        let next = stream.end(true);
        let is_over = !matches!(next, End::Resume(_));
        end = Some(next);
        if is_over {
            break;
        }
    }
    Some((client, end?))
}
