//! Usage in responses, as the model servers write them, and however they come.

#![allow(clippy::unwrap_used, reason = "a test")]

mod messages;
mod output;
mod properties;

use core::time::Duration;

use endpoint_picker::response::reader::{ResponseReader, is_stream};
use endpoint_picker::response::usage::Usage;
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use wasm_bindgen_test::wasm_bindgen_test as test;

const JSON: &str = "application/json";
const EVENTS: &str = "text/event-stream; charset=utf-8";

const CHAT: &str = concat!(
    "data: {\"id\":\"1\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\"usage\"}}],\"usage\":null}\n\n",
    "data: {\"id\":\"1\",\"choices\":[],\"usage\":{\"prompt_tokens\":7,\"total_tokens\":17,\"completion_tokens\":10,",
    "\"prompt_tokens_details\":{\"audio_tokens\":3,\"cached_tokens\":5}}}\n\n",
    "data: [DONE]\n\n"
);
const RESPONSES: &str = concat!(
    "event: response.created\n",
    "data: {\"type\":\"response.created\",\"response\":{\"id\":\"r\",\"output\":[],\"usage\":null}}\n\n",
    "event: response.completed\n",
    "data: {\"response\":{\"output\":[{\"usage\":{\"output_tokens\":9}}],\"usage\":{\"input_tokens\":31,",
    "\"input_tokens_details\":{\"cached_tokens\":16},\"output_tokens\":12}},\"type\":\"response.completed\"}\n\n",
);
const MESSAGES: &str = concat!(
    "event: message_start\r\n",
    "data: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"content\":[],\"usage\":{\"input_tokens\":25,",
    "\"cache_read_input_tokens\":4,\"output_tokens\":1}}}\r\n\r\n",
    "event: message_delta\r\n",
    "data: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":15}}\r\n\r\n",
    "event: message_stop\r\ndata: {\"type\":\"message_stop\"}\r\n\r\n"
);

fn usage(input: u64, output: u64, cached: Option<u64>) -> Usage {
    Usage { input, output, total: input + output, cached, beyond_input: 0 }
}

/// The usage of a response that comes in parts, which does not depend on whether these are kept before they
/// are read.
fn of_pieces<'p>(content_type: &str, pieces: impl IntoIterator<Item = &'p [u8]>) -> Usage {
    let mut reader = ResponseReader::new(content_type.as_bytes(), None).unwrap();
    let mut keeping = reader.clone();
    for piece in pieces {
        reader.read_chunk(piece);
        keeping.keep_chunk(piece);
    }
    let usage = reader.finish();
    assert_eq!(keeping.finish(), usage, "kept");
    usage
}

fn of(content_type: &str, answer: &str) -> Usage {
    of_pieces(content_type, [answer.as_bytes()])
}

