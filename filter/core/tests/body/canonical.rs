//! Tools as the EPP's encoder writes them; the expected texts come from Go's `encoding/json`.

use endpoint_picker::request::body::Api;
use proptest::prelude::*;

#[cfg(all(target_family = "wasm", target_os = "unknown"))]
use crate::test;
use crate::{bytes, read_limited, text};

fn tools(json: &str) -> String {
    text(Api::Chat, &format!(r#"{{"messages":[{{}}],"tools":[{json}]}}"#))
}

#[test]
fn members_are_sorted_by_key_and_the_last_of_equal_ones_stays() {
    for (json, expected) in [
        (r#"{"b":1,"a":{"z":[{"y":1,"x":2}],"y":null}}"#, r#"[{"a":{"y":null,"z":[{"x":2,"y":1}]},"b":1}]"#),
        (r#"{"a":1,"b":2,"a":3,"":4}"#, r#"[{"":4,"a":3,"b":2}]"#),
        (r#"{"a":{"long":"value"},"a":0}"#, r#"[{"a":0}]"#),
        (r#"{"é":1,"z":2,"\u0041":3}"#, r#"[{"A":3,"z":2,"é":1}]"#),
        (r#" { "a" : [ 1 , 2 ] , "b" : { } } , [ ] "#, r#"[{"a":[1,2],"b":{}},[]]"#),
        ("true,false,null", "[true,false,null]"),
    ] {
        assert_eq!(tools(json), expected);
    }
}

#[test]
fn numbers_are_written_as_shortest_floats() {
    for (json, expected) in [
        ("1", "1"),
        ("0", "0"),
        ("-7", "-7"),
        ("-1.2345678901234567e-300", "-1.2345678901234568e-300"),
        ("-0.0000012345678901234567", "-0.0000012345678901234567"),
        ("-123456789012345678901", "-123456789012345680000"),
        ("999999999999999", "999999999999999"),
        ("1000000000000001", "1000000000000001"),
        ("2.50", "2.5"),
        ("-0", "-0"),
        ("-1.5E+3", "-1500"),
        ("1e20", "100000000000000000000"),
        ("1e21", "1e+21"),
        ("123456789012345678901", "123456789012345680000"),
        ("9007199254740993", "9007199254740992"),
        ("18446744073709551615", "18446744073709552000"),
        ("-9223372036854775808", "-9223372036854776000"),
        ("1e-6", "0.000001"),
        ("1e-7", "1e-7"),
        ("0.1", "0.1"),
        // A tie between two texts of one length: the even digit wins.
        ("1000000000000000.25", "1000000000000000.2"),
        ("5e-324", "5e-324"),
        ("-2.5e-10", "-2.5e-10"),
        ("1.7976931348623157e308", "1.7976931348623157e+308"),
    ] {
        assert_eq!(tools(json), format!("[{expected}]"));
    }
}

#[test]
fn strings_are_escaped_as_for_html() {
    let json = r#""<a href=\"x\">&</a>\u2028\u2029\u0001\u0008\f\n\r\t\u007f\/\\é\ud83d\ude00""#;
    let expected = "[\"\\u003ca href=\\\"x\\\"\\u003e\\u0026\\u003c/a\\u003e\\u2028\\u2029\\u0001\\b\\f\\n\\r\\t\u{7f}/\\\\é😀\"]";
    assert_eq!(tools(json), expected);
    assert_eq!(tools("\"\u{2028}\u{2029}\u{2030}\""), "[\"\\u2028\\u2029\u{2030}\"]");
    assert_eq!(tools(r#"{"<":1}"#), r#"[{"\u003c":1}]"#);
}

#[test]
fn any_beginning_that_is_kept_is_that_of_the_whole_text() {
    let json = r#"{"tools":[{"z":{"c":"xx","b":[1,{"k":2,"j":"yyyy"}],"a":"<"},"a":"zzz","m":{"q":1,"q":2}},3,{"b":0,"a":{}}],"messages":[{"role":"user","content":"hi"}]}"#;
    let whole = text(Api::Chat, json);
    for keep in 0..=whole.len() {
        let body = read_limited(Api::Chat, json, keep);
        let kept = bytes(&body.prompt).concat();
        assert_eq!(String::from_utf8_lossy(&kept), whole[..keep], "{keep} bytes");
    }
}

#[test]
fn of_an_object_with_too_many_members_the_first_in_order_are_kept_and_all_are_counted() {
    let names = |count: usize| (0..count).map(|at| at * 7_919 % 20_011);
    let member = |name: usize| format!(r#""{name:05}":1"#);
    let object = |members: Vec<String>| format!("{{{}}}", members.join(","));
    let mut sorted: Vec<usize> = names(20_000).collect();
    sorted.sort_unstable();
    let whole = format!("[{}]", object(sorted.into_iter().map(member).collect()));
    let written = object(names(20_000).map(member).collect());
    // Deeper objects share the room with those around them.
    for (before, after) in [("", ""), (r#"{"b":1,"a":"#, "}"), (r#"{"x":1,"a":{"a":"#, "}}")] {
        let json = format!(r#"{{"messages":[{{}}],"tools":[{before}{written}{after}]}}"#);
        let body = read_limited(Api::Chat, &json, 1 << 20);
        let kept = bytes(&body.prompt).concat();
        let inner = before
            .rfind(':')
            .map_or("", |at| &before[..=at])
            .replace(r#""b":1,"#, "")
            .replace(r#""x":1,"#, "");
        let whole = format!("[{inner}{}", &whole[1..]);
        assert!(whole.as_bytes().starts_with(&kept), "{before}");
        assert!(kept.len() > 2_000 * 10, "{before}: {} bytes", kept.len());
        let bytes = "[]".len() + before.len() + written.len() + after.len();
        assert_eq!(body.prompt.token_count(), bytes.div_ceil(4) as u64, "{before}");
    }
}

/// An object as it is spelled: its members in any order, names again and again.
fn object() -> impl Strategy<Value = String> {
    // More names than the places that the writer has for those that it met last.
    let name = prop_oneof![
        (0..3_u8).prop_map(|at| format!("{at}")),
        (0..80_u8).prop_map(|at| format!("{at:x}name"))
    ];
    let leaf = prop_oneof![Just("1".to_owned()), Just(r#""text""#.to_owned()), Just("[]".to_owned())];
    leaf.prop_recursive(3, 400, 120, move |value| {
        prop::collection::vec((name.clone(), value), 0..120).prop_map(|members| {
            let members: Vec<_> =
                members.iter().map(|(name, value)| format!(r#""{name}":{value}"#)).collect();
            format!("{{{}}}", members.join(","))
        })
    })
}

proptest! {
    #[test]
    fn of_names_that_return_the_last_value_is_kept_in_order(json in object(), keep in 0..2_000_usize) {
        // A map of `serde_json` is sorted by name and has the last value of each.
        let expected = serde_json::from_str::<serde_json::Value>(&json).map(|value| format!("[{value}]"));
        let expected = expected.map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(&tools(&json), &expected);
        let chat = format!(r#"{{"messages":[{{}}],"tools":[{json}]}}"#);
        let body = read_limited(Api::Chat, &chat, keep);
        let kept = bytes(&body.prompt).concat();
        prop_assert!(expected.as_bytes().starts_with(&kept), "{} of {expected}", String::from_utf8_lossy(&kept));
    }
}
