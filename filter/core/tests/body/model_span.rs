//! The span of the model in a body, so that nothing else is replaced.

use endpoint_picker::request::body::Api;

use crate::read;
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;

fn span(json: &str) -> Option<&str> {
    let body = read(Api::Completions, json).unwrap();
    body.model_span.map(|span| &json[span])
}

#[test]
fn the_span_is_the_whole_value_of_the_last_top_level_model() {
    for (json, expected) in [
        (r#"{"model":"m","prompt":"a"}"#, Some(r#""m""#)),
        ("{\"prompt\":\"a\", \"model\" \n:\t \"m\" }", Some(r#""m""#)),
        (r#"{"model":"m\"\\","prompt":"a"}"#, Some(r#""m\"\\""#)),
        (r#"{"model":"x","prompt":"a","model":"y"}"#, Some(r#""y""#)),
        (r#"{"x":{"model":"n"},"prompt":"a"}"#, None),
        (r#"{"model":"m","x":{"model":"n"},"prompt":"a"}"#, Some(r#""m""#)),
        (r#"{"x":"\"model\":\"n\"","prompt":"a"}"#, None),
        (r#"{"prompt":"a"}"#, None),
        (r#"{"model":"","prompt":"a"}"#, Some(r#""""#)),
        (r#"{"model":12.5,"prompt":"a"}"#, Some("12.5")),
        (r#"{"prompt":"a","model":null}"#, Some("null")),
        (r#"{"prompt":"a","model":true }"#, Some("true")),
        (r#"{"model":["]",{"a":"}"}],"prompt":"a"}"#, Some(r#"["]",{"a":"}"}]"#)),
        (r#"{"model":{"a":[1,"\\"]} ,"prompt":"a"}"#, Some(r#"{"a":[1,"\\"]}"#)),
    ] {
        assert_eq!(span(json), expected, "{json}");
    }
}

#[test]
fn a_key_spelled_with_escapes_is_read_but_has_no_span() {
    let json = r#"{"mod\u0065l":"m","prompt":"a"}"#;
    let body = read(Api::Completions, json).unwrap();
    assert_eq!((body.model.as_deref(), body.model_span), (Some("m"), None));
    // The last one counts, also when it is the one that cannot be found.
    let body = read(Api::Completions, r#"{"model":"x","mod\u0065l":"y","prompt":"a"}"#).unwrap();
    assert_eq!((body.model.as_deref(), body.model_span), (Some("y"), None));
}