fn of_plain(fields: &str) -> Usage {
    of(JSON, &format!(r#"{{"usage":{fields}}}"#))
}

#[test]
fn every_api_has_its_words_for_usage() {
    let chat = r#"{"prompt_tokens":7,"completion_tokens":10,"prompt_tokens_details":{"cached_tokens":5}}"#;
    let responses = r#"{"input_tokens":7,"output_tokens":10,"input_tokens_details":{"cached_tokens":5}}"#;
    let messages = r#"{"input_tokens":7,"output_tokens":10,"cache_read_input_tokens":5,"cache_creation_input_tokens":3}"#;
    for fields in [chat, responses] {
        assert_eq!(of_plain(fields), usage(7, 10, Some(5)), "{fields}");
        assert_eq!(of_plain(fields).prompt(), 7);
    }
    let of_messages = Usage { beyond_input: 5 + 3, ..usage(7, 10, Some(5)) };
    assert_eq!((of_plain(messages), of_messages.prompt()), (of_messages, 15), "cached tokens are not input");
    assert_eq!(of_plain(r#"{"prompt_tokens":8,"total_tokens":8}"#), usage(8, 0, None), "embeddings");
    let with_total = r#"{"prompt_tokens":7,"completion_tokens":10,"total_tokens":20}"#;
    assert_eq!(of_plain(with_total), Usage { total: 20, ..usage(7, 10, None) }, "the server's own total");
    assert_eq!(of(EVENTS, CHAT), usage(7, 10, Some(5)));
    assert_eq!(of(EVENTS, RESPONSES), usage(31, 12, Some(16)));
    assert_eq!(of(EVENTS, MESSAGES), Usage { beyond_input: 4, ..usage(25, 15, Some(4)) });
}

#[test]
fn a_streams_usage_does_not_depend_on_how_many_of_its_events_are_kept() {
    let token = |null: &str| format!("data: {{\"choices\":[{{\"text\":\" usage\"}}]{null}}}\n\n").repeat(300);
    for (null, end) in
        [("", CHAT), (",\"usage\":null", CHAT), (",\"error\" : null", RESPONSES), ("", MESSAGES)]
    {
        let stream = [&token(null), end].concat();
        for size in [1, 50, 4095, 4096, 4097, 10_000, stream.len()] {
            assert_eq!(of_pieces(EVENTS, stream.as_bytes().chunks(size)), of(EVENTS, end), "{null} {size}");
        }
    }
}

#[test]
fn only_the_answers_own_usage_counts_and_not_usage_in_a_models_text() {
    for answer in [
        r#"{"choices":[{"usage":{"prompt_tokens":5}}]}"#,
        r#"{"content":[{"type":"tool_use","input":{"usage":{"input_tokens":5}}}]}"#,
        r#"{"response":{"output":{"usage":{"input_tokens":5}}}}"#,
        r#"{"message":[{"usage":{"input_tokens":5}}]}"#,
        r#"{"delta":{"usage":{"input_tokens":5}}}"#,
        r#"{"text":"\"usage\":{\"prompt_tokens\":5}"}"#,
        r#"{"text":"usage","a":{"prompt_tokens":5}}"#,
        r#"["usage",{"prompt_tokens":5}]"#,
        r#"[{"usage":{"prompt_tokens":5}}]"#,
        r#"{"my usage":{"prompt_tokens":5},"Usage":{"prompt_tokens":5},"usages":{"prompt_tokens":5}}"#,
    ] {
        assert_eq!(of(JSON, answer), Usage::default(), "{answer}");
        assert_eq!(of(EVENTS, &format!("data: {answer}\n\n")), Usage::default(), "{answer}");
    }
}

#[test]
fn garbage_has_no_usage_and_does_not_hide_usage_behind_it() {
    let good = r#"{"usage":{"prompt_tokens":3}}"#;
    for line in [
        "",
        "data:",
        "dat",
        ": usage",
        "event: usage",
        "data: [DONE]",
        "data: usage",
        r#"data: {"usage":{"prompt_tokens":9}"#,
        r#"data: {"usage":{"prompt_tokens":9"#,
        r#"data: {"usage":{"prompt_tokens":9}, "a": "b"#,
        r#"data: {"usage":{"prompt_tokens":nine}}"#,
        r#"data: {"usage":["prompt_tokens",9]}"#,
        r#"data: {"usage":"prompt_tokens"}"#,
        r"data: }}}]]",
        r#"data: {"usage":{"prompt_tokens":9,"a":"\"}"#,
        r#" data: {"usage":{"prompt_tokens":9}}"#,
        r#"database: {"usage":{"prompt_tokens":9}}"#,
    ] {
        assert_eq!(of(EVENTS, &format!("{line}\ndata: {good}\n\n")), usage(3, 0, None), "{line}");
    }
    assert_eq!(
        of_pieces(JSON, [&b"{\"a\":\"\xff\xfe\",\"usage\":{\"prompt_tokens\":4,\"b\":\"\xff\"}}"[..]]),
        Usage::default()
    );
    assert_eq!(of(JSON, r#"{"usage":{"prompt_tokens":9}"#), Usage::default(), "an answer that was cut off");
    assert_eq!(of(EVENTS, &format!("data:{good}")), usage(3, 0, None), "without a blank, and without an end");
}

#[test]
fn a_number_of_tokens_may_be_a_number_or_a_string() {
    for (number, expected) in [
        ("7", 7),
        ("7.9", 7),
        ("7e2", 700),
        (r#""7""#, 7),
        (r#""7.9""#, 7),
        ("1000000000", 1_000_000_000),
        ("-7", 0),
        ("-0.5", 0),
        ("1000000001", 0),
        ("18446744073709551615", 0),
        ("1e308", 0),
        (r#""inf""#, 0),
        (r#""NaN""#, 0),
        (r#""many""#, 0),
        (r#""""#, 0),
        ("true", 0),
        ("null", 0),
        ("[7]", 0),
        (r#"{"a":7}"#, 0),
    ] {
        let fields = format!(r#"{{"prompt_tokens":{number},"completion_tokens":1}}"#);
        assert_eq!(of_plain(&fields), usage(expected, 1, None), "{number}");
    }
    assert_eq!(of_plain(r#"{"prompt_tokens":null,"input_tokens":2}"#).input, 2);
    assert_eq!(of_plain(r#"{"input_tokens":2,"prompt_tokens":3}"#).input, 3);
    assert_eq!(of_plain(r#"{"prompt_tokens_details":{"cached_tokens":0}}"#).cached, Some(0));
    assert_eq!(of_plain(r#"{"prompt_tokens_details":null}"#).cached, None);
}

#[test]
fn later_usage_that_is_not_zero_takes_the_place_of_earlier() {
    let growing = [
        r#"{"prompt_tokens":9,"completion_tokens":0,"cache_read_input_tokens":0}"#,
        r#"{"prompt_tokens":9,"completion_tokens":1,"cache_read_input_tokens":6}"#,
        r#"{"prompt_tokens":0,"completion_tokens":2,"cache_read_input_tokens":0}"#,
        "null",
        "{}",
    ];
    let growing = growing.map(|fields| format!("data: {{\"usage\":{fields}}}\n\n")).concat();
    assert_eq!(of(EVENTS, &growing), usage(9, 2, Some(6)));
}

#[test]
fn neither_a_long_answer_nor_a_long_line_hides_its_usage_but_a_long_usage_does() {
    let text = "the quick \\\"brown\\\" fox ".repeat(100_000);
    let answer = format!(r#"{{"text":"{text}","usage":{{"prompt_tokens":3}},"more":["{text}"]}}"#);
    assert_eq!(of(JSON, &answer), usage(3, 0, None));
    assert_eq!(of(EVENTS, &format!("data: {answer}\n\n")), usage(3, 0, None));

    let padded = |bytes: usize| {
        let bare = r#"{"prompt_tokens":3,"a":""}"#.len();
        of_plain(&format!(r#"{{"prompt_tokens":3,"a":"{}"}}"#, "x".repeat(bytes - bare)))
    };
    assert_eq!(padded(8192), usage(3, 0, None));
    assert_eq!(padded(8193), Usage::default());
}

#[test]
fn answers_are_read_by_their_type_if_they_are_not_compressed() {
    let is_read = |content_type: &str, encoding: Option<&str>| {
        ResponseReader::new(content_type.as_bytes(), encoding.map(str::as_bytes))
            .map(|_| is_stream(content_type.as_bytes()))
    };
    assert_eq!(is_read("application/json", None), Some(false));
    assert_eq!(is_read("Application/JSON ; charset=utf-8", Some("Identity")), Some(false));
    assert_eq!(is_read("text/event-stream", None), Some(true));
    assert_eq!(is_read("text/event-stream;charset=utf-8", Some("identity")), Some(true));
    for (content_type, encoding) in [
        ("application/json", Some("gzip")),
        ("text/event-stream", Some("br, identity")),
        ("text/plain", None),
        ("application/jsonl", None),
        ("", None),
    ] {
        assert_eq!(is_read(content_type, encoding), None, "{content_type} {encoding:?}");
    }
}

#[test]
fn an_answer_cut_at_any_two_places_has_the_usage_of_a_whole_one() {
    let plain =
        r#"{"a":["\\",{"usage":1}],"usage": {"input_tokens":"12","a":{"b":"}"},"output_tokens":3.0} }"#;
    for (content_type, answer) in [(JSON, plain), (EVENTS, CHAT), (EVENTS, RESPONSES), (EVENTS, MESSAGES)] {
        let expected = of(content_type, answer);
        assert!(expected.input > 0 && expected.output > 0, "{answer}");
        let answer = answer.as_bytes();
        for first in 0..=answer.len() {
            for second in (first..=answer.len()).step_by(1 + first % 5) {
                let pieces = [&answer[..first], &answer[first..second], &answer[second..]];
                assert_eq!(of_pieces(content_type, pieces), expected, "cut at {first} and {second}");
            }
        }
        assert_eq!(of_pieces(content_type, answer.chunks(1)), expected, "byte by byte");
    }
}

#[test]
fn time_is_shared_among_tokens_if_there_are_any() {
    let second = Duration::from_secs(1);
    let of = |output| usage(5, output, None);
    assert_eq!(of(4).time_per_token(second), Some(Duration::from_millis(250)));
    assert_eq!(of(5).time_per_further_token(second), Some(Duration::from_millis(250)));
    assert_eq!(of(1).time_per_token(second), Some(second));
    assert_eq!((of(0).time_per_token(second), of(0).time_per_further_token(second)), (None, None));
    assert_eq!(of(1).time_per_further_token(second), None);
}
