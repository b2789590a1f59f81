//! Bodies made to break the reader.

use endpoint_picker::request::body::{Api, Body, BodyError, Options, complete};

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{APIS, read, refusal, text};

fn too_deep(api: Api, json: &str) {
    let message = refusal(api, json);
    assert!(message.contains("recursion limit exceeded"), "{api:?}: {message}");
}

#[test]
fn deep_nesting_is_refused_wherever_it_stands() {
    let fields = [
        "unknown",
        "model",
        "stream",
        "messages",
        "prompt",
        "input",
        "items",
        "tools",
        "system",
        "token_ids",
        "input_ids",
        "sampling_params",
        "cache_salt",
        "max_tokens",
        "metadata",
        "documents",
        "instructions",
    ];
    for (api, _, required) in APIS {
        for (open, close) in [("[", "]"), (r#"{"a":"#, "}"), (r#"[{"content":"#, "}]")] {
            let nested = open.repeat(10_000) + "1" + &close.repeat(10_000);
            too_deep(api, &nested);
            too_deep(api, &open.repeat(10_000));
            for field in fields {
                too_deep(api, &format!(r#"{{{required},"{field}":{nested}}}"#));
            }
        }
    }
}

#[test]
fn nesting_is_read_to_exactly_the_level_that_the_documents_name() {
    let nested = |levels: usize| {
        format!(r#"{{"prompt":"a","x":{}1{}}}"#, "[".repeat(levels - 1), "]".repeat(levels - 1))
    };
    assert!(read(Api::Completions, &nested(127)).is_ok());
    too_deep(Api::Completions, &nested(128));
    let beginning = |levels: usize| nested(levels)[..levels + 17].to_owned();
    let complete = |text: String| complete(text.into_bytes(), Api::Completions, &Options::default());
    let completed = complete(beginning(127)).unwrap();
    assert!(Body::read_bytes(&completed, Api::Completions, &Options::default()).is_ok());
    assert_eq!(complete(beginning(128)), None);
    for document in [
        include_str!("../../../../docs/reference/filter.md"),
        include_str!("../../../../docs/reference/differences.md"),
    ] {
        assert!(document.contains("127 levels"));
    }
}

/// Bodies with a value that is read as the client wrote it, and the levels around that value.
const RAW: [(&str, &str, usize); 2] = [
    (r#"{"messages":[{}],"tools":[{"input_schema":"#, "}]}", 3),
    (r#"{"messages":[{"content":[{"type":"tool_use","input":"#, "}]}]}", 5),
];

#[test]
fn a_value_that_is_kept_as_it_is_has_the_limits_of_any_other() {
    for (before, after, levels) in RAW {
        let nested = |open: &str, close: &str, levels: usize| {
            format!("{before}{}1{}{after}", open.repeat(levels), close.repeat(levels))
        };
        for (open, close) in [("[", "]"), (r#"{"a":"#, "}")] {
            assert!(read(Api::Messages, &nested(open, close, 127 - levels)).is_ok());
            for deeper in [128 - levels, 127, 128, 10_000] {
                too_deep(Api::Messages, &nested(open, close, deeper));
            }
        }
        for value in ["1e400", r#"{"a":-1e400}"#, "", "[1,]", r#""\x""#, "01"] {
            let message = refusal(Api::Messages, &format!("{before}{value}{after}"));
            assert!(message.starts_with("error unmarshaling request body: "), "{message}");
        }
        assert!(read(Api::Messages, &format!(r#"{before}"\ud83d"{after}"#)).is_ok());
    }
}

#[test]
fn nesting_below_the_limit_is_read() {
    let nested = "[".repeat(120) + &"]".repeat(120);
    for (api, _, required) in APIS {
        assert!(read(api, &format!(r#"{{{required},"unknown":{nested}}}"#)).is_ok(), "{api:?}");
    }
    let json = format!(r#"{{"messages":[{{}}],"tools":[{nested}]}}"#);
    assert_eq!(text(Api::Chat, &json), format!("[{nested}]"));
}

#[test]
fn every_truncation_is_refused_as_a_syntax_error() {
    let json = r#"{"model":"m","stream":true,"max_tokens":1.5e3,"tools":[{"b":"\u00e9","a":null}],"messages":[{"role":"user","content":[{"type":"text","text":"h\n"},{"type":"image_url","image_url":{"url":"x"}}]}]}"#;
    assert!(read(Api::Chat, json).is_ok());
    for end in 0..json.len() {
        let error = read(Api::Chat, &json[..end]).unwrap_err();
        assert!(matches!(error, BodyError::NotAnObject { .. }), "{end}: {error}");
    }
}

#[test]
fn half_a_surrogate_pair_is_read_as_the_replacement_character() {
    for (escape, expected) in [
        (r"\ud800", "\u{fffd}"),
        (r"\udc00", "\u{fffd}"),
        (r"\ud800\ud800", "\u{fffd}\u{fffd}"),
        (r"\ud800x", "\u{fffd}x"),
        (r"\ud83d\n", "\u{fffd}\n"),
        (r"\ud83d\ude00\ude00", "😀\u{fffd}"),
    ] {
        let json =
            format!(r#"{{"x{escape}":1,"model":"{escape}","prompt":"{escape}","cache_salt":"{escape}"}}"#);
        let body = read(Api::Completions, &json).unwrap();
        assert_eq!(body.model.as_deref(), Some(expected), "{json}");
        assert_eq!(body.cache_salt.as_deref(), Some(expected), "{json}");
        assert_eq!(json[body.model_span.unwrap()], format!("\"{escape}\""));
        assert_eq!(text(Api::Completions, &json), expected);
    }
    let message = refusal(Api::Completions, r#"{"prompt":"\ud800","model":}"#);
    assert!(message.contains("expected value"), "{message}");
    assert!(read(Api::CountTokens, r#"{"model":"\ud800"}"#).unwrap().model.is_some());
}

#[test]
fn huge_numbers_are_refused_or_read_past() {
    for number in ["1e400", "-1e400", &"9".repeat(400)] {
        let json = format!(r#"{{"prompt":"a","x":{number}}}"#);
        assert!(matches!(read(Api::Completions, &json), Err(BodyError::NotAnObject { .. })), "{json}");
    }
    for number in [&"9".repeat(300), "1e-400", "0.0000000000000000000000000000000000000001"] {
        let json = format!(r#"{{"prompt":"a","max_tokens":{number},"x":{number}}}"#);
        assert!(read(Api::Completions, &json).is_ok(), "{json}");
    }
}

#[test]
fn a_prompt_that_holds_only_small_pieces_stays_within_its_limit() {
    for (api, json) in [
        (Api::Chat, format!(r#"{{"messages":[{}{{}}]}}"#, r#"{"role":"u"},"#.repeat(100_000))),
        (Api::Completions, format!(r#"{{"prompt":[{}"b"]}}"#, r#""a","#.repeat(100_000))),
        (Api::Completions, format!(r#"{{"prompt":[{}""]}}"#, r#""","#.repeat(100_000))),
    ] {
        let options = Options { keep_bytes: 1_000, ..Options::default() };
        let body = Body::read(&json, api, &options).unwrap();
        let pieces: usize = body.prompt.lists().iter().map(|list| list.pieces.len()).sum();
        assert!(pieces <= 1_000, "{pieces} pieces");
    }
}

#[test]
fn members_in_the_worst_order_at_every_level_are_sorted_in_bounded_time() {
    // 120 levels, each of which moves everything below it behind one small member.
    let inner = format!(r#""{}""#, "x".repeat(1_000_000));
    let nested = (0..120).fold(inner, |inner, _| format!(r#"{{"b":{inner},"a":1}}"#));
    let json = format!(r#"{{"messages":[{{}}],"tools":[{nested}]}}"#);
    let options = Options { keep_bytes: 4_096, ..Options::default() };
    let body = Body::read(&json, Api::Chat, &options).unwrap();
    assert_eq!(body.prompt.token_count(), (nested.len() + 2).div_ceil(4) as u64);
    let kept = crate::bytes(&body.prompt).concat();
    assert!(kept.starts_with(br#"[{"a":1,"b":{"a":1,"b":{"a":1,"#));
    assert_eq!(kept.len(), 4_096);
}
