//! The first output of a response, and errors in its body, with events as servers write them.

use endpoint_picker::request::body::ResponseMessage;
use endpoint_picker::response::reader::ResponseError;
use endpoint_picker::response::reader::ResponseReader;
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

use crate::{EVENTS, JSON};

/// The events of a stream before its first output, then its first output.
const STREAMS: [(&str, &[&str], &str); 11] = [
    (
        "chat of vLLM",
        &[": keep-alive", "\n", "data: {\"id\":\"c\",\"choices\":[],\"prompt_filter_results\":[]}\n\n"],
        "data: {\"id\":\"c\",\"object\":\"chat.completion.chunk\",\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\
         \"logprobs\":null,\"finish_reason\":null}]}\n\n",
    ),
    (
        "completions",
        &[],
        "data: {\"id\":\"c\",\"choices\":[{\"index\":0,\"text\":\" a\",\"finish_reason\":null}]}\n\n",
    ),
    (
        "responses of vLLM",
        &[
            "event: response.created\ndata: {\"response\":{\"id\":\"r\",\"error\":null,\"output\":[],\"status\":\"in_progress\",\
             \"usage\":null},\"sequence_number\":0,\"type\":\"response.created\"}\n\n",
            "event: response.in_progress\ndata: {\"type\":\"response.in_progress\",\"response\":{\"id\":\"r\",\"error\":null}}\n\n",
            "event: response.output_item.added\ndata: {\"item\":{\"id\":\"m\",\"content\":[],\"role\":\"assistant\",\"type\":\"message\"},\
             \"type\":\"response.output_item.added\"}\n\n",
            "event: response.content_part.added\ndata: {\"type\":\"response.content_part.added\",\"part\":{\"text\":\"\",\
             \"type\":\"output_text\"}}\n\n",
        ],
        "event: response.output_text.delta\ndata: {\"delta\":\"Hi\",\"type\":\"response.output_text.delta\"}\n\n",
    ),
    (
        "responses with reasoning",
        &[
            "data: {\"type\":\"response.queued\"}\n\n",
            "data: {\"type\":\"response.reasoning_summary_part.added\"}\n\n",
        ],
        "data: {\"type\":\"response.reasoning_summary_text.delta\",\"delta\":\"a\"}\n\n",
    ),
    (
        "responses with a call",
        &["data: {\"type\":\"response.created\"}\n\n"],
        "data: {\"type\":\"response.code_interpreter_call_code.delta\",\"delta\":\"a\"}\n\n",
    ),
    (
        "responses that come at once",
        &["data: {\"type\":\"response.created\"}\n\n"],
        "data: {\"type\":\"response.completed\",\"response\":{\"error\":null,\"output\":[]}}\n\n",
    ),
    (
        "Anthropic's messages",
        &[
            "event: message_start\r\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"content\":[],\
             \"usage\":{\"input_tokens\":25,\"output_tokens\":1}}}\r\n\r\n",
            "event: content_block_start\r\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\
             \"text\":\"\"}}\r\n\r\n",
            "event: ping\r\ndata: {\"type\": \"ping\"}\r\n\r\n",
        ],
        "event: content_block_delta\r\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\
         \"text\":\"Hello\"}}\r\n\r\n",
    ),
    (
        "Anthropic's messages without text",
        &["data: {\"type\":\"message_start\",\"message\":{\"content\":[]}}\n\n"],
        "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":1}}\n\n",
    ),
    (
        "generate of vLLM",
        &["\n"],
        "data: {\"request_id\":\"g\",\"choices\":[{\"index\":0,\"token_ids\":[7],\"finish_reason\":null}]}\n\n",
    ),
    (
        "generate of SGLang",
        &[],
        "data: {\"text\":\"\",\"output_ids\":[7],\"meta_info\":{\"finish_reason\":null}}\n\n",
    ),
    ("text of an unknown form", &["event: token\n"], "data: hello\n\n"),
];

