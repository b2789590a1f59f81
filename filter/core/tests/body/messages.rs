//! Bodies of gRPC, whose first message is the request.

use endpoint_picker::request::body::{Api, Body, BodyError, Options};
use endpoint_picker::request::prompt::block_hashes;
use proptest::prelude::*;

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{bytes, read};

fn varint(mut number: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    while number >= 0x80 {
        bytes.push(u8::try_from(number & 0x7f).unwrap() | 0x80);
        number >>= 7;
    }
    bytes.push(u8::try_from(number).unwrap());
    bytes
}

fn number(field: u64, value: u64) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

fn payload(field: u64, value: &[u8]) -> Vec<u8> {
    [varint(field << 3 | 2), varint(value.len() as u64), value.to_vec()].concat()
}

fn frame(message: &[u8]) -> Vec<u8> {
    [&[0], &u32::try_from(message.len()).unwrap().to_be_bytes()[..], message].concat()
}

fn packed(ids: &[u32]) -> Vec<u8> {
    ids.iter().flat_map(|&id| varint(id.into())).collect()
}

fn tokenized(ids: &[u32]) -> Vec<u8> {
    payload(2, &[payload(1, b"the text"), payload(2, &packed(ids))].concat())
}

/// A request of every field that is read, and some that are not.
fn generate(input: &[u8]) -> Vec<u8> {
    let sampling = [payload(1, b"x"), number(8, 77), vec![0x0d, 1, 2, 3, 4]].concat();
    frame(&[payload(1, b"id"), input.to_vec(), payload(4, &sampling), number(5, 1), number(9, 3)].concat())
}

fn read_bytes(bytes: &[u8], api: Api) -> Result<Body<'_>, BodyError> {
    Body::read_bytes(bytes, api, &Options::default())
}

fn refusal(bytes: &[u8], api: Api) -> String {
    read_bytes(bytes, api).unwrap_err().to_string()
}

#[test]
fn token_ids_are_the_tokens_of_the_prompt() {
    let ids = [1, 300, u32::MAX];
    let body = generate(&tokenized(&ids));
    let read = read_bytes(&body, Api::GrpcGenerate).unwrap();
    assert_eq!(bytes(&read.prompt).concat(), ids.map(u32::to_le_bytes).concat());
    assert_eq!((read.prompt.token_count(), read.max_output_tokens, read.stream), (3, Some(77), true));
    assert_eq!((read.model, read.model_span, read.cache_salt), (None, None, None));
}

#[test]
fn placeholders_of_images_among_token_ids_have_the_hashes_in_their_places() {
    let placeholder = payload(5, &[number(1, 0), number(2, 1)].concat());
    let request = |parts: &[&[u8]]| {
        let inputs = payload(7, &parts.concat());
        frame(&[tokenized(&[1, 2, 3]), inputs].concat())
    };
    let (first, second) = (payload(6, b"a"), payload(6, b"b"));
    for (body, expected) in [
        (request(&[&placeholder, &placeholder, &first, &second]), (true, 2)),
        (request(&[&first, &placeholder]), (true, 1)),
        (request(&[&placeholder]), (true, 0)),
        (request(&[&first]), (false, 0)),
    ] {
        let prompt = read_bytes(&body, Api::GrpcGenerate).unwrap().prompt;
        assert_eq!((prompt.has_media(), prompt.items().len()), expected);
        assert_eq!(prompt.token_count(), 3);
    }
}

