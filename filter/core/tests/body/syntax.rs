//! Bodies that are refused whatever their API reads of them: no JSON object, no JSON, no UTF-8.

use endpoint_picker::request::body::{Api, Body, BodyError, Options};

use crate::refusal;
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;

#[test]
fn a_body_that_is_not_an_object_is_refused_with_the_parsers_message() {
    let bad = "EOF while parsing a value at line 1 column 0";
    for (api, body, message) in [
        (Api::Chat, "", format!("error unmarshaling request bodyMap: {bad}")),
        (Api::Messages, "", format!("error unmarshaling request body: {bad}")),
        (Api::Generate, "", bad.to_owned()),
        (Api::SglangGenerate, "", format!("invalid generate request: {bad}")),
    ] {
        assert_eq!(refusal(api, body), message);
    }
    for (body, type_name) in [
        ("[]", "an array"),
        ("5", "a number"),
        ("-5.5", "a number"),
        (r#""x""#, "a string"),
        ("true", "a boolean"),
    ] {
        let message =
            format!("error unmarshaling request bodyMap: body must be a JSON object, not {type_name}");
        assert_eq!(refusal(Api::Chat, body), message);
    }
}

#[test]
fn a_syntax_error_anywhere_comes_before_a_broken_rule() {
    for body in [
        r#"{"messages":5"#,
        r#"{"messages":5} x"#,
        r#"{"messages":5,"x":[1,]}"#,
        r#"{"messages":5,"x":01}"#,
        r#"{"messages":5,"x":1e999}"#,
        "{\"messages\":5,\"x\":\"\n\"}",
        r"[1,2",
        "no healthy upstream",
    ] {
        let message = refusal(Api::Chat, body);
        assert!(message.starts_with("error unmarshaling request bodyMap: "), "{body}: {message}");
        assert!(message.contains("line"), "{body}: {message}");
    }
}

#[test]
fn a_body_that_is_not_utf8_is_refused_with_the_place() {
    let read = |bytes, api| Body::read_bytes(bytes, api, &Options::default());
    for (bytes, offset) in [(&b"{\"a\":\"\xff\"}"[..], 6), (b"\xc3", 0), (b"ok\xed\xa0\x80", 2)] {
        assert_eq!(read(bytes, Api::Raw), Ok(Body::default()), "not read, so not text");
        let error = read(bytes, Api::Chat).unwrap_err();
        assert_eq!(error, BodyError::NotUtf8 { offset });
        assert_eq!(error.to_string(), format!("request body is not UTF-8: invalid byte at offset {offset}"));
    }
}

#[test]
fn a_missing_model_has_the_epps_message() {
    assert_eq!(BodyError::NoModel.to_string(), "model not found in request body");
}