/// Responses with an error in place of output, or after it.
const ERRORS: [(&str, &str, ResponseError); 17] = [
    (
        EVENTS,
        "data: {\"error\":{\"message\":\"EngineCore encountered an issue\",\"type\":\"InternalServerError\",\"param\":null,\
         \"code\":500}}\n\ndata: [DONE]\n\n",
        ResponseError::Server,
    ),
    (EVENTS, "data: {\"error\": {\"message\":\"dead\"}}\n\n", ResponseError::Server),
    (
        EVENTS,
        "data: {\"error\":\"Request failed during generation\",\"error_type\":\"generation\"}\n\n",
        ResponseError::Server,
    ),
    (EVENTS, "data: {\"error\":{}}", ResponseError::Server),
    (
        EVENTS,
        "data: {\"error\":{\"object\":\"error\",\"message\":\"too long\",\"type\":\"BadRequestError\",\"code\":400}}\n\n",
        ResponseError::Client,
    ),
    (EVENTS, "data: {\"error\":{\"message\":\"slow down\",\"code\":\"429\"}}\n\n", ResponseError::Client),
    (
        EVENTS,
        "data: {\"choices\":[{\"index\":0,\"text\":\"\",\"finish_reason\":\"error\"}]}\n\n",
        ResponseError::Server,
    ),
    (
        EVENTS,
        "data: {\"type\":\"response.created\"}\n\ndata: {\"type\":\"response.failed\",\"response\":{\"status\":\"failed\",\
         \"error\":{\"code\":\"server_error\",\"message\":\"a\"}}}\n\n",
        ResponseError::Server,
    ),
    (
        EVENTS,
        "data: {\"response\":{\"status\":\"failed\"},\"type\":\"response.failed\"}\n\n",
        ResponseError::Server,
    ),
    (EVENTS, "data: {\"type\":\"error\",\"code\":null,\"message\":\"a\"}\n\n", ResponseError::Server),
    (
        EVENTS,
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"a\"}}\n\n",
        ResponseError::Server,
    ),
    (
        EVENTS,
        "data: {\"type\":\"error\",\"error\":{\"type\":\"invalid_request_error\",\"message\":\"a\"}}\n\n",
        ResponseError::Client,
    ),
    (JSON, "{\"error\":{\"message\":\"a\",\"code\":503}}", ResponseError::Server),
    (JSON, " {\"error\" : \"dead\"}", ResponseError::Server),
    (
        JSON,
        "{\"id\":\"r\",\"object\":\"response\",\"status\":\"failed\",\"error\":{\"code\":\"server_error\"},\"output\":[]}",
        ResponseError::Server,
    ),
    (JSON, "{\"choices\":[{\"message\":{},\"finish_reason\":\"error\"}]}", ResponseError::Server),
    (JSON, "{\"error\":{\"type\":\"BadRequestError\"}}", ResponseError::Client),
];

fn reader(content_type: &str) -> ResponseReader {
    ResponseReader::new(content_type.as_bytes(), None).unwrap()
}

/// Whether output has come after each of these chunks.
fn outputs(content_type: &str, chunks: &[&[u8]]) -> Vec<bool> {
    let mut reader = reader(content_type);
    let outputs = chunks.iter().map(|chunk| {
        reader.read_chunk(chunk);
        reader.has_output()
    });
    outputs.collect()
}

#[test]
fn the_first_token_is_the_first_event_with_output_in_every_api() {
    for (api, before, output) in STREAMS {
        let chunks: Vec<_> = before.iter().chain([&output]).map(|event| event.as_bytes()).collect();
        let mut expected = vec![false; before.len()];
        expected.push(true);
        assert_eq!(outputs(EVENTS, &chunks), expected, "{api}");
        // Byte by byte, output has come with the end of its line.
        let stream = chunks.concat();
        let bytes: Vec<_> = stream.chunks(1).collect();
        let first = outputs(EVENTS, &bytes).iter().position(|&has_output| has_output).unwrap();
        let bookkeeping: usize = before.iter().map(|event| event.len()).sum();
        let data = bookkeeping + output.find("data:").unwrap();
        let end = data + output.find('\n').map_or(0, |_| output[data - bookkeeping..].find('\n').unwrap());
        assert_eq!(first, end, "{api}");
    }
}

#[test]
fn neither_the_end_of_a_stream_nor_its_usage_is_output() {
    for stream in [
        "data: [DONE]\n\n",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":7}}\n\ndata: [DONE]\n\n",
        ": comment\n\nevent: ping\n\nid: 3\nretry: 10\n",
        "data:\n\n",
        "data: {\"type\":\"message_start\"}\n\ndata: {\"type\":\"message_stop\"}\n\n",
    ] {
        let mut reader = reader(EVENTS);
        reader.read_chunk(stream.as_bytes());
        reader.end();
        assert!(!reader.has_output() && reader.error().is_none(), "{stream}");
    }
}

#[test]
fn a_json_text_is_output_from_its_first_member_on_that_is_not_an_error() {
    let bytes = |text: &str| -> Option<usize> {
        let chunks: Vec<_> = text.as_bytes().chunks(1).collect();
        outputs(JSON, &chunks).iter().position(|&has_output| has_output)
    };
    assert_eq!(bytes("\r\n {\"id\":\"c\",\"choices\":[]}"), Some(8));
    assert_eq!(bytes("[{\"text\":\"a\"}]"), Some(0));
    assert_eq!(bytes("{\"error\":null,\"output\":[]}"), Some(22));
    assert_eq!(bytes("{\"choices\":[]}"), Some(10));
    assert_eq!(bytes("{}"), Some(1));
    assert_eq!(bytes("{\"error\":{\"code\":500},\"id\":1}"), None);
    assert_eq!(bytes(" \n"), None);
}

#[test]
fn an_error_under_status_200_is_read_with_the_side_whose_fault_it_is() {
    for (content_type, body, expected) in ERRORS {
        let body = body.as_bytes();
        for chunks in [vec![body], body.chunks(1).collect(), body.chunks(7).collect()] {
            let mut reader = reader(content_type);
            for chunk in chunks {
                reader.read_chunk(chunk);
            }
            reader.end();
            assert_eq!(reader.error(), Some(expected), "{}", String::from_utf8_lossy(body));
        }
    }
}

