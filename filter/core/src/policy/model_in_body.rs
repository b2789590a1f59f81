//! Another model in a request body, and every other byte as it was.

use core::ops::Range;

use super::quoted::quoted;

/// The body with `model` as its top-level model.
///
/// `body` is the text of a JSON object and `span` the place of its model's value, both as
/// [`Body`](crate::body::Body) was read from it. Where there is no span, a member is added at the end: of several with
/// one name the last counts. The reference writes the whole body anew instead, with its members sorted and its numbers
/// rounded.
pub fn name_model(body: &[u8], span: Option<Range<usize>>, model: &str) -> Vec<u8> {
    let value = quoted(model);
    if let Some(span) = span {
        return [&body[..span.start], &value, &body[span.end..]].concat();
    }
    let Some(end) = body.iter().rposition(|&byte| byte == b'}') else {
        // Only null reads like an object and has no end.
        return [b"{\"model\":", &*value, b"}"].concat();
    };
    let last = body[..end].iter().rfind(|byte| !byte.is_ascii_whitespace());
    let comma: &[u8] = if last == Some(&b'{') { b"" } else { b"," };
    [&body[..end], comma, b"\"model\":", &value, &body[end..]].concat()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;
    use crate::body::{Api, Body, Json, Options};
    use crate::test;

    struct SerdeJson;

    impl Json for SerdeJson {
        type Error = serde_json::Error;

        fn read<'a, S: serde::de::DeserializeSeed<'a>>(
            text: &'a str,
            seed: S,
        ) -> Result<S::Value, Self::Error> {
            let mut deserializer = serde_json::Deserializer::from_str(text);
            let value = seed.deserialize(&mut deserializer)?;
            deserializer.end()?;
            Ok(value)
        }
    }

    fn renamed(body: &str, model: &str) -> String {
        let read = Body::read::<SerdeJson>(body, Api::Completions, &Options::default()).unwrap();
        String::from_utf8(name_model(body.as_bytes(), read.model_span, model)).unwrap()
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
            assert_eq!(name_model(body.as_bytes(), None, "new"), expected.as_bytes());
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
}
