//! Messages of gRPC: the input is a method, the lengths of chunks, each on a line, and a message.
//!
//! A request has the fields that prost reads, and no beginning of it is refused. The usage of a response does
//! not depend on how it is cut.
#![no_main]

use endpoint_picker::request::body::{Api, Body, BodyError, Options, Parser, Parsers, ResponseMessage};
use endpoint_picker::response::reader::ResponseReader;
use endpoint_picker::response::usage::Usage;
use libfuzzer_sys::fuzz_target;
use prost::{Message, Oneof};

#[path = "../parts/first_line.rs"]
mod first_line;
use first_line::first_line;

#[derive(Clone, PartialEq, Message)]
struct GenerateRequest {
    #[prost(oneof = "Input", tags = "2, 3")]
    input: Option<Input>,
    #[prost(message, optional, tag = "4")]
    sampling_params: Option<SamplingParams>,
    #[prost(bool, tag = "5")]
    stream: bool,
    #[prost(message, optional, tag = "7")]
    mm_inputs: Option<MultimodalInputs>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Input {
    #[prost(message, tag = "2")]
    Tokenized(Tokenized),
    #[prost(string, tag = "3")]
    Text(String),
}

#[derive(Clone, PartialEq, Message)]
struct Tokenized {
    #[prost(uint32, repeated, tag = "2")]
    input_ids: Vec<u32>,
}

#[derive(Clone, PartialEq, Message)]
struct SamplingParams {
    #[prost(uint32, optional, tag = "8")]
    max_tokens: Option<u32>,
}

#[derive(Clone, PartialEq, Message)]
struct MultimodalInputs {
    #[prost(message, repeated, tag = "5")]
    mm_placeholders: Vec<Placeholder>,
    #[prost(string, repeated, tag = "6")]
    mm_hashes: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
struct Placeholder {
    #[prost(uint32, tag = "1")]
    offset: u32,
    #[prost(uint32, tag = "2")]
    length: u32,
}

fuzz_target!(|input: &[u8]| {
    let Some((path, rest)) = first_line(input) else { return };
    let Some((lengths, message)) = first_line(rest) else { return };
    let Ok(api) = Parsers::new(&[Parser::VllmGrpc, Parser::VertexAi]).api(path) else { return };
    let Ok(length) = u32::try_from(message.len()) else { return };
    let body = [&[0], &length.to_be_bytes()[..], message].concat();

    let options = Options::default();
    let whole = Body::read_bytes(&body, api, &options);
    if api == Api::GrpcGenerate {
        same_as_prost(&whole, message);
    }
    for cut in lengths.bytes().map(usize::from).filter(|cut| (5..body.len()).contains(cut)) {
        let beginning = Body::read_beginning(&body[..cut], api, &options);
        if let (Ok(_), Some(Err(error))) = (&whole, beginning) {
            panic!("a beginning is refused, the whole is not: {error}");
        }
    }
    for response in [ResponseMessage::Generate, ResponseMessage::Embed, ResponseMessage::HttpBody] {
        let mut chunks = Vec::new();
        let mut left = body.as_slice();
        for length in lengths.bytes().cycle().take(if lengths.is_empty() { 0 } else { body.len() }) {
            let (chunk, after) = left.split_at(left.len().min(usize::from(length % 32)));
            chunks.push(chunk);
            left = after;
        }
        chunks.push(left);
        assert_eq!(in_chunks(response, &chunks), in_chunks(response, &[&body]), "in chunks");
    }
});

/// Compares a body with the fields that prost reads, if it reads the message.
fn same_as_prost(body: &Result<Body<'_>, BodyError>, message: &[u8]) {
    let Ok(GenerateRequest { input, sampling_params, stream, .. }) = GenerateRequest::decode(message) else {
        return;
    };
    let body = match (body, &input) {
        (Ok(body), Some(_)) => body,
        (Err(BodyError::Invalid { .. }), None) => return,
        // prost reads past groups.
        (Err(error), _) if error.to_string().ends_with("wire type that is not supported") => return,
        (body, input) => panic!("{body:?} is not {input:?}"),
    };
    let max_tokens = sampling_params.and_then(|params| params.max_tokens).map(u64::from);
    assert_eq!((body.stream, body.max_output_tokens), (stream, max_tokens));
    let tokens = match input {
        Some(Input::Tokenized(Tokenized { input_ids })) => input_ids.len(),
        Some(Input::Text(text)) => text.len().div_ceil(4),
        None => 0,
    };
    assert_eq!(body.prompt.token_count(), tokens as u64);
}

fn in_chunks(message: ResponseMessage, chunks: &[&[u8]]) -> Usage {
    let mut reader = ResponseReader::of_messages(message);
    for chunk in chunks {
        reader.read_chunk(chunk);
    }
    reader.finish()
}