#[test]
fn equal_token_ids_have_equal_blocks_in_every_api() {
    let ids: Vec<u32> = (0..200).collect();
    let body = generate(&tokenized(&ids));
    let read_message = read_bytes(&body, Api::GrpcGenerate).unwrap();
    let json = format!(r#"{{"model":"m","token_ids":{ids:?}}}"#);
    let read_json = read(Api::Generate, &json).unwrap();
    let hashes = |body: &Body<'_>| block_hashes(&body.prompt, "m", None, 64, 100).all().to_vec();
    assert_eq!(hashes(&read_message), hashes(&read_json));
    assert!(hashes(&read_message).len() >= 3);
}

#[test]
fn a_text_is_a_prompt_of_completions() {
    let body = generate(&payload(3, "héllo".as_bytes()));
    let read = read_bytes(&body, Api::GrpcGenerate).unwrap();
    assert_eq!(read.prompt, crate::read(Api::Completions, r#"{"prompt":"héllo"}"#).unwrap().prompt);
    let empty = generate(&payload(3, b""));
    assert_eq!(read_bytes(&empty, Api::GrpcGenerate).unwrap().prompt.token_count(), 0);
}

#[test]
fn the_last_input_counts_and_token_ids_in_several_parts_are_joined() {
    let text = payload(3, b"text");
    for (input, expected) in [
        ([tokenized(&[1]), text.clone()].concat(), b"text".to_vec()),
        ([text, tokenized(&[1])].concat(), vec![1, 0, 0, 0]),
        ([tokenized(&[1]), tokenized(&[2])].concat(), vec![1, 0, 0, 0, 2, 0, 0, 0]),
        (
            payload(2, &[number(2, 1), payload(2, &[2]), number(2, 3)].concat()),
            vec![1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0],
        ),
        (payload(2, &number(2, 1 << 32 | 5)), vec![5, 0, 0, 0]),
        (payload(2, b""), vec![]),
    ] {
        let body = generate(&input);
        let read = read_bytes(&body, Api::GrpcGenerate).unwrap();
        assert_eq!(bytes(&read.prompt).concat(), expected);
    }
}

#[test]
fn embeddings_have_token_ids_only() {
    let body = frame(&[payload(1, b"id"), tokenized(&[7])].concat());
    assert_eq!(bytes(&read_bytes(&body, Api::GrpcEmbed).unwrap().prompt).concat(), [7, 0, 0, 0]);
    let text = frame(&payload(3, b"text"));
    assert_eq!(refusal(&text, Api::GrpcEmbed), "missing tokenized input in EmbedRequest");
}

#[test]
fn a_refusal_names_the_message_and_the_reason() {
    for (body, message) in [
        (frame(&number(5, 1)), "not supported request inputType"),
        (frame(b""), "not supported request inputType"),
        (frame(&payload(3, b"\xff")), "unmarshaling GenerateRequest: a text is not UTF-8"),
        (frame(b"\x1a\x05hi"), "unmarshaling GenerateRequest: a field is longer than its message"),
        (frame(b"\x12\x02\x12\x05"), "unmarshaling GenerateRequest: a field is longer than its message"),
        (frame(b"\x12\x03\x12\x01\x80"), "unmarshaling GenerateRequest: a field is cut off"),
        (frame(b"\x00"), "unmarshaling GenerateRequest: a field has an invalid number"),
        (vec![1, 0, 0, 0, 0], "invalid or unsupported gRPC payload: its first message is compressed"),
        (vec![0, 0, 0, 0], "invalid or unsupported gRPC payload: it ends within its first message"),
        (vec![0, 0, 0, 0, 1], "invalid or unsupported gRPC payload: it ends within its first message"),
        (Vec::new(), "invalid or unsupported gRPC payload: it ends within its first message"),
    ] {
        assert_eq!(refusal(&body, Api::GrpcGenerate), message, "{body:?}");
    }
}

#[test]
fn only_the_first_message_is_read() {
    let mut body = generate(&tokenized(&[1]));
    body.extend(b"\xff\xff\xff");
    assert_eq!(read_bytes(&body, Api::GrpcGenerate).unwrap().prompt.token_count(), 1);
}

#[test]
fn a_part_of_a_long_message_has_the_beginning_of_the_prompt() {
    let ids: Vec<u32> = (0..1000).collect();
    for (input, tokens) in [(tokenized(&ids), 1000), (payload(3, &vec![b'a'; 4000]), 1000)] {
        let body = generate(&input);
        let whole = bytes(&read_bytes(&body, Api::GrpcGenerate).unwrap().prompt).concat();
        let mut is_read = false;
        for cut in 5..body.len() {
            let read = Body::read_beginning(&body[..cut], Api::GrpcGenerate, &Options::default());
            let Some(read) = read else {
                assert!(!is_read && cut < 15, "{cut}");
                continue;
            };
            is_read = true;
            let read = read.unwrap();
            assert!(whole.starts_with(&bytes(&read.prompt).concat()), "{cut}");
            assert!(read.prompt.token_count() <= tokens);
        }
    }
    let refused =
        Body::read_beginning(b"\x00\x00\x00\xff\xff\x00\x01", Api::GrpcGenerate, &Options::default());
    assert!(refused.unwrap().is_err(), "more bytes do not mend it");
}

#[test]
fn vertex_requests_carry_a_body_of_another_api() {
    let chat = r#"{"model":"m","messages":[{"role":"user","content":"hello"}],"max_tokens":5,"stream":true}"#;
    let responses = r#"{"model":"m","input":"hello"}"#;
    for (api, inner, json) in [
        (Api::VertexChat, Api::Chat, chat),
        (Api::VertexRawPredict, Api::Responses, responses),
        (Api::VertexStreamRawPredict, Api::Responses, responses),
    ] {
        let http_body = [payload(1, b"application/json"), payload(2, json.as_bytes())].concat();
        let body = frame(&[payload(1, b"projects/p"), payload(2, &http_body)].concat());
        let expected = Body { model_span: None, ..read(inner, json).unwrap() };
        assert_eq!(read_bytes(&body, api).unwrap(), expected);
        let cut = Body::read_beginning(&body[..body.len() - 3], api, &Options::default()).unwrap().unwrap();
        assert_eq!(cut.model.as_deref(), Some("m"));
    }
}

#[test]
fn a_beginning_is_not_refused_for_what_comes_behind_it() {
    let json = payload(2, br#"{"model":"m","messages":[{"role":"user","content":"hello"}]}"#);
    for first in [&[][..], &payload(2, &payload(2, b"not JSON")), &payload(2, b"\x12\x09")] {
        let body = frame(&[first, &payload(2, &json)].concat());
        read_bytes(&body, Api::VertexChat).unwrap();
        for cut in 5..body.len() {
            match Body::read_beginning(&body[..cut], Api::VertexChat, &Options::default()) {
                Some(read) => assert!(read.is_ok(), "{cut}: {read:?}"),
                None => assert!(cut < body.len() - 1, "{cut}"),
            }
        }
    }
}

#[test]
fn a_refusal_of_vertex_names_the_message() {
    for (api, name) in [
        (Api::VertexChat, "ChatCompletionsRequest"),
        (Api::VertexRawPredict, "RawPredictRequest"),
        (Api::VertexStreamRawPredict, "StreamRawPredictRequest"),
    ] {
        assert_eq!(refusal(&frame(&payload(1, b"e")), api), format!("{name} has no HttpBody"));
        let malformed = refusal(&frame(b"\x12\x09"), api);
        assert_eq!(malformed, format!("unmarshaling {name}: a field is longer than its message"));
        let json = refusal(&frame(&payload(2, &payload(2, b"{}"))), api);
        assert!(json.starts_with(&format!("parsing {name}: invalid ")), "{json}");
    }
}

proptest! {
    #[test]
    fn no_bytes_do_harm(message in prop::collection::vec(any::<u8>(), 0..64), cut in 0..64_usize) {
        let body = frame(&message);
        for api in [Api::GrpcGenerate, Api::GrpcEmbed, Api::VertexChat, Api::VertexRawPredict] {
            let _ = read_bytes(&body, api);
            let _ = Body::read_beginning(&body[..cut.min(body.len())], api, &Options::default());
        }
    }

    #[test]
    fn a_limit_keeps_the_first_ids_and_counts_all(ids in prop::collection::vec(any::<u32>(), 1..200), keep in 0..300_usize) {
        let body = generate(&tokenized(&ids));
        let options = Options { keep_bytes: keep, ..Options::default() };
        let read = Body::read_bytes(&body, Api::GrpcGenerate, &options).unwrap();
        let kept: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).take(keep / 4 * 4).collect();
        prop_assert_eq!(bytes(&read.prompt).concat(), kept);
        prop_assert_eq!(read.prompt.token_count(), ids.len() as u64);
        prop_assert_eq!(read.prompt.is_cut(), keep / 4 < ids.len());
    }
}
