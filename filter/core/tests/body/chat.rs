//! The fields of chat and completions bodies.

use endpoint_picker::request::body::{Api, Body, Options};

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{read, text};

#[test]
fn a_chat_prompt_is_tools_then_roles_and_contents_without_separators() {
    for (json, expected) in [
        (
            r#"{"messages":[{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}]}"#,
            "systemBe brief.userHi",
        ),
        (
            r#"{"messages":[{"role":"user","content":"Hi"}],"tools":[{"type":"function","name":"f"}]}"#,
            r#"[{"name":"f","type":"function"}]userHi"#,
        ),
        (r#"{"tools":[],"messages":[{"role":"user","content":"Hi"}]}"#, "userHi"),
        (r#"{"tools":null,"messages":[{"content":"Hi","role":"user"}]}"#, "userHi"),
        (r#"{"messages":[{"role":"assistant","content":null,"tool_calls":[{"id":"1"}]}]}"#, "assistant"),
        (
            r#"{"messages":[{"role":"user","content":[{"type":"text","text":"a"},{"type":"refusal","refusal":"no"},{"type":"text","text":"b"}]}]}"#,
            "userab",
        ),
        (r#"{"messages":[{"role":"user","content":"a\nb\"c\"\ud83d\ude00é"}]}"#, "usera\nb\"c\"😀é"),
        (r#"{"messages":[{"role":"u","content":"a"}],"chat_template":"T","documents":["D"]}"#, "ua"),
    ] {
        assert_eq!(text(Api::Chat, json), expected, "{json}");
    }
}

#[test]
fn the_last_of_equal_keys_counts_at_every_level() {
    for (json, expected) in [
        (r#"{"messages":[{"content":"a"}],"messages":[{"content":"b"}]}"#, "b"),
        (r#"{"messages":[{"content":"a","content":"b","role":"x","role":"y"}]}"#, "yb"),
        (r#"{"messages":[{"content":[{"type":"text","text":"a"}],"content":"b"}]}"#, "b"),
        (r#"{"messages":[{"content":"a","content":[{"type":"text","text":"b","text":"c"}]}]}"#, "c"),
        (r#"{"messages":[{}],"tools":[1],"tools":[2]}"#, "[2]"),
    ] {
        assert_eq!(text(Api::Chat, json), expected, "{json}");
    }
    let body =
        read(Api::Completions, r#"{"prompt":"a","model":"x","model":"y","stream":true,"stream":1}"#).unwrap();
    assert_eq!(body.model.as_deref(), Some("y"));
    assert!(!body.stream);
    let body = read(Api::Completions, r#"{"prompt":"a","model":"x","model":null}"#).unwrap();
    assert_eq!(body.model, None);
}

#[test]
fn a_model_that_is_empty_or_no_string_counts_as_absent() {
    for (model, expected) in [
        (r#""m""#, Some("m")),
        (r#""org\/m""#, Some("org/m")),
        (r#""""#, None),
        ("null", None),
        ("5", None),
        ("true", None),
        (r#"["m"]"#, None),
        (r#"{"m":"m"}"#, None),
    ] {
        let json = format!(r#"{{"model":{model},"prompt":"a"}}"#);
        assert_eq!(read(Api::Completions, &json).unwrap().model.as_deref(), expected, "{json}");
    }
    assert_eq!(read(Api::Completions, r#"{"prompt":"a"}"#).unwrap().model, None);
}

#[test]
fn strings_without_escapes_are_borrowed() {
    let json = r#"{"model":"m","cache_salt":"s","prompt":"a"}"#;
    let body = read(Api::Completions, json).unwrap();
    assert!(matches!(body.model, Some(std::borrow::Cow::Borrowed("m"))));
    assert!(matches!(body.cache_salt, Some(std::borrow::Cow::Borrowed("s"))));
    let pieces = &body.prompt.lists()[0].pieces[..];
    assert!(matches!(
        pieces,
        [endpoint_picker::request::prompt::Piece::Text(std::borrow::Cow::Borrowed(b"a"))]
    ));
}

#[test]
fn stream_is_only_the_value_true() {
    for (value, expected) in
        [("true", true), ("false", false), ("1", false), (r#""true""#, false), ("null", false)]
    {
        let json = format!(r#"{{"prompt":"a","stream":{value}}}"#);
        assert_eq!(read(Api::Completions, &json).unwrap().stream, expected, "{json}");
    }
}

#[test]
fn each_api_has_its_own_field_for_the_most_tokens() {
    let chat = r#"{"messages":[{}],"max_tokens":5,"max_completion_tokens":7,"max_output_tokens":9"#;
    for (api, json, expected) in [
        (Api::Chat, format!("{chat}}}"), Some(7)),
        (Api::Chat, format!(r#"{chat},"max_completion_tokens":-1}}"#), Some(5)),
        (Api::Chat, format!(r#"{chat},"max_completion_tokens":1.5,"max_tokens":null}}"#), None),
        (Api::Completions, r#"{"prompt":"a","max_tokens":5,"max_completion_tokens":7}"#.into(), Some(5)),
        (Api::Responses, r#"{"input":"a","max_tokens":5,"max_output_tokens":9}"#.into(), Some(9)),
        (Api::Embeddings, r#"{"input":"a","max_tokens":5}"#.into(), None),
        (Api::Conversations, r#"{"items":[{}],"max_output_tokens":5}"#.into(), None),
        (Api::Messages, r#"{"messages":[{}],"max_tokens":5}"#.into(), Some(5)),
        (
            Api::Generate,
            r#"{"token_ids":[1],"max_tokens":1,"sampling_params":{"max_tokens":5}}"#.into(),
            Some(5),
        ),
        (Api::Generate, r#"{"token_ids":[1],"sampling_params":[5]}"#.into(), None),
        (Api::SglangGenerate, r#"{"input_ids":[1],"sampling_params":{"max_new_tokens":5}}"#.into(), Some(5)),
    ] {
        assert_eq!(read(api, &json).unwrap().max_output_tokens, expected, "{json}");
    }
}

#[test]
fn only_whole_numbers_from_zero_on_limit_the_tokens() {
    for (value, expected) in [
        ("0", Some(0)),
        ("16", Some(16)),
        ("16.0", Some(16)),
        ("1.6e1", Some(16)),
        ("16.5", None),
        ("-1", None),
        ("-0", Some(0)),
        (r#""16""#, None),
        ("true", None),
        ("[16]", None),
        ("1e30", Some(u64::MAX)),
    ] {
        let json = format!(r#"{{"prompt":"a","max_tokens":{value}}}"#);
        assert_eq!(read(Api::Completions, &json).unwrap().max_output_tokens, expected, "{json}");
    }
}

#[test]
fn the_salt_is_read_from_every_body_that_may_have_one() {
    for (api, required) in [
        (Api::Chat, r#""messages":[{}]"#),
        (Api::Completions, r#""prompt":"a""#),
        (Api::Embeddings, r#""input":"a""#),
        (Api::Responses, r#""input":"a""#),
        (Api::Conversations, r#""items":[{}]"#),
        (Api::Messages, r#""messages":[{}]"#),
        (Api::Generate, r#""token_ids":[1]"#),
    ] {
        let json = format!(r#"{{"cache_salt":"s",{required}}}"#);
        assert_eq!(read(api, &json).unwrap().cache_salt.as_deref(), Some("s"), "{json}");
    }
    let json = r#"{"cache_salt":"no","extra_key":"s","input_ids":[1]}"#;
    assert_eq!(read(Api::SglangGenerate, json).unwrap().cache_salt.as_deref(), Some("s"));
}

#[test]
fn bodies_that_are_not_read_say_nothing() {
    let body = read(Api::Raw, r#"{"model":"m"}"#).unwrap();
    assert_eq!((body.model, body.stream, body.prompt.token_count()), (None, false, 0));
}

#[test]
fn of_some_bodies_only_the_model_is_read() {
    for api in [Api::CountTokens, Api::ModelOnly] {
        for (json, model) in [
            (r#"{"messages":5,"model":"m","prompt":[],"cache_salt":5,"stream":5}"#, Some("m")),
            (r#"{"prompt":"hi"}"#, None),
            (r#"{"model":5}"#, None),
        ] {
            let body = read(api, json).unwrap();
            assert_eq!((body.model.as_deref(), body.prompt.token_count()), (model, 0), "{json}");
        }
        for bytes in [&b"anything"[..], b"\xff", br#"{"model":"m","x":NaN}"#] {
            assert!(Body::read_bytes(bytes, api, &Options::default()).is_err());
        }
    }
}

#[test]
fn keys_are_spelled_exactly_and_the_last_of_equal_ones_counts() {
    let body = read(Api::Chat, r#"{"messages":[{}],"Model":"a","model":"b","MODEL":"c"}"#).unwrap();
    assert_eq!(body.model.as_deref(), Some("b"));
    assert!(read(Api::Chat, r#"{"Messages":[{"role":"user"}]}"#).is_err());
    for (json, expected) in [
        (r#"{"messages":[{"role":"a","content":"x"}],"messages":[{"role":"b"}]}"#, "b"),
        (r#"{"messages":[{"role":"a","Role":"b","content":"x","content":"y"}]}"#, "ay"),
    ] {
        assert_eq!(text(Api::Chat, json), expected, "{json}");
    }
}
