//! `/invocations`, which is read as what its body is.

use endpoint_picker::request::body::{Api, Body, Options};

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{bytes, read};

#[test]
fn a_body_is_read_as_that_of_the_api_that_its_fields_name() {
    for (json, api) in [
        (r#"{"model":"m","max_tokens":5,"messages":[{"role":"user","content":"hi"}]}"#, Api::Chat),
        (r#"{"prompt":"hello","messages":[{"role":"user","content":"hi"}],"model":"m"}"#, Api::Chat),
        (r#"{"model":"m","messages":[{"content":[{"type":"text","text":"hi"}]}],"stream":true}"#, Api::Chat),
        (r#"{"model":"m","prompt":"hello world","max_tokens":5,"cache_salt":"s"}"#, Api::Completions),
        (r#"{"model":"m","prompt":[1,2,3],"messages":null,"input":"hi"}"#, Api::Completions),
        (r#"{"prompt":["a","b"],"messages":"none"}"#, Api::Completions),
        (r#"{"model":"m","input":"hello world"}"#, Api::Embeddings),
        (r#"{"model":"m","\u0069nput":["hello","w\u006frld"]}"#, Api::Embeddings),
        (r#"{"model":"\ud800","prompt":"hi"}"#, Api::Completions),
    ] {
        assert_eq!(read(Api::Invocations, json), read(api, json), "{json}");
    }
}

#[test]
fn of_any_other_body_the_model_is_read() {
    for (json, model) in [
        (r#"{"model":"m","query":"q","documents":["a"]}"#, Some("m")),
        (r#"{"model":"m","text_1":"a","text_2":"b","documents":{"content":[]}}"#, Some("m")),
        (r#"{"query":"q","documents":["a"],"cache_salt":5}"#, None),
        // Not a body of the API that its fields name.
        (r#"{"model":"m","messages":[5]}"#, Some("m")),
        (r#"{"model":"m","messages":[]}"#, Some("m")),
        (r#"{"model":"m","prompt":[{"a":1}],"cache_salt":5}"#, Some("m")),
        (r#"{"model":"m","input":{"a":1}}"#, Some("m")),
        (r#"{"model":"m","messages":[{"role":5}],"prompt":"hi"}"#, Some("m")),
    ] {
        let body = read(Api::Invocations, json).unwrap();
        assert_eq!((body.model.as_deref(), bytes(&body.prompt).len()), (model, 0), "{json}");
    }
}

#[test]
fn a_body_that_is_no_object_cannot_be_read() {
    for bytes in [&b"1,2,3"[..], b"[]", b"{\"model\":\"m\",}", b"\xff\xd8", b""] {
        assert!(Body::read_bytes(bytes, Api::Invocations, &Options::default()).is_err());
    }
}