#[test]
fn an_error_in_place_of_output_is_not_output_and_one_behind_it_is_read() {
    for (content_type, body, expected) in
        ERRORS.into_iter().filter(|(content_type, ..)| *content_type == EVENTS)
    {
        let mut first = reader(content_type);
        first.read_chunk(body.as_bytes());
        first.end();
        assert!(!first.has_output(), "{body}");
        let mut later = reader(content_type);
        later.read_chunk(STREAMS[0].2.as_bytes());
        assert!(later.has_output() && later.error().is_none());
        later.read_chunk(body.as_bytes());
        later.end();
        assert_eq!(later.error(), Some(expected), "{body}");
    }
}

#[test]
fn a_models_text_is_no_error() {
    for (content_type, body) in [
        (
            EVENTS,
            "data: {\"choices\":[{\"delta\":{\"content\":\"\\\"error\\\": {\\\"code\\\": 500}\"},\"error\":{}}]}\n\n",
        ),
        (
            EVENTS,
            "data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"finish_reason\":\"error\"}]},\"finish_reason\":\"stop\"}]}\n\n",
        ),
        (
            EVENTS,
            "data: {\"type\":\"response.output_text.delta\",\"delta\":\"error\",\"item\":{\"error\":{},\"type\":\"error\"}}\n\n",
        ),
        (EVENTS, "data: {\"error\":null,\"type\":\"response.completed\",\"response\":{\"error\":null}}\n\n"),
        (JSON, "{\"error\":\"\",\"errors\":{},\"choices\":[{\"message\":{\"error\":{}}}]}"),
        (JSON, "{\"output\":[{\"type\":\"error\",\"error\":{}}]}"),
    ] {
        let mut reader = reader(content_type);
        reader.read_chunk(body.as_bytes());
        reader.end();
        assert_eq!((reader.has_output(), reader.error()), (true, None), "{body}");
    }
}

fn frame(message: &[u8]) -> Vec<u8> {
    [&[0], &u32::try_from(message.len()).unwrap().to_be_bytes()[..], message].concat()
}

fn http_body(text: &str) -> Vec<u8> {
    let length = u8::try_from(text.len()).unwrap();
    assert!(length < 128);
    frame(&[b"\x12", &[length][..], text.as_bytes()].concat())
}

#[test]
fn the_first_token_of_grpc_is_in_the_first_whole_message_with_output() {
    let chunk = frame(b"\x0a\x09\x0a\x01\x05\x10\x09\x18\x01\x20\x03");
    let mut reader = ResponseReader::of_messages(ResponseMessage::Generate);
    let (beginning, end) = chunk.split_at(chunk.len() - 1);
    reader.read_chunk(beginning);
    assert!(!reader.has_output());
    reader.read_chunk(end);
    assert!(reader.has_output());

    let mut reader = ResponseReader::of_messages(ResponseMessage::HttpBody);
    for text in
        ["event: message_start\ndata: {\"type\":\"message_start\"}\n\n", "data: {\"type\": \"ping\"}\n\n"]
    {
        reader.read_chunk(&http_body(text));
        assert!(!reader.has_output(), "{text}");
    }
    reader.read_chunk(&http_body("data: {\"type\":\"content_block_delta\",\"delta\":{\"text\":\"a\"}}\n\n"));
    assert!(reader.has_output() && reader.error().is_none());
    reader.read_chunk(&http_body("{\"error\":{\"code\":500}}"));
    assert_eq!(reader.error(), Some(ResponseError::Server));
}

#[test]
fn after_the_first_output_only_lines_with_errors_have_any_however_they_are_cut() {
    const OUTPUT: &str =
        "data: {\"choices\":[{\"delta\":{\"content\":\"an error\"},\"finish_reason\":null}]}\n\n";
    let lines = [
        ("data: {\"error\": {\"code\": 500}}\n", true),
        ("data: {\"error\":\"out of memory\"}\n", true),
        ("data: {\"type\":\"error\"}\n", true),
        ("data: {\"type\":\"response.failed\",\"response\":{}}\n", true),
        ("data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"error\"}]}\n", true),
        ("data: {\"choices\":[{\"delta\":{\"content\":\"usage\"},\"finish_reason\":null}]}\n", false),
        ("data: {\"choices\":[{\"delta\":{\"content\":\"{\\\"error\\\":1}\"}}]}\n", false),
        (": error\"\nevent: error\n", false),
    ];
    for (line, is_error) in lines {
        let all = [OUTPUT, line, OUTPUT].concat();
        for size in [1, 7, OUTPUT.len() + 9, all.len()] {
            let mut reader = ResponseReader::new(EVENTS.as_bytes(), None).unwrap();
            let mut keeping = reader.clone();
            for chunk in all.as_bytes().chunks(size) {
                reader.read_chunk(chunk);
                keeping.keep_chunk(chunk);
            }
            keeping.end();
            assert!(reader.has_output() && keeping.has_output());
            assert_eq!(reader.error().is_some(), is_error, "{line} in chunks of {size}");
            assert_eq!(keeping.error(), reader.error(), "{line} in chunks of {size}");
        }
    }
}
