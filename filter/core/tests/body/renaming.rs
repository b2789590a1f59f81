//! Another model in a body.

use endpoint_picker::policy::{Member, with_members};
use endpoint_picker::request::body::Api;
use proptest::prelude::*;
use serde_json::Value;

use crate::read;
#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;

fn renamed(body: &str, model: &str) -> String {
    let span = read(Api::Completions, body).unwrap().model_span;
    String::from_utf8(with_members(body.as_bytes(), vec![Member::model(span, model)])).unwrap()
}

#[test]
fn only_the_bytes_of_the_top_level_model_change() {
    for (body, expected) in [
        (r#"{"model":"m","prompt":"p"}"#, r#"{"model":"new","prompt":"p"}"#),
        (
            r#"{"prompt":"p","n":12345678901234567890.50,"model" : "m" }"#,
            r#"{"prompt":"p","n":12345678901234567890.50,"model" : "new" }"#,
        ),
        (
            r#"{"a":{"model":"m"},"model":"m","prompt":"m"}"#,
            r#"{"a":{"model":"m"},"model":"new","prompt":"m"}"#,
        ),
        (r#"{"model":"x","prompt":"p","model":"y"}"#, r#"{"model":"x","prompt":"p","model":"new"}"#),
        (r#"{"model":17,"prompt":"p"}"#, r#"{"model":"new","prompt":"p"}"#),
        (r#"{"model":null,"prompt":"<é>"}"#, r#"{"model":"new","prompt":"<é>"}"#),
        (r#"{"model":{"a":["}"]},"prompt":"p"}"#, r#"{"model":"new","prompt":"p"}"#),
    ] {
        assert_eq!(renamed(body, "new"), expected);
    }
}

#[test]
fn a_body_without_a_model_gets_one_at_its_end() {
    for (body, expected) in [
        ("{\"prompt\":\"p\"}", "{\"prompt\":\"p\",\"model\":\"new\"}"),
        ("{\"prompt\":\"{\"\n}\n", "{\"prompt\":\"{\"\n,\"model\":\"new\"}\n"),
        (
            "{\"mod\\u0065l\":\"m\",\"prompt\":\"p\"}",
            "{\"mod\\u0065l\":\"m\",\"prompt\":\"p\",\"model\":\"new\"}",
        ),
    ] {
        assert_eq!(renamed(body, "new"), expected);
    }
    for (body, expected) in [("{ }", "{ \"model\":\"new\"}"), (" null ", "{\"model\":\"new\"}")] {
        let members = vec![Member::model(None, "new")];
        assert_eq!(with_members(body.as_bytes(), members), expected.as_bytes());
    }
}

fn text() -> impl Strategy<Value = String> {
    proptest::collection::vec(any::<char>(), 1..20).prop_map(|letters| letters.into_iter().collect())
}

proptest! {
    #[test]
    fn the_new_body_reads_like_the_old_one_with_another_model(
        model in text(),
        asked in proptest::option::of(text()),
        prompt in text(),
        user in text(),
    ) {
        let mut body = serde_json::json!({"user": user, "prompt": prompt});
        if let Some(asked) = asked {
            body["model"] = asked.into();
        }
        let new: Value = serde_json::from_str(&renamed(&body.to_string(), &model)).unwrap();
        body["model"] = model.into();
        prop_assert_eq!(new, body);
    }
}
