//! Usage in the messages of gRPC responses.

use endpoint_picker::request::body::ResponseMessage;
use endpoint_picker::response::reader::ResponseReader;
use endpoint_picker::response::usage::Usage;
use proptest::prelude::*;
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use crate::usage;

fn frame(message: &[u8]) -> Vec<u8> {
    [&[0], &u32::try_from(message.len()).unwrap().to_be_bytes()[..], message].concat()
}

fn of_chunks<'c>(message: ResponseMessage, chunks: impl IntoIterator<Item = &'c [u8]>) -> Usage {
    let mut reader = ResponseReader::of_messages(message);
    for chunk in chunks {
        reader.read_chunk(chunk);
    }
    reader.finish()
}

fn of(message: ResponseMessage, response: &[u8]) -> Usage {
    of_chunks(message, [response])
}

/// Chunks with the counts so far: 3 of 9 prompt tokens cached, 1 and 2 tokens generated.
const CHUNKS: [&[u8]; 2] =
    [b"\x0a\x09\x0a\x01\x05\x10\x09\x18\x01\x20\x03", b"\x0a\x09\x0a\x01\x06\x10\x09\x18\x02\x20\x03"];
/// The same request complete, with 3 tokens.
const COMPLETE: &[u8] = b"\x12\x11\x0a\x03\x05\x06\x07\x12\x04stop\x18\x09\x20\x03\x28\x03";

#[test]
fn the_last_message_has_the_counts_of_a_stream() {
    let stream = [frame(CHUNKS[0]), frame(CHUNKS[1])].concat();
    assert_eq!(of(ResponseMessage::Generate, &stream), usage(9, 2, Some(3)), "a stream that was cut off");
    let stream = [stream, frame(COMPLETE)].concat();
    assert_eq!(of(ResponseMessage::Generate, &stream), usage(9, 3, Some(3)));
    assert_eq!(of(ResponseMessage::Generate, &frame(COMPLETE)), usage(9, 3, Some(3)));
}

#[test]
fn embeddings_have_prompt_tokens() {
    let embedding = [b"\x0a\x08\x00\x00\x80\x3f\x00\x00\x00\x40", &b"\x10\x07\x18\x02"[..]].concat();
    assert_eq!(of(ResponseMessage::Embed, &frame(&embedding)), usage(7, 0, None));
}

#[test]
fn an_http_body_has_the_usage_of_its_json() {
    let json = br#"{"usage":{"prompt_tokens":7,"completion_tokens":10}}"#;
    let http_body =
        [b"\x0a\x10application/json\x12", &[u8::try_from(json.len()).unwrap()][..], json].concat();
    let response = frame(&http_body);
    assert_eq!(of(ResponseMessage::HttpBody, &response), usage(7, 10, None));
    assert_eq!(of_chunks(ResponseMessage::HttpBody, response.chunks(1)), usage(7, 10, None));
}

#[test]
fn messages_that_cannot_be_read_hide_no_other() {
    for bad in [&b"\x0b"[..], b"\x0a\x05\x10", b"", b"\x10\x09", b"\x0a\x06\x10\xff\xff\xff\xff\x0f"] {
        let stream = [frame(bad), frame(COMPLETE), frame(bad)].concat();
        assert_eq!(of(ResponseMessage::Generate, &stream), usage(9, 3, Some(3)), "{bad:?}");
    }
    let mut compressed = frame(COMPLETE);
    compressed[0] = 1;
    assert_eq!(of(ResponseMessage::Generate, &compressed), Usage::default());
    compressed.extend(frame(CHUNKS[0]));
    assert_eq!(of(ResponseMessage::Generate, &compressed), usage(9, 1, Some(3)));
    let cut = frame(COMPLETE);
    assert_eq!(of(ResponseMessage::Generate, &cut[..cut.len() - 1]), Usage::default());
}

proptest! {
    #[test]
    fn usage_does_not_depend_on_the_chunks(cuts in prop::collection::vec(0..60_usize, 0..8)) {
        let stream = [frame(CHUNKS[0]), frame(CHUNKS[1]), frame(COMPLETE)].concat();
        let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(stream.len())).collect();
        cuts.extend([0, stream.len()]);
        cuts.sort_unstable();
        let chunks = cuts.windows(2).map(|pair| &stream[pair[0]..pair[1]]);
        prop_assert_eq!(of_chunks(ResponseMessage::Generate, chunks), usage(9, 3, Some(3)));
    }

    #[test]
    fn no_bytes_do_harm(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..5)) {
        for message in [ResponseMessage::Generate, ResponseMessage::Embed, ResponseMessage::HttpBody] {
            let whole = of(message, &chunks.concat());
            prop_assert_eq!(of_chunks(message, chunks.iter().map(Vec::as_slice)), whole);
        }
    }
}
